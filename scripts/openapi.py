"""Writes docs/openapi.json from the API's own table of operations."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.web.api.openapi import document


def main() -> None:
    path = Path(__file__).parents[1] / "docs" / "openapi.json"
    path.write_text(json.dumps(document(), ensure_ascii=False, indent=1) + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()

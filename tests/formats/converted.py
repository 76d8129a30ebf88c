"""Into a store and back, and what then lies in a directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast import Store, formats


def tree(place: Path) -> dict[str, Any]:
    """Every file of the original's, by its name, as JSON."""
    found: dict[str, Any] = {}
    for path in sorted(place.rglob("*")):
        name = str(path.relative_to(place))
        if path.is_file() and not name.startswith(".holdfast"):
            text = path.read_text("utf-8")
            found[name] = (
                [json.loads(line) for line in text.splitlines() if line]
                if name.endswith("ndjson")
                else json.loads(text)
            )
    return found


def there_and_back(system: str, place: Path, store: Store, target: Path) -> formats.Imported:
    report = formats.import_dir(system, place, store)
    for run_id in report.runs:
        formats.export_run(system, store, run_id, target)
    assert store.verify().problems == []
    return report

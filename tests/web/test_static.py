"""The vendored scripts are exactly those that were published, with their licence."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

import holdfast.web.server

STATIC = Path(holdfast.web.server.__file__).parent / "static"
VENDORED = {
    "htmx.min.js": "e484d9171a9db30a39c8f16e3d709d4137f3211c659f8e6125816635033d593f",
    "hx-sse.min.js": "8a834680c4000a9034d79228872372a92e140c810a075cb6d4a76690dfc13085",
    "htmx-LICENSE.txt": "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
}
"""htmx 4.0.0 and its SSE extension, from the package htmx.org of the npm registry; licence 0BSD."""


@pytest.mark.parametrize("name", VENDORED)
def test_vendored_files_are_unchanged(name: str) -> None:
    assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == VENDORED[name]


def test_templates_load_nothing_from_another_origin() -> None:
    for path in (STATIC.parent / "templates").iterdir():
        assert not re.search(r"""(src|href|action)=["'](https?:)?//""", path.read_text()), path


@pytest.mark.parametrize(
    "sign", ["style=", "onclick", "onload", "onsubmit", "<script>", "<style", "javascript:", "|safe"]
)
def test_templates_have_no_inline_script_or_style(sign: str) -> None:
    for path in (STATIC.parent / "templates").iterdir():
        assert sign not in path.read_text(), path

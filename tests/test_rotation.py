"""The table of expensive tests."""

from __future__ import annotations

import re
from pathlib import Path

from tests.rotation import ROTATED

_ROOT = Path(__file__).parents[1]


def test_every_test_in_the_table_exists() -> None:
    for file, tests in ROTATED.items():
        text = (_ROOT / file).read_text("utf-8")
        known = set(re.findall(r"^\s*(?:async )?def (test_\w+)|^class (\w+)|^(\w+) = ", text, re.MULTILINE))
        names = {name for found in known for name in found if name}
        assert {test.partition("::")[0] for test in tests} <= names, file

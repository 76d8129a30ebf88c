"""The types of a user's workflows flow through: what mypy and pyright reveal of a sample, and what they refuse."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SAMPLE = Path(__file__).parent / "sample.py"
ROOT = SAMPLE.parents[2]


def plain(revealed: str) -> str:
    """A type without what each checker writes in its own way: modules, brackets of parameters, defaults."""
    revealed = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", revealed)
    revealed = re.sub(r" = ?(?:\"\")?(?=[,\])])|[()]", "", revealed)
    return revealed.replace("Workflow[[", "Workflow[").replace("], ", ", ")


def expected() -> tuple[dict[int, str], set[int]]:
    types, errors = {}, set()
    for number, line in enumerate(SAMPLE.read_text().splitlines(), start=1):
        code, _, comment = line.partition("  # ")
        if code.lstrip().startswith("reveal_type"):
            types[number] = comment
        elif comment == "error":
            errors.add(number)
    return types, errors


def run_checker(*command: str) -> str:
    """What a checker prints of the sample, with the mistakes in it."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    found = subprocess.run(
        [sys.executable, "-m", *command, str(SAMPLE)], capture_output=True, text=True, cwd=ROOT, env=env, check=False
    )
    assert found.returncode == 1, found.stdout + found.stderr
    return found.stdout


def mypy_findings() -> tuple[dict[int, str], set[int]]:
    out = run_checker("mypy", "--strict", "--config-file=", "--follow-imports=silent", "--no-error-summary")
    types: dict[int, str] = {}
    errors: set[int] = set()
    for number, kind, text in re.findall(r"sample\.py:(\d+): (note|error): (.*)", out):
        if text.startswith("Revealed type is "):
            types[int(number)] = text.removeprefix("Revealed type is ").strip('"')
        elif kind == "error":
            errors.add(int(number))
    return types, errors


def pyright_findings() -> tuple[dict[int, str], set[int]]:
    report: dict[str, Any] = json.loads(run_checker("pyright", "--pythonpath", sys.executable, "--outputjson"))
    types: dict[int, str] = {}
    errors: set[int] = set()
    for one in report["generalDiagnostics"]:
        number = one["range"]["start"]["line"] + 1
        if one["severity"] == "information":
            types[number] = one["message"].rpartition(" is ")[2].removeprefix('"').removesuffix('"')
        else:
            errors.add(number)
    return types, errors


@pytest.mark.parametrize("findings", [mypy_findings, pyright_findings], ids=["mypy", "pyright"])
def test_a_type_checker_knows_what_comes_back_and_refuses_what_does_not_fit(findings: Any) -> None:
    types, errors = expected()
    found_types, found_errors = findings()
    assert {number: plain(text) for number, text in found_types.items()} == {
        number: plain(text) for number, text in types.items()
    }
    assert found_errors == errors

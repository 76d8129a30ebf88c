"""The pages of the adapters, and their examples, with the frameworks that are installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.adapters.test_story import FRAMEWORKS, is_installed

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(path.stem for path in (ROOT / "docs" / "adapters").glob("*.md") if path.stem != "README")


def _case(name: str) -> object:
    marks = () if is_installed(name) else pytest.mark.skip(f"{FRAMEWORKS[name]} is not installed")
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [_case(name) for name in PAGES])
def test_the_code_of_a_page_can_be_executed(name: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "adapters" / f"{name}.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert blocks
    ran = _run(tmp_path, "-c", "\n".join(blocks))
    assert ran.returncode == 0, ran.stderr[-3000:]


@pytest.mark.parametrize("name", [_case(name) for name in PAGES])
def test_the_commands_of_an_example_can_be_given_one_after_another(name: str, tmp_path: Path) -> None:
    example = ROOT / "examples" / f"{name}_payments.py"
    commands = re.findall(rf"^    python {example.name} ([^#\n]*)", example.read_text("utf-8"), re.MULTILINE)
    assert len(commands) > 1, "one process starts, another answers"
    for command in commands:
        ran = _run(tmp_path, str(example), *command.split())
        assert ran.returncode == 0, ran.stderr[-3000:]
        assert ran.stdout.strip(), command


def _run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=240, check=False)

"""What the command says before it opens anything."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.click_verbs import load
from holdfast.cli.commands import HELPS, MODULES
from tests.cli.processes import command as run
from tests.cli.processes import environment

COMMANDS = Path(holdfast.__file__).parent / "cli" / "commands"
QUICK = (("--version",), ("--help",), ())
START_UP_MAX = 3.0


def test_the_version_is_that_of_the_package(tmp_path: Path) -> None:
    assert run("--version", cwd=tmp_path) == (0, f"holdfast {holdfast.__version__}\n", "")


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_names_every_verb_and_all_exit_codes(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.code == 0
    assert done.err == ""
    assert all(f"\n  {verb} " in done.out for verb in HELPS)
    assert "3 waiting for an answer, 4 not found, 5 conflict" in done.out
    assert max(len(line) for line in done.out.splitlines()) <= 110


def test_an_unknown_verb_is_wrong_usage_and_near_ones_are_named(tmp_path: Path) -> None:
    done = run("lst", cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "did you mean 'list'" in done.err


def test_an_unknown_verb_is_told_in_json_too(tmp_path: Path) -> None:
    done = run("--json", "lst", cwd=tmp_path)
    assert done.code == 2
    assert done.data["error"]["exit"] == 2


def test_options_without_a_verb_are_wrong_usage(tmp_path: Path) -> None:
    assert run("--store", "memory:", cwd=tmp_path).code == 2
    assert run("--store", cwd=tmp_path).code == 2
    assert run("--wrong", cwd=tmp_path).code == 2


@pytest.mark.parametrize("verb", HELPS)
def test_each_verb_begins_its_help_with_the_line_of_the_table_and_gives_examples(verb: str) -> None:
    command = load(verb)
    told = " ".join((command.help or "").split())
    assert told.startswith(HELPS[verb])
    assert f"holdfast {verb}" in told.partition("Examples:")[2]


def test_every_module_of_commands_is_a_verb() -> None:
    names = {path.stem for path in COMMANDS.glob("*.py")} - {"__init__"}
    assert names == set(MODULES.values())


@pytest.mark.parametrize("arguments", [*QUICK, ("no-such-verb",)])
def test_neither_click_nor_the_engine_is_loaded_to_say_a_word(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code = (
        "import sys; from holdfast.cli.main import main\n"
        f"main({list(arguments)!r})\n"
        "heavy = ('click', 'rich', 'msgspec', 'typing', 'asyncio', 'holdfast.runtime', 'holdfast.operations', 'yaml')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("arguments", QUICK)
def test_it_starts_in_less_than_three_times_what_python_takes(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    env = environment()
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    nothing = [sys.executable, "-c", "pass"]
    ours = [sys.executable, "-c", "import sys; from holdfast.cli.main import main; sys.exit(main())", *arguments]
    ratios = []
    for _ in range(4):  # the machine may be busy with something else
        times: dict[int, list[float]] = {0: [], 1: []}
        for turn in range(16):
            begun = time.perf_counter()
            subprocess.run((nothing, ours)[turn % 2], cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, check=True)
            times[turn % 2].append(time.perf_counter() - begun)
        ratios.append(statistics.median(times[1]) / statistics.median(times[0]))
        if ratios[-1] < START_UP_MAX:
            return
    raise AssertionError(f"{ratios} times what Python takes")


def test_without_click_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise ImportError('gone', name='click')\n")
    done = run("pause", "x", cwd=tmp_path, PYTHONPATH=os.pathsep.join((str(tmp_path), environment()["PYTHONPATH"])))
    assert done.code == 1
    assert "holdfast[cli]" in done.err
    assert run("--version", cwd=tmp_path).code == 0


@pytest.mark.parametrize("verb", ["list", "answer"])
def test_the_help_of_a_verb_is_not_an_error(tmp_path: Path, verb: str) -> None:
    code, printed, said = run(verb, "--help", cwd=tmp_path)
    assert (code, said) == (0, "")
    assert printed.startswith(f"Usage: holdfast {verb} ")

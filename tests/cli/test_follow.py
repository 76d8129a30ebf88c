"""Output that others read to its end or not, and lines that come while a run goes on; places by the names of stages."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.cli.processes import command, environment

HOLDFAST = f"{sys.executable} -m holdfast"


def shell(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"], cwd=cwd, env=environment(), capture_output=True, text=True,
        timeout=240, check=False,
    )  # fmt: skip


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A store with so much in it that no pipe holds the list of it."""
    with holdfast.open(f"sqlite:{tmp_path / 'holdfast.db'}") as store:
        for number in range(600):
            store.save(f"run-{number}-{'x' * 200}", {"n": number})
    return tmp_path


@pytest.mark.parametrize("verb", ["list --all", "list --all --json", "show run-1- --json", "--help"])
def test_whoever_has_seen_enough_ends_the_command_quietly(full: Path, verb: str) -> None:
    done = shell(f"{HOLDFAST} {verb} | head -1", full)
    assert done.stderr == ""
    assert done.stdout.strip()


def test_output_that_cannot_be_written_is_an_error_and_no_traceback(full: Path) -> None:
    for verb in ("list --all", "list --all --json"):
        done = shell(f"{HOLDFAST} {verb} > /dev/full", full)
        assert done.returncode != 0
        assert "Traceback" not in done.stderr


def test_a_dry_run_of_migrate_makes_no_store_whatever_the_app(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import holdfast\ndef make(url):\n    return holdfast.App(url)\n")
    for option in ("--dry-run", "--sql"):
        command("migrate", option, "--app", "app.py:make", cwd=tmp_path)
    assert not list(tmp_path.glob("*.db*"))


FLOW: dict[str, Any] = {
    "id": "flow", "variables": {"n": 0},
    "stages": [
        {"id": "one", "type": "call", "function": "note", "with": {"what": "one"}},
        {"id": "each", "type": "for_each", "items_from": "input.items",
         "body": {"type": "effect", "function": "note", "with": {"what": "{{ item }}"}, "compensation": "back"}},
        {"id": "grow", "type": "loop_until", "max_iterations": 3,
         "body": {"type": "call", "function": "inc", "with": {"n": "{{ n }}"}, "output_key": "n"}},
        {"id": "put", "type": "set", "values": {"x": 1}},
        {"id": "nap", "type": "sleep", "seconds": 0},
        {"id": "hold", "type": "call", "function": "hold"},
        {"id": "ask", "type": "ask", "prompt": "Well?", "fields": {"ok": "bool"}, "output_key": "a"},
    ],
}  # fmt: skip

APP = """
import os, time
import holdfast

def note(what):
    return what

def back(result, what):
    pass

def inc(n):
    return n + 1

def hold():
    while not os.path.exists("go"):
        time.sleep(0.01)

def make(url):
    app = holdfast.App(url)
    for fn in (note, inc, hold):
        app.function(fn)
    app.undo(back)
    return app
"""


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    (tmp_path / "flow.json").write_text(json.dumps(FLOW))
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast]\napp = "app.py:make"\n')
    return tmp_path


ARGUMENTS = ("run", "flow.json", "-i", 'items=["a", "b", "c"]', "--run-id", "r")


def test_what_a_run_does_is_told_while_it_does_it(flow: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *ARGUMENTS], cwd=flow, env=environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    said = [process.stdout.readline().strip() for _ in range(2)]
    assert said == ["✓ one", "✓ each  3 done"], "and the run is still held up in a later stage"
    (flow / "go").touch()
    rest = process.stdout.read()
    process.stdout.close()
    assert process.wait(240) == 3
    assert "✓ hold" in rest
    assert rest.count("✓ one") == 0


def test_a_run_that_is_taken_up_is_not_told_from_its_beginning(flow: Path) -> None:
    (flow / "go").touch()
    assert command(*ARGUMENTS, cwd=flow).code == 3
    again = command(*ARGUMENTS, cwd=flow)
    assert (again.code, "✓" in again.out) == (3, False)


@pytest.mark.parametrize("stage", ["one", "each", "grow", "put", "nap", "hold", "ask"])
def test_a_rollback_to_a_stage_goes_to_before_the_whole_of_it(flow: Path, stage: str) -> None:
    (flow / "go").touch()
    command(*ARGUMENTS, cwd=flow)
    plan = command("rollback", "r", "--to", stage, "--dry-run", "--json", cwd=flow).data["plan"]
    with holdfast.open(f"sqlite:{flow / 'holdfast.db'}") as store:
        turns = [entry.position for entry in store.journal("r") if entry.kind == "turn"]
    number = [one["id"] for one in FLOW["stages"]].index(stage)
    rounds = number if number < 3 else number + 2  # the loop goes three rounds
    assert plan["to"] == (turns[rounds - 1] if rounds else 1)
    assert len(plan["undo"]) == (3 if number <= 1 else 0)
    assert plan["calls"][-1].endswith("/ask#1")


def test_check_knows_what_runs_carry_and_a_changed_definition_has_diverged(flow: Path) -> None:
    (flow / "go").touch()
    command(*ARGUMENTS, cwd=flow)
    assert command("check", "--all", "--json", cwd=flow).data["ok"] == 1
    changed = {**FLOW, "max_iterations": 50}
    (flow / "app.py").write_text(APP.replace("return app", f"app.graph({changed!r})\n    return app"))
    done = command("check", "--all", "--json", cwd=flow)
    assert (done.code, done.data["diverged"]) == (5, 1)


INTERRUPTED_AT_IMPORT = """
import os, runpy, signal, sys
wanted, seen = int(sys.argv.pop(1)), -1
def count(event, arguments):
    global seen
    if event == "import" and (seen >= 0 or arguments[0] == "holdfast.cli.main"):
        seen += 1
        if seen == wanted:
            os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(count)
runpy.run_module("holdfast", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("number", [0, 1, 2, 10, 40, 100, 200])
def test_ctrl_c_at_any_moment_is_no_traceback(flow: Path, number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT_IMPORT, str(number), *ARGUMENTS], cwd=flow, env=environment(),
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert "holdfast: stopped." in done.stderr
    assert done.returncode == 130


def test_ctrl_c_while_a_run_is_followed_is_no_traceback(flow: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *ARGUMENTS], cwd=flow, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=240)
    assert "Traceback" not in err
    assert process.returncode == 130

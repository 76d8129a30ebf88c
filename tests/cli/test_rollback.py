"""`holdfast rollback`: the plan, the question, and who carries it out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import holdfast
from tests.cli.processes import Done, environment
from tests.cli.processes import command as run
from tests.cli.terminal import CTRL_C, Terminal

MAKE = "tests.cli.shop:make"


def paid(app: holdfast.App) -> None:
    app.start("refund", "A-17", run_id="order-17")
    app.answer("order-17", {"approve": True, "note": ""})


def rollback(folder: Path, url: str, *arguments: str, **env: str) -> Done:
    return run("rollback", "order-17", *arguments, "--store", url, cwd=folder, **env)


def test_the_plan_is_shown_and_nothing_is_done(app: holdfast.App, tmp_path: Path, url: str) -> None:
    paid(app)
    before = app.store.journal("order-17")
    done = rollback(tmp_path, url, "--to", "2", "--dry-run")
    assert done.code == 0, done.err
    assert "undo" in done.out
    assert "take_back('receipt of A-17', 'A-17')" in done.out
    assert "run again" in done.out
    data = rollback(tmp_path, url, "--to", "pay#1", "--dry-run", "--json").data
    assert [each["tool"] for each in data["plan"]["undo"]] == ["pay"]
    assert data["plan"]["problems"] == []
    assert app.store.journal("order-17") == before


def test_the_plan_names_the_forks_that_keep_undone_results(app: holdfast.App, tmp_path: Path, url: str) -> None:
    paid(app)
    assert "undone results" not in rollback(tmp_path, url, "--to", "2", "--dry-run").out
    app.fork("order-17", "order-17b", enqueue=True)
    done = rollback(tmp_path, url, "--to", "2", "--dry-run")
    assert (done.code, "1 fork keeps the undone results: 'order-17b'\n" in done.out) == (0, True), done.out
    assert rollback(tmp_path, url, "--to", "2", "--dry-run", "--json").data["plan"]["forks"] == ["order-17b"]
    assert "order-17b" in rollback(tmp_path, url, "--to", "2", "--yes").out


def test_without_a_terminal_it_needs_yes(app: holdfast.App, tmp_path: Path, url: str) -> None:
    paid(app)
    done = rollback(tmp_path, url, "--to", "2")
    assert done.code == 2
    assert "--yes" in done.err
    assert app.handle("order-17").status() == "waiting"


def test_with_the_app_it_is_carried_out_and_the_run_goes_on(app: holdfast.App, tmp_path: Path, url: str) -> None:
    paid(app)
    notes = tmp_path / "notes"
    done = rollback(tmp_path, url, "--to", "ask#1", "--yes", "--app", MAKE, "--json", SHOP_NOTES=str(notes))
    assert done.code == 0, done.err
    assert notes.read_text() == "take back A-17\n"
    assert (done.data["status"], done.data["gates"][0]["prompt"]) == ("waiting", "Refund this order?")


def test_without_the_app_it_is_begun_and_a_worker_carries_it_out(app: holdfast.App, tmp_path: Path, url: str) -> None:
    paid(app)
    done = rollback(tmp_path, url, "--to", "ask#1", "--yes", "--by", "ana")
    assert done.code == 0, done.err
    assert "left for a worker" in done.out
    assert app.handle("order-17").status() == "ready"
    notes = tmp_path / "notes"
    worker = run("worker", "--until-idle", "--store", url, "--app", MAKE, cwd=tmp_path, SHOP_NOTES=str(notes))
    assert worker.code == 0, worker.err
    assert notes.read_text() == "take back A-17\n"
    assert [gate.prompt for gate in app.gates("order-17")] == ["Refund this order?"]


def test_what_cannot_be_undone_is_a_conflict_unless_forced(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("mail", "ana", run_id="order-17")
    for more in ((), ("--dry-run",), ("--dry-run", "--json"), ("--yes",)):
        done = rollback(tmp_path, url, "--to", "1", *more)
        assert done.code == 5, more
    assert "cannot be undone" in done.err
    assert rollback(tmp_path, url, "--to", "1", "--yes", "--force", "--app", MAKE).code == 0


def test_a_rollback_that_was_begun_is_taken_up(app: holdfast.App, tmp_path: Path, url: str) -> None:
    paid(app)
    assert rollback(tmp_path, url).code == 2  # none was begun
    assert rollback(tmp_path, url, "--to", "ask#1", "--yes").code == 0
    notes = tmp_path / "notes"
    done = rollback(tmp_path, url, "--app", MAKE, "--json", SHOP_NOTES=str(notes))
    assert (done.code, done.data["status"]) == (0, "waiting")
    assert notes.read_text() == "take back A-17\n"


def test_a_place_that_is_not_there_is_told(app: holdfast.App, tmp_path: Path, url: str) -> None:
    paid(app)
    assert rollback(tmp_path, url, "--to", "no-such-call#1", "--yes").code == 4
    assert rollback(tmp_path, url, "--to", "900", "--yes").code == 2


def test_in_a_terminal_it_asks(app: holdfast.App, tmp_path: Path, url: str) -> None:
    paid(app)
    arguments = ("rollback", "order-17", "--to", "ask#1", "--store", url)
    with Terminal(*arguments, cwd=tmp_path) as terminal:
        terminal.expect("Roll order-17 back to position")
        terminal.send("n\n")
        terminal.expect("nothing was done")
        assert terminal.wait() == 0
    with Terminal(*arguments, cwd=tmp_path) as terminal:
        terminal.expect("Roll order-17 back to position")
        terminal.send(CTRL_C)
        assert terminal.wait() == 130
    assert app.handle("order-17").status() == "waiting"
    with Terminal(*arguments, cwd=tmp_path) as terminal:
        terminal.expect("Roll order-17 back to position")
        terminal.send("y\n")
        terminal.expect("order-17 is ready")
        assert terminal.wait() == 0


BEGIN_AND_DIE = """
import os, sys, holdfast
from holdfast.store.group_commit import Committer
commit = Committer.commit

def commit_and_die(self, given):
    commit(self, given)
    os._exit(9)

Committer.commit = commit_and_die
holdfast.App(sys.argv[1]).rollback("order-17", to="ask#1", enqueue=True)
"""


def test_a_process_killed_just_after_it_began_a_rollback_leaves_it_to_a_worker(
    app: holdfast.App, tmp_path: Path, url: str
) -> None:
    paid(app)
    begun = subprocess.run([sys.executable, "-c", BEGIN_AND_DIE, url], cwd=tmp_path, env=environment(), check=False)
    assert begun.returncode == 9
    assert app.handle("order-17").status() == "rolling_back"
    notes = tmp_path / "notes"
    done = run("worker", "--until-idle", "--store", url, "--app", MAKE, cwd=tmp_path, SHOP_NOTES=str(notes))
    assert done.code == 0, done.err
    assert notes.read_text() == "take back A-17\n"
    assert [gate.prompt for gate in app.gates("order-17")] == ["Refund this order?"]


def test_a_cancelled_run_goes_on_after_a_rollback_and_that_is_said(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("refund", "A-17", run_id="order-17")
    app.cancel("order-17")
    done = run("rollback", "order-17", "--to", "ask", "--yes", "--store", url, "--app", MAKE, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "order-17 is cancelled; after the rollback it continues" in done.out
    assert app.handle("order-17").status() == "waiting"
    assert "continues only after a rollback" in " ".join(run("cancel", "--help", cwd=tmp_path).out.split())

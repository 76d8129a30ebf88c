"""`holdfast prune`: the plan, the question, what goes, and a store that is sound wherever it was killed."""

from __future__ import annotations

import datetime as dt
import subprocess
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.testing import ManualClock
from tests.cli.processes import command as run
from tests.cli.processes import environment
from tests.cli.terminal import Terminal
from tests.fork_server import COMMAND, start


def filled(store: holdfast.Store, runs: int, checkpoints: int = 6) -> None:
    for number in range(runs):
        for turn in range(checkpoints):
            store.save(f"run-{number:03}", {"turn": turn, "text": f"{number} {turn} " * 600}, metadata={})


def test_the_plan_names_bytes_for_each_run_and_nothing_is_removed(app: holdfast.App, tmp_path: Path, url: str) -> None:
    filled(app.store, 3)
    done = run("prune", "--all", "--keep-last", "2", "--dry-run", "--store", url, "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert [(each["run_id"], each["checkpoints_removed"], each["checkpoints_kept"]) for each in done.data["runs"]] == [
        (f"run-{number:03}", 4, 2) for number in range(3)
    ]
    assert done.data["bytes_freed"] == sum(each["bytes_freed"] for each in done.data["runs"]) > 0
    text = run("prune", "--all", "--keep-last", "2", "--dry-run", "--store", url, cwd=tmp_path)
    assert "would free about" in text.out
    assert app.store.stats().checkpoints == 18


def test_without_a_terminal_it_needs_yes_and_then_frees_what_it_said(
    app: holdfast.App, tmp_path: Path, url: str
) -> None:
    filled(app.store, 3)
    arguments = ("prune", "--all", "--keep-last", "2", "--store", url)
    assert run(*arguments, cwd=tmp_path).code == 2
    planned = run(*arguments, "--dry-run", "--json", cwd=tmp_path).data["bytes_freed"]
    done = run(*arguments, "--yes", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.data["bytes_freed"] == planned
    assert app.store.stats().checkpoints == 6
    assert app.store.verify().ok
    assert "nothing to remove" in run(*arguments, "--yes", cwd=tmp_path).out


def test_only_the_named_runs_are_pruned(app: holdfast.App, tmp_path: Path, url: str) -> None:
    filled(app.store, 3)
    assert run("prune", "run-001", "--keep-last", "1", "--yes", "--store", url, cwd=tmp_path).code == 0
    assert [len(list(app.store.history(f"run-{n:03}"))) for n in range(3)] == [6, 1, 6]


def test_the_journal_goes_as_well_if_wanted_and_the_run_can_still_be_resumed(
    app: holdfast.App, tmp_path: Path, url: str
) -> None:
    app.start("agent", 8, run_id="a")
    before = len(app.store.journal("a"))
    arguments = ("prune", "a", "--keep-last", "1", "--journal", "--yes", "--store", url, "--json")
    done = run(*arguments, cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.data["runs"][0]["entries_removed"] > 0
    assert len(app.store.journal("a")) < before
    assert app.handle("a").result(timeout=240) == 8


@pytest.mark.parametrize(
    "arguments",
    [
        ("--all",), ("--keep-last", "1"), ("--all", "--keep-last", "0"), ("--all", "--delete"),
        ("--all", "--delete", "--older-than", "soon"), ("x", "--all", "--keep-last", "1"),
        ("--all", "--delete", "--older-than", "1d", "--keep-last", "1"),
        ("--all", "--checkpoint", "c"), ("x", "y", "--checkpoint", "c"), ("x", "--lane", "a", "--keep-last", "1"),
        ("x", "--checkpoint", "c", "--keep-last", "1"), ("x", "--checkpoint", "c", "--fold"),
    ],
)  # fmt: skip
def test_what_is_not_said_clearly_is_wrong_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    holdfast.open(f"sqlite:{tmp_path / 'holdfast.db'}").close()
    assert run("prune", *arguments, "--yes", cwd=tmp_path).code == 2


def test_whole_runs_go_if_they_have_ended_long_ago(tmp_path: Path, url: str) -> None:
    scheme, _, path = url.partition(":")
    place = f"{scheme}:{tmp_path / path}"
    long_ago = int((dt.datetime.now(dt.UTC) - dt.timedelta(days=100)).timestamp() * 1e6)
    with holdfast.open(place, clock=ManualClock(long_ago)) as store:
        for name, status in (("old-done", "completed"), ("old-waits", "waiting"), ("old-failed", "failed")):
            store.save(name, {"text": "x" * 9000}, status=status)
    with holdfast.open(place) as store:
        store.save("new-done", {}, status="completed")
        arguments = ("prune", "--all", "--delete", "--older-than", "90d", "--store", url, "--json")
        plan = run(*arguments, "--dry-run", cwd=tmp_path)
        assert [each["run_id"] for each in plan.data["runs"]] == ["old-done", "old-failed"]
        assert plan.data["bytes_freed"] > 0
        done = run(*arguments, "--yes", cwd=tmp_path)
        assert [each["deleted"] for each in done.data["runs"]] == [True, True]
        assert sorted(info.run_id for info in store.runs()) == ["new-done", "old-waits"]
        assert store.verify().ok


def test_in_a_terminal_it_asks_and_shows_whole_ids_and_statuses(app: holdfast.App, tmp_path: Path, url: str) -> None:
    name = "a-run-with-a-rather-long-name-that-needs-more-than-half-of-the-columns-there-are"
    for turn in range(3):
        app.store.save(name, {"turn": turn}, status="completed")
    with Terminal("prune", "--all", "--keep-last", "1", "--store", url, cwd=tmp_path, columns=80) as terminal:
        terminal.expect("Remove this from 1 runs")
        terminal.send("y\n")
        terminal.expect("freed")
        assert terminal.wait() == 0
    assert f"{name}\n  completed" in terminal.text
    assert len(list(app.store.history(name))) == 1


def test_one_checkpoint_is_removed_if_nothing_needs_it(app: holdfast.App, tmp_path: Path, url: str) -> None:
    for turn in range(3):
        app.store.save("run", {"turn": turn}, checkpoint_id=f"c{turn}", lane="side" if turn == 2 else "")
    app.store.save("run", {"turn": 3}, checkpoint_id="c3", metadata={"holdfast": {"spans": [], "needs": ["c0"]}})
    base = ("--store", url, "--json")
    plan = run("prune", "run", "--checkpoint", "c1", "--dry-run", *base, cwd=tmp_path)
    assert (plan.data["runs"][0]["checkpoints_removed"], plan.data["bytes_freed"] > 0) == (1, True)
    done = run("prune", "run", "--checkpoint", "c1", "--yes", *base, cwd=tmp_path)
    assert (done.code, done.data["bytes_freed"]) == (0, plan.data["bytes_freed"])
    assert run("prune", "run", "--checkpoint", "c2", "--lane", "side", "--yes", *base, cwd=tmp_path).code == 0
    refused = run("prune", "run", "--checkpoint", "c0", "--yes", *base, cwd=tmp_path)
    assert refused.code == 1
    assert "checkpoint 'c3' needs it" in refused.data["runs"][0]["problem"]
    assert [info.checkpoint_id for info in app.store.history("run")] == ["c0", "c3"]


def test_what_is_kept_beyond_the_newest_is_counted_with_the_reason(app: holdfast.App, tmp_path: Path, url: str) -> None:
    store = app.store
    for turn in range(3):
        store.save("effect", {"turn": turn}, checkpoint_id=f"e{turn}")
    store.mark_intent("effect", "mail")
    for turn in range(3):
        store.save("effect", {"turn": turn}, checkpoint_id=f"f{turn}")
    for turn in range(3):
        store.save("ended", {"turn": turn}, status="completed" if turn == 1 else "waiting")
    for turn in range(3):
        store.save("needs", {"turn": turn}, checkpoint_id=f"n{turn}")
    store.save("needs", {}, metadata={"holdfast": {"spans": [], "needs": ["n0"]}})
    store.save("needs", {})
    arguments = ("prune", "--all", "--keep-last", "1", "--yes", "--store", url)
    for more in ("--dry-run", "--yes"):
        done = run(*arguments, more, "--json", cwd=tmp_path)
        assert {line["run_id"]: line["kept_more"] for line in done.data["runs"]} == {
            "effect": {"effect": 1}, "ended": {"ended": 1}, "needs": {"resume": 1, "needed": 1},
        }  # fmt: skip
        assert {line["run_id"]: line["checkpoints_kept"] for line in done.data["runs"]} == {
            "effect": 2, "ended": 2, "needs": 3,
        }  # fmt: skip
    text = run(*arguments, cwd=tmp_path)
    assert text.code == 0
    assert "nothing to remove" in text.out
    assert "besides the newest 1 of each lane, 4 more checkpoints were kept in 3 runs:" in text.out
    assert "1 from before an effect in doubt" in text.out
    assert max(map(len, text.out.splitlines())) <= 80


def test_the_plan_counts_what_runs_of_a_family_free_together(app: holdfast.App, tmp_path: Path, url: str) -> None:
    filled(app.store, 1)
    app.store.copy("run-000", "copy")
    arguments = ("prune", "--all", "--keep-last", "1", "--store", url, "--json")
    planned = run(*arguments, "--dry-run", cwd=tmp_path).data["bytes_freed"]
    before = app.store.stats().state_bytes
    assert run(*arguments, "--yes", cwd=tmp_path).data["bytes_freed"] == planned
    assert app.store.stats().state_bytes == before - planned


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.06, 0.15, 0.4])
def test_killed_at_any_moment_it_leaves_a_sound_store_and_can_be_begun_again(
    app: holdfast.App, tmp_path: Path, url: str, after_s: float
) -> None:
    filled(app.store, 40, 5)
    arguments = ["prune", "--all", "--keep-last", "1", "--yes", "--store", url]
    quiet = subprocess.DEVNULL
    process = start(COMMAND, *arguments, cwd=tmp_path, env=environment(), stdout=quiet, stderr=quiet)
    until = time.monotonic() + 30
    while process.poll() is None and app.store.stats().checkpoints == 200 and time.monotonic() < until:
        time.sleep(0.001)  # until it has removed something
    time.sleep(after_s)
    process.close()
    with holdfast.open(app.store.url) as store:
        assert store.verify().problems == []
        states = [store.load(f"run-{number:03}") for number in range(40)]
        assert [found.state["turn"] for found in states if found is not None] == [4] * 40
        assert run(*arguments, cwd=tmp_path).code == 0
        assert store.stats().checkpoints == 40
        assert store.verify().unused_chunks == 0

"""`holdfast delete`: one run is removed, and only one that is safe to remove."""

from __future__ import annotations

from pathlib import Path

import holdfast
from holdfast.model.commit import Commit, Committed, NewMessage
from tests.cli.processes import Done
from tests.cli.processes import command as run
from tests.cli.terminal import Terminal


def delete(folder: Path, url: str, *arguments: str) -> Done:
    return run("delete", *arguments, "--store", url, cwd=folder)


def ended(app: holdfast.App, run_id: str) -> None:
    app.start("refund", "A-17", run_id=run_id)
    app.answer(run_id, {"approve": False, "note": ""})


def ids(app: holdfast.App) -> set[str]:
    return {info.run_id for info in app.runs()}


def test_one_ended_run_is_removed_and_the_others_stay(app: holdfast.App, tmp_path: Path, url: str) -> None:
    ended(app, "order-17")
    ended(app, "order-18")
    dry = delete(tmp_path, url, "order-17", "--dry-run", "--json")
    assert (dry.code, dry.data["deleted"], dry.data["problems"]) == (0, False, [])
    assert ids(app) == {"order-17", "order-18"}
    assert delete(tmp_path, url, "order-17").code == 2, "nobody can be asked"
    assert ids(app) == {"order-17", "order-18"}
    done = delete(tmp_path, url, "order-17", "--yes")
    assert done.code == 0, done.err
    entries = dry.data["entries_removed"]
    assert entries > 2
    assert f"deleted order-17: {dry.data['checkpoints_removed']} checkpoints, {entries} journal entries" in done.out
    assert ids(app) == {"order-18"}
    assert delete(tmp_path, url, "order-17", "--yes").code == 4
    assert app.store.verify().problems == []


def test_a_terminal_is_asked(app: holdfast.App, tmp_path: Path, url: str) -> None:
    ended(app, "order-17")
    for keys, left in (("n\n", {"order-17"}), ("y\n", set())):
        with Terminal("delete", "order-17", "--store", url, cwd=tmp_path) as terminal:
            terminal.expect("Delete run order-17? This cannot be undone. [y/N]: ")
            terminal.send(keys)
            assert terminal.wait() == 0
        assert ids(app) == left


def test_a_run_that_has_not_ended_is_refused_unless_forced(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("refund", "A-17", run_id="order-17")
    done = delete(tmp_path, url, "order-17", "--yes")
    assert done.code == 5
    assert "has not ended (waiting); cancel it first" in done.err
    assert delete(tmp_path, url, "order-17", "--dry-run").code == 5
    assert ids(app) == {"order-17"}
    assert delete(tmp_path, url, "order-17", "--yes", "--force").code == 0
    assert ids(app) == set()


def test_a_run_that_a_living_process_holds_is_never_deleted(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.store.save("own", {})
    claim = app.store.claim("own", owner="me", lease=600)
    assert claim is not None
    done = delete(tmp_path, url, "own", "--yes", "--force")
    assert done.code == 5
    assert "'me'" in done.err
    claim.release()
    assert delete(tmp_path, url, "own", "--yes", "--force").code == 0


def test_a_run_whose_effects_a_fork_may_still_take_is_refused(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("refund", "A-17", run_id="order-17")
    app.answer("order-17", {"approve": True, "note": ""})
    app.answer("order-17", {"content": True})
    app.fork("order-17", "fork", at="ask#1")
    done = delete(tmp_path, url, "order-17", "--yes")
    assert done.code == 5
    assert "run 'fork' may reuse the outcomes of its effects" in done.err
    app.cancel("fork")
    assert delete(tmp_path, url, "order-17", "--yes").code == 5, "a rollback may take the fork on"
    assert delete(tmp_path, url, "order-17", "--yes", "--force").code == 0
    assert app.store.verify().problems == []
    assert app.store.load("fork") is not None, "what the two shared is kept"


def test_a_run_with_an_effect_in_doubt_is_refused(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.store.save("own", {})
    claim = app.store.claim("own", owner="me", lease=600)
    assert claim is not None
    claim.mark_intent("pay", tool="pay")
    claim.complete()
    done = delete(tmp_path, url, "own", "--yes")
    assert done.code == 5
    assert "effects in doubt are recorded only in its ledger: 'pay'" in done.err


def test_a_child_is_not_deleted_before_its_parent_has_ended(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("family", run_id="parent")
    (child,) = ids(app) - {"parent"}
    both = delete(tmp_path, url, child, "--dry-run", "--json")
    assert "it is a child of run 'parent', which has not ended" in both.data["problems"]
    assert f"its child run {child!r} has not ended" in delete(tmp_path, url, "parent", "--dry-run").out
    app.answer(child, {"approve": False, "note": ""})
    assert app.handle("parent").result(timeout=240) == {"paid": None}
    done = delete(tmp_path, url, "parent", "--yes", "--json")
    assert (done.code, done.data["children"]) == (0, [child])
    assert delete(tmp_path, url, child, "--yes").code == 0


def test_a_run_with_a_message_that_was_not_delivered_is_refused(app: holdfast.App, tmp_path: Path, url: str) -> None:
    ended(app, "order-17")
    message = NewMessage("other", "event", "news", "key", b"\x00\xa4text")
    assert isinstance(app.store.port.commit([Commit("order-17", b"12345678", send=(message,))])[0], Committed)
    done = delete(tmp_path, url, "order-17", "--yes")
    assert done.code == 5
    assert "its message to run 'other' is not delivered yet" in done.err

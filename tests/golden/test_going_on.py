"""Runs that earlier versions have stored go on with this one: answered, woken, taken over, rolled back, forked."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

import holdfast
from holdfast import App, Keep
from holdfast.testing import ManualClock
from tests.golden.conftest import HOME, VERSIONS
from tests.golden.flows import HOUR, World, register
from tests.golden.stores import Opened
from tests.golden.workflow_runs import APPROVAL, NESTED


def test_a_waiting_run_is_answered_and_completes(golden: Opened) -> None:
    handle = golden.app.answer("review-waiting", APPROVAL, by="ana")
    golden.app.answer("review-waiting", True, by="ben")
    result = handle.result(240)
    assert (result["receipt"], result["sent"]) == ({"receipt": "waiting-70"}, True)
    assert result["answer"] == {**APPROVAL, "note": "", "extra": None, "share": None, "tags": None}
    assert golden.world.calls == [("charge", "waiting")]


def test_a_wrong_answer_is_refused_by_the_stored_form(golden: Opened) -> None:
    with pytest.raises(holdfast.InvalidAnswer) as caught:
        golden.app.answer("review-waiting", {"ok": 1, "tone": "loud", "copies": 10, "tags": []}, by="ana")
    assert {problem.split()[0].rstrip(":") for problem in caught.value.problems} == {"ok", "tone", "copies", "tags"}


def test_an_answer_in_the_inbox_is_taken(golden: Opened) -> None:
    handle = golden.app.resume("review-ready")
    assert (handle.status(), golden.world.calls) == ("waiting", [("charge", "ready")])


def test_a_run_that_was_only_started_and_one_that_was_paused_go_on(golden: Opened) -> None:
    for name in ("review-started", "review-paused"):
        assert golden.app.resume(name).status() == "waiting"
        assert golden.app.gates(name)[0].prompt == "Approve?"


def test_a_recorded_effect_is_undone_by_a_rollback_and_performed_anew(golden: Opened) -> None:
    assert [effect.key for effect in golden.app.rollback_plan("review-second", to="charge#1").undo]
    golden.app.rollback("review-second", to="charge#1", by="ana")
    assert golden.world.calls == [("refund", "second"), ("charge", "second")]
    assert golden.app.answer("review-second", True, by="ana").result(240)["receipt"] == {"receipt": "second-60"}


def test_a_rollback_to_a_stored_checkpoint(golden: Opened) -> None:
    (paid,) = [info for info in golden.store.history("review-second") if info.metadata.get("stage") == "paid"]
    golden.app.rollback("review-second", to=paid.checkpoint_id, by="ana")
    assert golden.app.answer("review-second", True, by="ana").result(240)["sent"] is True
    assert golden.world.calls == []


@pytest.mark.parametrize("name", ["rollback-begun", "rollback-stuck"])
def test_a_rollback_that_was_begun_is_taken_up(golden: Opened, name: str) -> None:
    golden.app.rollback(name)
    assert golden.world.calls == [("refund", name), ("charge", name)]
    assert golden.app.answer(name, True, by="ana").result(240)["sent"] is True


def test_a_run_that_was_rolled_back_goes_on(golden: Opened) -> None:
    assert golden.app.answer("rolled-back", True, by="ana").result(240)["sent"] is True
    assert golden.app.send("rollback-forced", "go", 1, by="ana").result(240) == 1
    assert golden.world.calls == []


def test_a_fork_takes_over_what_its_family_has_done(golden: Opened) -> None:
    golden.app.fork("review-second", "forked now", at="charge#1")
    for name in ("forked now", "fork-reuse", "fork-perform"):
        assert golden.app.answer(name, False, by="ana").result(240)["receipt"] == {"receipt": "second-60"}
    assert golden.world.calls == []


def test_a_fork_that_asks_about_an_effect_is_answered(golden: Opened) -> None:
    (gate,) = golden.app.gates("fork-ask")
    assert gate.purpose == "in_doubt"
    golden.app.answer("fork-ask", {"outcome": "did not happen"}, by="ana")
    assert golden.world.calls == [("charge", "second")]


def test_an_effect_in_doubt_is_settled_by_an_answer(golden: Opened) -> None:
    handle = golden.app.answer("effects-in-doubt", {"outcome": "did not happen"}, by="ana")
    assert handle.result(240)[-3:] == ["EffectInDoubt", True, "unknown"]
    assert golden.world.calls == [("unknown",)]


def test_effects_of_every_kind_are_not_performed_again(golden: Opened) -> None:
    result = golden.app.answer("effects", True, by="ana").result(240)
    assert result[:8] == [
        {"receipt": "A-1"}, "StepFailed", "EffectFailed", "EffectFailed", "E", {"by": "hand"}, {"receipt": "C-3"},
        "retried",
    ]  # fmt: skip
    assert golden.world.calls == [("unknown",)]


def test_a_run_of_a_killed_process_is_taken_over_and_its_message_delivered(golden: Opened) -> None:
    golden.clock.advance(60)  # PostgreSQL cannot see that the process is dead: its lease has to end
    golden.app.worker().run(until_idle=True)
    assert golden.app.handle("killed").result(240) == "killed, and it happened"
    assert golden.app.handle("event-of-the-killed").result(240) == {"parcel": 3}
    assert ("killed",) not in golden.world.calls


def test_a_claim_that_ended_is_taken(golden: Opened) -> None:
    golden.clock.advance(61)
    claim = golden.store.claim("held", "another")
    assert claim is not None
    claim.complete()


def test_a_transaction_that_was_committed_is_not_repeated(golden: Opened) -> None:
    assert golden.app.resume("transaction-cut").result(240) == 1
    with contextlib.closing(golden.world.shop()) as shop:
        assert shop.execute("SELECT name FROM bookings ORDER BY name").fetchall() == [("ana",), ("ben",)]
    assert golden.world.calls == []


def test_a_sleeping_run_wakes_when_its_time_has_come(golden: Opened) -> None:
    handle = golden.app.handle("sleeping")
    golden.app.worker().run(until_idle=True)
    assert handle.status() == "waiting"
    for days in (1, 366):
        golden.clock.advance(24 * HOUR * days)
        golden.app.worker().run(until_idle=True)
    assert handle.result(240) >= 365


def test_a_failed_attempt_is_tried_again_when_its_time_has_come(golden: Opened) -> None:
    golden.clock.advance(24 * HOUR)
    assert golden.app.resume("retrying").result(240) == "R"
    assert golden.world.calls == [("flaky", "R")]


def test_a_gate_expires(golden: Opened) -> None:
    golden.clock.advance(24 * HOUR)
    assert golden.app.resume("expiring").result(240) == [{"ok": False}, {"n": 7}, "ask#3"]


def test_an_event_wakes_a_run(golden: Opened) -> None:
    golden.app.send("event-waiting", "another", "again", by="ana", key="once")
    assert golden.app.send("event-waiting", "shipped", 1, by="ana").result(240) == 1


@pytest.mark.parametrize("name", ["looping", "looping-pruned"])
def test_a_loop_goes_on_in_its_turn(golden: Opened, name: str) -> None:
    result = golden.app.send(name, "go", "now", by="ana").result(240)
    assert result == {"items": 5, "total": 30, "event": "now"}
    assert golden.world.calls == [("turn", 3), ("turn", 4), ("turn", 5)]
    golden.store.prune(name, Keep(last=1, journal=True))
    assert golden.store.verify().ok


def test_a_loop_that_was_interrupted_goes_on(golden: Opened) -> None:
    assert golden.app.resume("looping-interrupted").status() == "waiting"
    assert golden.app.send("looping-interrupted", "go", 1, by="ana").result(240)["items"] == 3


def test_a_parent_goes_on_when_its_child_ends(golden: Opened) -> None:
    golden.app.answer("parent-waiting/child:asking#2", "done", by="ana")
    result = golden.app.handle("parent-waiting").result(240)
    assert result == ["FIRST", "ChildFailed", "parent-waiting/child:asking#1", "done"]
    assert golden.app.resume("parent-waiting/child:asking#1").status() == "waiting"


def test_branches_go_on_side_by_side(golden: Opened) -> None:
    golden.app.answer("parallel-waiting", {"ok": True}, by="ana")
    result = golden.app.send("parallel-waiting", "go", 1, by="ana").result(240)
    assert result == ([1, 2, 3], [[4, 1], {"ok": True}])


def test_a_run_that_diverged_goes_on_with_the_right_code(golden: Opened) -> None:
    assert golden.app.resume("diverged").result(240) == (50, "after it diverged")


def test_refusals_are_the_same_when_they_are_replayed(golden: Opened) -> None:
    result = golden.app.answer("refusals", {"count": 1, "when": "2026-01-01"}, by="ana").result(240)
    assert result[1:4] == ["KeyReused", "InvalidInput", "InvalidInput"]
    assert golden.world.calls == []


def test_declared_runs_go_on_by_the_definition_they_carry(golden: Opened) -> None:
    app = golden.app
    assert app.resume("graph-breakpoint").status() == "waiting"
    result = app.answer("graph-breakpoint", {"ok": True, "why": ""}, by="ana").result(240)
    assert result == {"receipt": {"receipt": "breakpoint-3"}, "nested": True}
    app.answer(f"graph-nested{NESTED}", {"ok": False}, by="ana")
    assert app.handle("graph-nested").status() == "waiting"
    for name in ("graph-started-elsewhere", "graph-defined-later"):
        assert app.resume(name).status() == "waiting"
        assert app.send(name, "go", 1, by="ana").result(240)["event"] == 1
    assert golden.world.calls == []


def test_a_declared_run_is_known_by_the_definition_it_carries(golden: Opened) -> None:
    with App(golden.store) as other:
        assert other.adopt("graph-migrated")
        assert other.send("graph-migrated", "go", 1, by="ana").result(240)["event"] == 1


def test_states_are_saved_forked_and_pruned_further(golden: Opened) -> None:
    store = golden.store
    loaded = store.load("states", checkpoint_id="by-name")
    assert loaded is not None
    store.save("states", {**loaded.state, "more": 1})
    store.fork("states", "forked now", checkpoint_id="by-name")
    store.copy("lanes", "copied now")
    for name in ("states", "states-fork", "forked now", "lanes"):
        store.prune(name, Keep(last=1))
    store.delete("states-copy")
    report = store.verify()
    assert (report.problems, report.unused_chunks) == ([], 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_archived_run_goes_on(version: str) -> None:
    data = (HOME / version / "archives" / "looping-pruned.holdfast").read_bytes()
    with holdfast.open("memory:", clock=ManualClock()) as store, App(store) as app:
        world = World(HOME)
        register(app, world)
        store.import_run(data, run_id="imported")
        assert app.send("imported", "go", "now", by="ana").result(240)["items"] == 5


def test_shop_databases_are_ordinary_sqlite_files(golden: Opened) -> None:
    with contextlib.closing(sqlite3.connect(golden.world.folder / "shop.db")) as shop:
        assert shop.execute("PRAGMA integrity_check").fetchone() == ("ok",)

"""How often a call goes to the server and back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast.model.commit import (
    OUTSIDER,
    Commit,
    Committed,
    Guard,
    NewCheckpoint,
    NewEffect,
    NewEntry,
    NewGate,
    NewItem,
    NewRun,
    Reason,
    Timer,
)
from holdfast.model.rows import AttachmentRow, CheckpointRow, EffectRow, GateRow, RunRow, TimerRow
from holdfast.store.port import CheckpointQuery
from tests.store.postgres.heard import Heard
from tests.store.postgres.proxy import Proxy
from tests.store.postgres.server import newest
from tests.store.postgres.shared_servers import new_schema, shared


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    found = Proxy(shared(newest()).port)
    yield found
    found.close()


@pytest.fixture
def store(proxy: Proxy) -> Iterator[holdfast.Store]:
    with holdfast.open(shared(newest()).url(port=proxy.port, schema=new_schema(), durability="relaxed")) as opened:
        yield opened


def row_of(store: holdfast.Store, run_id: str) -> RunRow:
    row = store.port.run(run_id)
    assert row is not None
    return row


def trips(proxy: Proxy, call: Callable[[], Any]) -> int:
    """How often a call goes to the server and back."""
    before = proxy.turns
    call()
    return proxy.turns - before


def test_a_save_is_one_statement_and_one_round_trip(
    store: holdfast.Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = {"messages": [f"message {i} " * 50 for i in range(40)]}
    for _ in range(6):
        store.save("run", {"n": 1})
        store.save("run", long)
        store.append("run", [{"kind": "a"}, {"kind": "b"}])
    heard = Heard(monkeypatch)
    for call in (
        lambda: store.save("run", {"n": 2}),
        lambda: store.append("run", [{"kind": "a"}, {"kind": "b"}]),
        lambda: store.save("run", {**long, "more": 1}),
    ):
        heard.statements.clear()
        assert trips(proxy, call) == 1
        assert len(heard.statements) == 1


def test_other_changes_are_two_round_trips_and_one_for_each_look_that_was_not_foreseen(
    store: holdfast.Store, proxy: Proxy
) -> None:
    for n in range(12):
        store.save("trips", 1)
        store.mark_done("trips", "key 0")
        store.save("trips", 2, checkpoint_id=f"c{n % 6}")
        store.save("trips", 1)
        store.attach("trips", "c1", f"k{n % 6}", 1)
        store.save("trips", 3, lane="side")
        for ready in store.claim_ready("w", limit=3):
            ready.release()
        claim = store.claim("trips", "w")
        assert claim is not None
        claim.save(1)
        claim.renew()
        claim.release()
        store.save(f"other {n}", 1)  # both connections know the statement
    held: list[holdfast.Claim] = []
    assert trips(proxy, lambda: held.append(store.claim("trips", "w"))) == 2  # type: ignore[arg-type]
    assert trips(proxy, lambda: held[0].save(2)) == 1
    assert trips(proxy, held[0].renew) == 2
    assert trips(proxy, lambda: held[0].mark_done("key 1")) == 2
    held[0].save(3, checkpoint_id="before")  # decides on the row as it was remembered, as all that follow
    assert trips(proxy, lambda: held[0].save(3, checkpoint_id="chosen")) == 1
    assert trips(proxy, lambda: held[0].save(3, checkpoint_id="chosen")) == 3, "it is there: one in vain"
    held[0].save(3)
    assert trips(proxy, lambda: held[0].attach("chosen", "k", 1)) == 1
    assert trips(proxy, lambda: held[0].attach_all("chosen", {"l": 2, "m": 3}, existing="keep")) == 1
    assert trips(proxy, lambda: held[0].attach_all("chosen", {"k": 2, "n": 4}, existing="keep")) == 3
    assert store.attachments("trips", "chosen") == {"k": 1, "l": 2, "m": 3, "n": 4}
    assert trips(proxy, lambda: held[0].save(4, lane="side")) == 2
    assert trips(proxy, held[0].release) == 2
    assert trips(proxy, lambda: store.save("new run", 1)) == 2
    assert trips(proxy, lambda: store.claim_ready("w", limit=3)) == 2


def test_what_a_workflow_does_takes_few_round_trips(store: holdfast.Store, proxy: Proxy) -> None:
    """To ask, to wait, to begin an effect and to end is one; to answer is two, as are other changes."""
    port, outsider, number = store.port, Guard(OUTSIDER), 0
    found: dict[str, int] = {}

    def commit(what: str, run_id: str = "", **changes: Any) -> None:
        nonlocal number
        number += 1
        made = Commit(run_id, b"commit%02d" % number, **changes)
        outcomes: list[Any] = []
        found[what] = trips(proxy, lambda: outcomes.extend(port.commit([made])))
        assert [type(outcome) for outcome in outcomes] == [Committed], outcomes

    for turn in range(8):  # the driver prepares a statement after a few executions
        run = f"asks {turn}"
        commit("create", run, create=NewRun(), entries=(NewEntry("k", b"\x00\xc0"),))
        commit("intent", run, effects=(NewEffect("key", "intent"),), entries=(NewEntry("k", b"\x00\xc0"),))
        commit("ask", run, gates=(NewGate("g", b"\x00\xc0"),), entries=(NewEntry("k", b"\x00\xc0"),), status="waiting")
        commit("arm", run, timers=(Timer("t", 5),), entries=(NewEntry("k", b"\x00\xc0"),))
        commit("answer", run, guard=outsider, deliver=(NewItem("answer", "g", "i", "ana", b"\x00\xc0"),))
        commit("take", run, take_items=(1,), entries=(NewEntry("k", b"\x00\xc0"),), status="running")
        commit("done", run, effects=(NewEffect("key", "done"),))
        commit("end", run, status="completed")
    row = row_of(store, run)
    assert [(gate.gate, gate.state) for gate in port.rows(GateRow, row.run)] == [("g", "answered")]
    assert [effect.state for effect in port.rows(EffectRow, row.run)] == ["done"]
    assert [timer.timer for timer in port.rows(TimerRow, row.run)] == ["t"]
    assert found == {"create": 2, "intent": 1, "ask": 1, "arm": 1, "answer": 2, "take": 2, "done": 2, "end": 1}


def test_what_was_assumed_to_be_new_is_refused_if_it_exists(store: holdfast.Store) -> None:
    """The second gate and intent with a name are decided on the stored ones, and a timer is replaced."""
    port = store.port
    changes: dict[str, Any] = {
        "gates": (NewGate("g", b"\x00\xc0"),),
        "effects": (NewEffect("key", "intent"),),
        "timers": (Timer("t", 5),),
    }
    port.commit([Commit("new", b"commit00", create=NewRun(), checkpoints=(NewCheckpoint("", b"\x01\x01"),))])
    outcomes: list[Any] = []
    for number, (name, change) in enumerate([*changes.items(), *changes.items()], start=1):
        outcomes += port.commit([Commit("new", b"commit%02d" % number, **{name: change})])
    reasons = [getattr(outcome, "reason", None) for outcome in outcomes]
    assert reasons == [None, None, None, Reason.GATE_CLOSED, Reason.EFFECT_DONE, None]
    both = port.commit([Commit("new", b"commit1%d" % n, gates=(NewGate("h", b"\x00\xc0"),)) for n in range(2)])
    assert [getattr(outcome, "reason", None) for outcome in both] == [None, Reason.GATE_CLOSED]


def test_a_search_of_one_run_and_the_attachments_of_many_are_one_round_trip_each(
    store: holdfast.Store, proxy: Proxy
) -> None:
    for n in range(6):
        store.save("searched", n, checkpoint_id=f"c{n}", metadata={"n": n})
        store.attach("searched", f"c{n}", "k", n)
    port, run = store.port, row_of(store, "searched").run
    places = [("", f"c{n}") for n in range(6)]
    for _ in range(6):
        found = port.find_checkpoints(CheckpointQuery("searched", limit=2)), port.rows(AttachmentRow, run, keys=places)
        assert [len(rows) for rows in found] == [2, 6]
    assert trips(proxy, lambda: port.find_checkpoints(CheckpointQuery("searched", limit=2))) == 1
    assert trips(proxy, lambda: port.rows(AttachmentRow, run, keys=places)) == 1


def test_a_batch_of_saves_is_one_statement(
    store: holdfast.Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def batch(n: int) -> list[Commit]:
        return [
            Commit(f"batch {i % 40}", bytes([n, i, 0, 0, 0, 0, 0, 0]), create=NewRun(),
                   checkpoints=(NewCheckpoint("", b"\x01\x01"),), entries=(NewEntry("k", b"\x00\xc0"),))
            for i in range(50)
        ]  # fmt: skip

    port = store.port
    for n in range(6):
        port.commit(batch(n))
    heard = Heard(monkeypatch)
    outcomes: list[Any] = []
    assert trips(proxy, lambda: outcomes.extend(port.commit(batch(7)))) == 1
    assert len(heard.statements) == 1
    assert all(isinstance(outcome, Committed) and outcome.fresh for outcome in outcomes)
    assert [outcomes[i].numbers for i in (0, 39, 40)] == [(13,), (7,), (14,)]
    assert len(port.rows(CheckpointRow, outcomes[0].run.run)) == 14
    assert len(port.rows(CheckpointRow, outcomes[39].run.run)) == 7


def test_threads_that_save_at_once_go_together(store: holdfast.Store, proxy: Proxy) -> None:
    for i in range(16):
        store.save(f"thread {i}", 0)
    start = threading.Barrier(16)

    def work(i: int) -> None:
        start.wait()
        for n in range(20):
            store.save(f"thread {i}", n)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]

    def all_of_them() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert trips(proxy, all_of_them) < 320 / 2

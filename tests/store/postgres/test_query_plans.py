"""What the store says to the server: how often, and by which index it is answered."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.model.commit import (
    OUTSIDER,
    Commit,
    Committed,
    Guard,
    NewCheckpoint,
    NewEntry,
    NewGate,
    NewItem,
    NewMessage,
    NewRun,
    Timer,
)
from holdfast.model.rows import (
    AttachmentRow,
    CheckpointRow,
    EffectRow,
    EntryRow,
    GateRow,
    ItemRow,
    MessageRow,
    RunRow,
    TimerRow,
)
from holdfast.store.port import CheckpointQuery, RunQuery, Select
from holdfast.store.postgres.postgres_store import PostgresStore
from holdfast.store.search import tag
from tests.store.postgres.proxy import Proxy
from tests.store.postgres.server import newest
from tests.store.postgres.shared_servers import new_schema, shared

SMALL = re.compile(r"Seq Scan on (owners|server_mark|pg_database)\b")
"""Tables that have one row, or one for each living process."""
FILL = """
INSERT INTO {s}.runs SELECT g, 'fill ' || g, g, '\\x00', 'w' || g % 50,
    CASE WHEN g % 20 = 0 THEN 'ready' ELSE 'completed' END, '', '', g, g, 10, 10, 10, '10.', 10, 3,
    1, 0, 2, 0, g % 3, CASE WHEN g % 40 = 0 THEN 'w' ELSE '' END, '', g, '', 0,
    CASE WHEN g % 20 = 0 THEN 4000000000000000 + g ELSE 0 END, '\\x00', 0 FROM {r} g;
INSERT INTO {s}.checkpoints SELECT (r << 32) + n, r, n, n, n, 0, n % 2 = 0, '', n || '.', NULL, NULL, 'ready', '',
    repeat('x', 200)::bytea FROM {r} r, generate_series(1, 10) n;
INSERT INTO {s}.entries SELECT (r << 32) + n, n, 0, 'k', '\\x00', repeat('x', 100)::bytea
    FROM {r} r, generate_series(1, 10) n;
INSERT INTO {s}.effects SELECT (r << 32) + n, r, 'key ' || n, 'done', '', NULL, false, 0, 0, n, n, '\\x00', 0, '', ''
    FROM {r} r, generate_series(1, 3) n;
INSERT INTO {s}.attachments SELECT (r << 32) + 1, r, '', 'c', 'k', 1, 0, 'x' FROM {r} r;
INSERT INTO {s}.lanes SELECT r, 'side', 1, 'c', 1 FROM {r} r;
INSERT INTO {s}.tags SELECT convert_to('t' || r % 20, 'UTF8'), convert_to((r % 500)::text, 'UTF8'), r
    FROM {r} r;
INSERT INTO {s}.chunks SELECT r, decode(md5(n::text || r), 'hex'), repeat('x', 500)::bytea
    FROM {r} r, generate_series(1, 5) n;
INSERT INTO {s}.gates SELECT r, 'g', CASE WHEN r % 50 = 0 THEN 'open' ELSE 'closed' END, r,
    CASE WHEN r % 100 = 0 THEN r END, NULL, NULL, 0, '' FROM {r} r;
INSERT INTO {s}.timers SELECT r, 't', 2000000000000000 + r FROM {r} r;
INSERT INTO {s}.inbox SELECT (r << 32) + n, r, 'event', 'n', 'k' || n, 'by', n, true, 0, ''
    FROM {r} r, generate_series(1, 3) n;
INSERT INTO {s}.outbox SELECT (r << 32) + 1, 't', 'event', 'n', 'k', r, 0, '' FROM {r} r;
"""


@pytest.fixture(scope="module")
def url() -> str:
    """A schema with many rows in every table."""
    schema = new_schema()
    url = shared(newest()).url(schema=schema, durability="relaxed")
    with holdfast.open(url) as store, shared(newest()).connect() as connection:
        store.save("first", 1)
        connection.execute(FILL.format(s=schema, r="generate_series(100000::bigint, 103000)").encode())
        connection.execute("ANALYZE")
    return url


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    found = Proxy(shared(newest()).port)
    yield found
    found.close()


@pytest.fixture
def store(url: str, proxy: Proxy) -> Iterator[holdfast.Store]:
    schema = url.partition("schema=")[2].partition("&")[0]
    with holdfast.open(shared(newest()).url(port=proxy.port, schema=schema, durability="relaxed")) as opened:
        yield opened


def port_of(store: holdfast.Store) -> PostgresStore:
    assert isinstance(store.port, PostgresStore)
    return store.port


class Heard:
    """Statements that were executed, with what was bound to them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[tuple[bytes, Any]] = []
        execute = psycopg.Cursor.execute

        def heard(cursor: Any, query: Any, params: Any = None, **more: Any) -> Any:
            self.statements.append((query if isinstance(query, bytes) else str(query).encode(), params))
            return execute(cursor, query, params, **more)

        monkeypatch.setattr(psycopg.Cursor, "execute", heard)


# --- how often -------------------------------------------------------------------------------------------------------


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
        store.append("run", [{"kind": "a"}])
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
    assert trips(proxy, lambda: held[0].save(4, lane="side")) == 3
    assert trips(proxy, held[0].release) == 2
    assert trips(proxy, lambda: store.save("new run", 1)) == 2
    assert trips(proxy, lambda: store.claim_ready("w", limit=3)) == 2


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

    port = port_of(store)
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


# --- by which index --------------------------------------------------------------------------------------------------


def use_everything(store: holdfast.Store) -> None:
    """Every verb of the hot path, and what workers ask for now and then."""
    port = port_of(store)
    guard = Guard(OUTSIDER)
    for n in range(2):
        store.save("hot", {"n": n}, metadata={"t1": 1}, workflow="w1")
        store.save("hot", {"messages": ["x" * 3000] * (n + 2)})
        store.save("hot", n, checkpoint_id=f"c{n}")
        store.save("hot", 9, checkpoint_id="c0", replace=True)
        store.save("hot", n, lane="side")
        store.append("hot", [{"kind": "a"}])
        store.mark_intent("hot", f"key {n}")
        store.mark_done("hot", f"key {n}")
        store.attach("hot", "c0", f"k{n}", 1)
        claim = store.claim("hot", "w")
        assert claim is not None
        claim.save({"n": n})
        claim.renew()
        claim.release()
        port.commit([
            Commit("hot", bytes([n] * 8), gates=(NewGate(f"g{n}", b"x", 5),), timers=(Timer(f"t{n}", 1),),
                   deliver=(NewItem("event", "n", f"k{n}", "by", b"x"),),
                   send=(NewMessage("t", "event", "n", "k", b"x"),)),
            Commit("hot", bytes([n + 9] * 8), guard=guard, sent=(n + 1,), drop_timers=(f"t{n}",), take_items=(n + 1,)),
        ])  # fmt: skip
    for claim in store.claim_ready("w", limit=2):
        claim.release()
    for claim in store.claim_ready("w", limit=2, workflows=["w1", "w2"]):
        claim.release()
    store.recover_expired()
    read_everything(store)
    store.fork("hot", "hot fork", step=1)
    store.prune("hot", holdfast.Keep(last=1))
    assert port.prune_entries("hot", lambda _run, _checkpoints: [(2, 2)]) == 1
    port.rows(EntryRow, row_of(store, "hot").run, keys=[2])
    store.delete("hot fork")
    store.delete("hot")


def row_of(store: holdfast.Store, run_id: str) -> RunRow:
    row = store.port.run(run_id)
    assert row is not None
    return row


def read_everything(store: holdfast.Store) -> None:
    port = port_of(store)
    row = row_of(store, "hot")
    for choice in (
        Select(),
        Select(checkpoint_id="c0"),
        Select(step=1),
        Select(at=1),
        Select(before=2),
        Select("side"),
    ):
        port.checkpoint("hot", choice)
    port.rows(CheckpointRow, row.run, 0, 10)
    port.rows(EntryRow, row.run, 0, 10)
    port.rows(EffectRow, row.run)
    port.rows(EffectRow, row.run, keys=["key 1"])
    port.family_effects(row.family, "key 1")
    port.rows(AttachmentRow, row.run, keys=[("", "c0")])
    port.rows(AttachmentRow, row.run)
    port.rows(AttachmentRow, row.run, keys=[("", "c0"), ("side", "c1")])
    for found in (CheckpointQuery("hot"), CheckpointQuery("hot", before=(0, 2), limit=1),
                  CheckpointQuery("hot", "w1", "", tags=(("t1", b"\x01"),), by_id=("z", 0)),
                  CheckpointQuery("hot", checkpoint_id="c0"),
                  CheckpointQuery("hot", lane="", checkpoint_id="c0")):  # fmt: skip
        port.find_checkpoints(found)
    port.rows(GateRow, row.run, 0, 10)
    port.gates("open", 10)
    port.gates("open", 10, (101_000, 101_000, "g"))
    port.open_gates()
    port.due(GateRow, 10)
    port.rows(TimerRow, row.run)
    port.due(TimerRow, 10)
    port.runs(RunQuery(claimed="expired", limit=10))
    port.rows(ItemRow, row.run, 0, 10)
    port.due(MessageRow, 10)
    port.chunk_sizes(row.family)
    port.roots(row.family)
    tags = (tag("t1", b"\x01"), tag("t2", b"\x02"))
    for query in (RunQuery(), RunQuery(("ready",)), RunQuery(("ready", "waiting")), RunQuery(workflow="w1"),
                  RunQuery(tags=tags), RunQuery(("ready",), "w1", tags, 5), RunQuery(prefix="fill 1000"),
                  RunQuery(family=100_001),
                  RunQuery(("ready",), "w1", tags, 5, prefix="fill 1000")):  # fmt: skip
        port.runs(query)


def test_every_statement_of_the_hot_path_uses_an_index(
    store: holdfast.Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard(monkeypatch)
    use_everything(store)
    monkeypatch.undo()
    schema = port_of(store)._schema
    writer = port_of(store)._changes.writer
    assert writer is not None
    checked, bad = set(), []
    for statement, bindings in heard.statements:
        if schema.encode() not in statement or statement in checked or statement.startswith(b"SELECT max(version)"):
            continue
        checked.add(statement)
        plan = [row[0] for row in writer.link.execute(b"EXPLAIN " + statement, bindings).fetchall()]
        if any("Seq Scan" in line and not SMALL.search(line) for line in plan):
            bad.append("\n".join([statement.decode()[:300], *plan]))
    assert not bad, "\n\n".join(bad)
    assert len(checked) > 55


def test_a_search_of_a_workflow_reads_the_checkpoints_of_its_runs_only(
    store: holdfast.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard(monkeypatch)
    found = store.port.find_checkpoints(CheckpointQuery(workflow="w1", before=(5, 5), limit=300))
    monkeypatch.undo()
    assert {run.workflow for run, _ in found} == {"w1"}
    assert [row.created_us for _, row in found] == sorted([row.created_us for _, row in found], reverse=True)
    ((statement, bindings),) = [each for each in heard.statements if b"checkpoints" in each[0]]
    with shared(newest()).connect() as connection:
        plan = "\n".join(row[0] for row in connection.execute(b"EXPLAIN " + statement, bindings).fetchall())
    assert "Seq Scan on checkpoints" not in plan, plan
    assert "checkpoints_pkey" in plan, plan


def test_an_effect_is_found_by_index_even_in_a_family_that_is_all_there_is() -> None:
    schema = new_schema()
    url = shared(newest()).url(schema=schema, durability="relaxed")
    with holdfast.open(url) as store, shared(newest()).connect() as connection:
        one_family = FILL.replace("'fill ' || g, g,", "'fill ' || g, 100000,").replace("(1, 3) n", "(1, 50) n")
        connection.execute(one_family.format(s=schema, r="generate_series(100000::bigint, 100500)").encode())
        connection.execute("ANALYZE")
        assert len(store.port.family_effects(100000, "key 2")) == 501
        statement = port_of(store)._sql["effects_of_family"]
        found = connection.execute(b"EXPLAIN " + statement, ("key 2", 100000)).fetchall()
        plan = "\n".join(row[0] for row in found)
        assert "Index Scan using effects_by_name" in plan, plan
        assert "Seq Scan on effects" not in plan, plan

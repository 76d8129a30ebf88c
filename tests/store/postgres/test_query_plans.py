"""By which index the statements of the store are answered."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import holdfast
from holdfast.model.commit import (
    OUTSIDER,
    Commit,
    Guard,
    NewGate,
    NewItem,
    NewMessage,
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
from tests.store.postgres.heard import Heard
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
INSERT INTO {s}.packs SELECT r, r, 100, repeat('x', 500)::bytea FROM {r} r;
INSERT INTO {s}.packed SELECT r, r, n, 1, decode(md5('packed' || n || r), 'hex') FROM {r} r, generate_series(1, 5) n;
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
    port.count_runs()
    port.count_runs(lambda name: name in ("w1", "w2"))
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
    writer = port_of(store)._writer_of("hot").writer
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


def test_what_a_large_store_holds_is_estimated(store: holdfast.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, runs = store.port.usage(), store.port.runs(RunQuery(limit=-1))
    assert not counted.is_estimated
    monkeypatch.setattr("holdfast.store.sql.sql_reads._COUNTED_BYTES_MAX", 0)
    estimated = store.port.usage()
    assert estimated.is_estimated
    for field in ("checkpoints", "entries", "effects", "attachments", "chunks", "chunk_bytes", "root_bytes"):
        assert getattr(estimated, field) == pytest.approx(getattr(counted, field), rel=0.3), field
    found = store.port.count_runs()
    ready, completed = (sum(row.status == status for row in runs) for status in ("ready", "completed"))
    assert (found.runs["ready"], sorted(found.estimated)) == (ready, ["completed"])
    assert found.runs["completed"] == pytest.approx(completed, rel=0.05)
    seen = store.port.count_runs(lambda name: name == "w1")
    assert seen.runs["completed"] == sum(row.status == "completed" and row.workflow == "w1" for row in runs)
    assert not seen.estimated

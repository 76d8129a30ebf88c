"""What is wrong or unwise about a store and its runs."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Keep
from holdfast.clock import US
from holdfast.inspect import health as module
from holdfast.inspect import run_size
from holdfast.inspect.health import Finding, Health, file_system_of, format_bytes, health, unreachable
from holdfast.inspect.timeline import timeline
from holdfast.inspect.views import as_data
from holdfast.model.commit import Commit, NewMessage
from holdfast.operations.store import Store
from holdfast.store.capabilities import About
from holdfast.store.sqlite.sqlite_store import SqliteStore
from holdfast.testing import ManualClock
from tests.cli.processes import command
from tests.store.postgres.shared_servers import new_url


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    with Store(SqliteStore(str(tmp_path / "runs.db"), clock, reserve_bytes=0), clock=clock) as opened:
        yield opened


def findings(store: Store) -> dict[str, Finding]:
    found = health(store, "default")
    json.dumps(as_data(found))
    return {finding.what: finding for finding in found.findings}


def troubled(store: Store) -> set[str]:
    return {what for what, finding in findings(store).items() if finding.level != "ok"}


def test_a_sound_store_is_well(store: Store) -> None:
    store.save("r", {"messages": ["x" * 1000]})
    found = health(store, "default")
    assert not found.bad
    assert {finding.level for finding in found.findings} == {"ok"}
    assert found.store["journal_mode"] == "wal"
    assert found.store["synchronous"] == "full"
    assert found.versions["holdfast"] == holdfast.__version__
    assert (found.sampled, found.complete) == (1, True)
    assert found.biggest[0].run_id == "r"
    assert found.biggest[0].keys[0].key == "messages"
    assert found.biggest[0].keys[0].bytes > 1000


def test_looking_writes_nothing(store: Store) -> None:
    store.save("r", {"a": 1})
    store.mark_intent("r", "k")
    before = store.port.run("r")
    health(store)
    assert store.port.run("r") == before


def test_a_claim_whose_lease_is_over_is_told(store: Store, clock: ManualClock) -> None:
    store.save("r", 1)
    assert store.claim("r", owner="w", lease=10) is not None
    assert "claims" not in troubled(store)
    clock.advance(11)
    assert findings(store)["claims"].detail.endswith(": r")
    assert findings(store)["claims"].level == "warn"


def test_effects_in_doubt_are_told(store: Store) -> None:
    store.mark_done("fine", "k")
    store.mark_intent("r", "k")
    assert findings(store)["effects"].detail == "1 run: effects are in doubt: r"


def test_what_only_a_worker_does_is_told_when_none_does_it(store: Store, clock: ManualClock) -> None:
    app = holdfast.App(store)

    @app.workflow
    def asks(run: Any) -> Any:
        return run.ask("Sure?", {"ok": bool}, expires=100)

    @app.workflow
    def sleeps(run: Any) -> None:
        run.sleep(100)

    app.start(asks, run_id="asks")
    app.start(sleeps, run_id="sleeps")
    app.start(sleeps, run_id="ready", enqueue=True)
    assert troubled(store) == set()
    clock.advance(200)
    assert troubled(store) == {"gates", "timers", "ready runs"}
    assert findings(store)["timers"].detail.endswith(": sleeps")
    app.close()


def test_a_plain_run_that_is_ready_waits_for_no_worker(store: Store, clock: ManualClock) -> None:
    store.save("r", 1, workflow="langgraph")
    clock.advance(3600)
    assert troubled(store) == set()


def test_growth_that_prune_would_free_is_told(store: Store) -> None:
    for n in range(40):
        store.save("r", {"text": [f"{n} {i} " + "lorem ipsum " * 500 for i in range(20)]})
    found = findings(store)["growth"]
    assert found.level == "ok" or "prune" in found.hint
    weighed = health(store).biggest[0]
    assert weighed.checkpoints == 40
    assert weighed.bytes is not None
    assert weighed.prune_frees is not None
    assert 0 < weighed.prune_frees < weighed.bytes


def test_checkpoints_and_entries_are_counted_as_they_are_after_a_prune(store: Store) -> None:
    app = holdfast.App(store)

    @app.workflow
    def counts(run: Any) -> int:
        for n in range(30):
            run.step(lambda n=n: n, key=f"step {n}")
        return 30

    app.start(counts, run_id="counted").result()
    for n in range(12):
        store.save("saved", {"n": n})
    store.prune("counted", Keep(last=1, journal=True))
    store.prune("saved", Keep(last=2))
    found = {run.run_id: run for run in health(store).biggest}
    for name in ("counted", "saved"):
        there = [entry for entry in store.journal(name) if entry.kind != "pruned"]
        assert (found[name].checkpoints, found[name].entries) == (len(list(store.history(name))), len(there))
    assert found["saved"].checkpoints == 2
    app.close()


def test_the_biggest_runs_are_those_that_are_big_now(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_size, "BIGGEST", 2)
    for name, count, kept in (("pruned", 40, 1), ("big", 20, 20), ("small", 3, 3), ("middle", 9, 9)):
        for n in range(count):
            store.save(name, {"n": n})
        store.prune(name, Keep(last=kept))
    assert [(run.run_id, run.checkpoints) for run in health(store).biggest] == [("big", 20), ("middle", 9)]


def test_what_a_prune_is_said_to_free_is_what_the_hint_frees(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forks need what the source has; only a prune of all of them frees it."""
    text = [f"{i} " + "lorem ipsum " * 500 for i in range(20)]
    for n in range(40):
        store.save("a source", {"text": [f"{n} {line}" for line in text]})
    for name in ("fork-1", "it's"):
        store.copy("a source", name)
    store.save("other", 1)
    alone = health(store).biggest[0]
    assert alone.prune_frees == store.prune(alone.run_id, Keep(last=10, journal=True), dry_run=True).bytes_freed
    monkeypatch.setattr(module, "_LARGE", 1_000)
    found = findings(store)["growth"]
    assert found.level == "warn"
    words = shlex.split(found.hint)
    assert words[:1] == ["holdfast"]
    arguments = (*words[1:], "--store", store.url, "--json")
    planned = command(*arguments, "--dry-run", cwd=tmp_path)
    before = store.stats().state_bytes
    done = command(*arguments, "--yes", cwd=tmp_path)
    assert done.code == 0, done.err
    assert {line["run_id"] for line in done.data["runs"]} == {"a source", "fork-1", "it's"}
    assert done.data["bytes_freed"] == planned.data["bytes_freed"] == before - store.stats().state_bytes
    assert format_bytes(done.data["bytes_freed"]) in found.detail


def test_doctor_prune_and_delete_count_journal_ledger_and_attachments(store: Store, tmp_path: Path) -> None:
    app = holdfast.App(store)

    @app.workflow
    def fetch(run: Any) -> int:
        for turn in run.loop():
            run.step(lambda: os.urandom(20_000), name="fetch")
            run.state["turn"] = turn
            if turn == 15:
                break
        run.effect(lambda: os.urandom(50_000), name="send")
        return 1

    app.start(fetch, run_id="r").result()
    store.fork("r", "fork", step=1)
    store.save("plain", 0, checkpoint_id="first")
    store.attach("plain", "first", "note", "x")
    for n in range(1, 20):
        store.save("plain", n)
    app.close()
    found = {run.run_id: run for run in health(store).biggest}
    assert (found["r"].bytes or 0) > 15 * 20_000 + 2 * 50_000
    for name, at_least in (("r", 5 * 20_000), ("plain", 0)):
        before = _stored(store)
        arguments = ("prune", name, "--keep-last", "10", "--journal", "--store", store.url, "--json")
        planned = command(*arguments, "--dry-run", cwd=tmp_path).data["bytes_freed"]
        done = command(*arguments, "--yes", cwd=tmp_path).data["bytes_freed"]
        assert done == planned == found[name].prune_frees == before - _stored(store) > at_least
    for name, at_least in (("fork", 0), ("r", 5 * 20_000 + 2 * 50_000), ("plain", 0)):
        before = _stored(store)
        planned = command("delete", name, "--dry-run", "--force", "--store", store.url, "--json", cwd=tmp_path)
        done = command("delete", name, "--yes", "--force", "--store", store.url, "--json", cwd=tmp_path)
        freed = done.data["bytes_freed"]
        assert freed == planned.data["bytes_freed"] == before - _stored(store) > at_least
    assert _stored(store) == 0


def _stored(store: Store) -> int:
    """The bytes of all states, attachments, journal entries and lines of the ledger."""
    size = store.stats().state_bytes
    for info in store.runs():
        rows = store.port.run_rows(info.run_id)
        assert rows is not None
        size += sum(len(row.body) for row in rows.entries if row.kind != "pruned")
        size += sum(len(row.body) + len(row.call) for row in rows.effects)
    return size


def test_a_clock_that_is_wrong_is_told(store: Store, clock: ManualClock) -> None:
    store.save("r", 1)
    clock.advance(-100)
    assert findings(store)["clock"].level == "warn"


def test_a_damaged_run_is_told_and_does_not_stop_the_rest(store: Store) -> None:
    store.save("r", 1)
    store.save("s", 1)
    assert isinstance(store.port, SqliteStore)
    with store.port._writing() as writer:
        writer.connection.execute("UPDATE runs SET step = 77 WHERE run_id = 'r'")
    assert findings(store)["damage"].level == "bad"
    assert health(store).bad


def test_of_many_runs_only_a_sample_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLE", 5)
    for n in range(20):
        store.save(f"r{n}", 1, status="completed" if n > 3 else "waiting")
    found = health(store)
    assert (found.sampled, found.complete) == (9, False)
    monkeypatch.setattr(store.port, "usage", None)
    assert health(store).sampled == 9


def test_a_network_file_system_and_a_full_disk_are_bad(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "file_system_of", lambda path: "nfs4")
    monkeypatch.setattr(module, "free_bytes", lambda path: 1000)
    assert findings(store)["file system"].level == "bad"
    assert findings(store)["free space"].level == "bad"


def test_settings_that_lose_data_are_bad(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    about = About({}, clock_us=time.time_ns() // 1000 + 60 * US, risks=("fsync is off",))
    monkeypatch.setattr(store.port, "describe", lambda: about)
    assert findings(store)["durability"].level == "bad"
    assert "ahead of" in findings(store)["clock"].detail


def test_the_file_system_is_that_of_the_innermost_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("a / ext4 rw 0 0\nb /data nfs rw 0 0\nc /data/a\\040b tmpfs rw 0 0\nd /database xfs rw 0 0\n")
    told = [file_system_of(path, str(mounts)) for path in ("/x", "/data/f", "/data/a b/f", "/datab", "/database/f")]
    assert told == ["ext4", "nfs", "tmpfs", "ext4", "xfs"]
    assert file_system_of("/x", str(tmp_path / "none")) == ""


def test_other_stores_can_be_looked_over_too(tmp_path: Path) -> None:
    for url in (f"dir:{tmp_path}/runs", new_url()):
        with holdfast.open(url) as store:
            store.save("r", {"a": 1})
            found = health(store)
            assert found.store
            assert found.sampled == 1
    assert found.store["fsync"] == "off"  # the servers of tests do not sync
    assert found.bad
    with holdfast.open("memory:") as memory:
        assert health(memory).bad


def test_a_store_that_cannot_be_opened_is_told() -> None:
    found: Health = unreachable("postgresql://x", "--store", holdfast.errors.StorageFailed("no route"))
    assert found.bad
    assert found.findings[0].detail == "no route"


def test_sizes_are_for_people() -> None:
    assert [format_bytes(n) for n in (0, 999, 1000, 1_500_000)] == ["0 bytes", "999 bytes", "1.0 KB", "1.5 MB"]


def test_claims_are_judged_by_the_clock_of_the_store(tmp_path: Path) -> None:
    for url in (f"dir:{tmp_path}/runs", f"sqlite:{tmp_path}/runs.db", new_url()):
        with holdfast.open(url) as store:
            store.save("r", {"a": 1})
            assert store.claim("r", owner="w", lease=60) is not None
            assert findings(store)["claims"].level == "ok"
            standing = timeline(store, "r").standing
            assert standing.sentence == "running, claimed by w"
            assert standing.lease_left_s is not None
            assert 0 < standing.lease_left_s <= 60
            store.save("s", {"a": 1})
            assert store.claim("s", owner="w2", lease=0.001) is not None
            time.sleep(0.01)
            assert findings(store)["claims"].detail.endswith(": s")
            assert timeline(store, "s").standing.lease_left_s == 0


def test_what_was_sent_and_not_delivered_is_told(store: Store, clock: ManualClock) -> None:
    store.save("r", 1)
    message = NewMessage("nobody", "event", "hello", "k", b"")
    store.port.commit([Commit("r", b"12345678", send=(message,))])
    assert findings(store)["outbox"].level == "ok"
    clock.advance(120)
    assert findings(store)["outbox"].detail.endswith(": r")

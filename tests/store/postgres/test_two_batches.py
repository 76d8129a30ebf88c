"""Two batches of commits in flight at once, each with its own part of the runs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast.errors import CheckpointConflict
from holdfast.store.group_commit import part_of
from holdfast.store.postgres.postgres_store import PostgresStore
from tests.store.postgres.server import newest
from tests.store.postgres.shared_servers import new_schema, shared

PATIENCE_S = 60.0


def run_of(part: int) -> str:
    """The id of a run in this part."""
    return next(name for name in map("run {}".format, range(1000)) if part_of(name, PostgresStore.writers) == part)


@pytest.fixture
def schema() -> str:
    return new_schema()


@pytest.fixture
def store(schema: str) -> Iterator[holdfast.Store]:
    with holdfast.open(shared(newest()).url(schema=schema, durability="relaxed")) as opened:
        for part in range(PostgresStore.writers):
            opened.save(run_of(part), 0, checkpoint_id="first")
        yield opened


@contextlib.contextmanager
def locked(schema: str, run_id: str) -> Iterator[None]:
    """Within the block another session holds the run's row."""
    with shared(newest()).connect() as other, other.transaction():
        other.execute(f"SELECT 1 FROM {schema}.runs WHERE run_id = %s FOR UPDATE", (run_id,))
        yield


class Call:
    """A call on a thread of its own."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.found: Any = None
        self._work = work
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.found = self._work()
        except Exception as error:
            self.found = error

    def is_waiting(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self.found


def pid_of(store: holdfast.Store, run_id: str) -> int:
    """The server's process for the connection that writes this run."""
    assert isinstance(store.port, PostgresStore)
    writer = store.port._writer_of(run_id).writer
    assert writer is not None
    return writer.link.info.backend_pid


def wait_for_lock(pid: int) -> None:
    """Wait until a process of the server waits for a lock."""
    with shared(newest()).connect() as connection:
        for _ in range(6000):
            found = connection.execute("SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone()
            if found == ("Lock",):
                return
            time.sleep(0.01)
    raise AssertionError("it never waited for the lock")


def states(store: holdfast.Store, run_id: str) -> list[object]:
    return [store.load(run_id, checkpoint_id=c.checkpoint_id).state for c in store.history(run_id)]  # type: ignore[union-attr]


def test_a_batch_does_not_wait_for_one_with_other_runs(store: holdfast.Store, schema: str) -> None:
    blocked, free = run_of(0), run_of(1)
    with locked(schema, blocked):
        call = Call(lambda: store.save(blocked, 1))
        wait_for_lock(pid_of(store, blocked))
        store.save(free, 1)
        assert call.is_waiting()
    assert call.result().number == 2
    assert states(store, blocked) == states(store, free) == [0, 1]


@pytest.mark.parametrize("lost", [0, 1])
def test_a_connection_that_is_lost_under_one_of_two_batches_costs_no_commit(
    store: holdfast.Store, schema: str, lost: int
) -> None:
    names = [run_of(0), run_of(1)]
    with locked(schema, names[0]), locked(schema, names[1]), shared(newest()).connect() as server:
        calls = [Call(lambda name=name: store.save(name, 1)) for name in names]  # type: ignore[misc]
        for name in names:
            wait_for_lock(pid_of(store, name))
        server.execute("SELECT pg_terminate_backend(%s)", (pid_of(store, names[lost]),))
    assert [call.result().number for call in calls] == [2, 2]
    assert [states(store, name) for name in names] == [[0, 1], [0, 1]]
    assert store.verify().problems == []


def test_a_commit_that_is_refused_leaves_the_other_batch_alone(store: holdfast.Store, schema: str) -> None:
    refused, waiting = run_of(0), run_of(1)
    with locked(schema, waiting):
        call = Call(lambda: store.save(waiting, 1))
        wait_for_lock(pid_of(store, waiting))
        with pytest.raises(CheckpointConflict):
            store.save(refused, "another", checkpoint_id="first")
        assert call.is_waiting()
    assert call.result().number == 2
    assert states(store, refused) == [0]


def test_commits_of_each_run_stay_in_order_though_callers_are_cancelled(store: holdfast.Store) -> None:
    """A commit whose task was cancelled may be stored or not; all others are, once, and in the order of their calls."""

    async def work(run_id: str) -> list[int]:
        done: list[int] = []
        for n in range(12):
            task = asyncio.ensure_future(store.aio.append(run_id, [{"kind": "n", "n": n}]))
            await asyncio.sleep(0)
            if n % 4 == 3:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
                done.append(n)
        return done

    async def together() -> list[list[int]]:
        return await asyncio.gather(*[work(f"run {i}") for i in range(16)])

    found = asyncio.run(together())
    for i, done in enumerate(found):
        stored = [entry.data["n"] for entry in store.journal(f"run {i}")]
        assert stored == sorted(set(stored))
        assert set(done) <= set(stored)
    assert store.verify().problems == []


def test_a_session_whose_prepared_statements_were_dropped_is_replaced(store: holdfast.Store) -> None:
    """A pooler that gives the session to another client may do that, or may leave statements of that client in it."""
    run_id = run_of(0)
    store.save(run_id, 1)
    for number, statement in enumerate(("DISCARD ALL", "DEALLOCATE ALL"), start=2):
        assert isinstance(store.port, PostgresStore)
        writer = store.port._writer_of(run_id).writer
        assert writer is not None
        writer.link.execute(statement)
        store.save(run_id, number)
        found = store.load(run_id)
        assert found is not None
        assert found.state == number


def test_a_statement_that_another_client_has_prepared_is_no_error(store: holdfast.Store) -> None:
    run_id = run_of(1)
    assert isinstance(store.port, PostgresStore)
    writer = store.port._writer_of(run_id).writer
    assert writer is not None
    writer.link.execute("PREPARE save_one AS SELECT 1", prepare=False)
    store.save(run_id, 1)
    store.save(run_id, 2)
    found = store.load(run_id)
    assert found is not None
    assert found.state == 2

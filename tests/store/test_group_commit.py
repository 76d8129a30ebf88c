"""Group commit: together, in order, each for itself, and nobody waits for ever."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast.errors import InvalidInput, StorageFailed, StorageFull
from holdfast.model.commit import Commit, Committed, NewEntry, Outcome
from holdfast.model.rows import NO_RUN
from holdfast.store import group_commit as committing
from holdfast.store.group_commit import BATCH_MAX, Committer, Committers, part_of
from tests.interrupted import Interrupted


class Applied:
    """Stands for a store: writes down the batches, and stops where it is told to."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.failing: dict[str, BaseException] = {}

    def __call__(self, commits: Sequence[Commit]) -> list[Outcome]:
        self.entered.set()
        assert self.gate.wait(30)
        self.batches.append([commit.run_id for commit in commits])
        for commit in commits:
            if commit.run_id in self.failing:
                raise self.failing[commit.run_id]
        return [Committed(NO_RUN, checkpoint_id=commit.run_id) for commit in commits]


def commit(name: str) -> Commit:
    return Commit(name, b"id")


def in_threads(count: int, work: object) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]  # type: ignore[arg-type]
    for thread in threads:
        thread.start()
    return threads


def wait_until(condition: object) -> None:
    for _ in range(3000):
        if condition():  # type: ignore[operator]
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never came")


def test_a_single_caller_commits_on_its_own_thread() -> None:
    applied = Applied()
    threads: list[threading.Thread] = []

    def noted(commits: Sequence[Commit]) -> list[Outcome]:
        threads.append(threading.current_thread())
        return applied(commits)

    committer = Committer(noted)
    for i in range(5):
        assert committer.commit(commit(f"r{i}")).checkpoint_id == f"r{i}"  # type: ignore[union-attr]
    assert applied.batches == [[f"r{i}"] for i in range(5)]
    assert set(threads) == {threading.current_thread()}


def test_those_who_wait_are_committed_together_and_get_their_own_results() -> None:
    applied = Applied()
    committer = Committer(applied)
    applied.gate.clear()
    results: dict[int, Outcome] = {}

    def work(number: int) -> None:
        results[number] = committer.commit(commit(f"r{number}"))

    first = in_threads(1, work)
    assert applied.entered.wait(30)
    rest = [threading.Thread(target=work, args=(i,)) for i in range(1, 20)]
    for thread in rest:
        thread.start()
    wait_until(lambda: len(committer._blocked) == 19)
    applied.gate.set()
    for thread in first + rest:
        thread.join(240)
    assert [len(batch) for batch in applied.batches] == [1, 19]
    assert {n: outcome.checkpoint_id for n, outcome in results.items()} == {n: f"r{n}" for n in range(20)}  # type: ignore[union-attr]


def test_a_batch_has_a_largest_size() -> None:
    applied = Applied()
    committer = Committer(applied)
    applied.gate.clear()
    done: list[object] = []
    for i in range(2 * BATCH_MAX + 10):
        committer.submit(commit(f"r{i}"), done.append)
    applied.gate.set()
    wait_until(lambda: len(done) == 2 * BATCH_MAX + 10)
    assert max(map(len, applied.batches)) <= BATCH_MAX
    assert [name for batch in applied.batches for name in batch] == [f"r{i}" for i in range(2 * BATCH_MAX + 10)]
    committer.close()


def test_a_batch_that_has_become_large_takes_no_more_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "COMMIT_BATCH_BYTES", 100)
    applied = Applied()
    committer = Committer(applied)
    applied.gate.clear()
    done: list[object] = []
    for i in range(9):
        committer.submit(Commit(f"r{i}", b"id", entries=(NewEntry("n", b"x" * 40),)), done.append)
    assert applied.entered.wait(30)
    applied.gate.set()
    wait_until(lambda: len(done) == 9)
    assert max(map(len, applied.batches)) == 3
    assert [name for batch in applied.batches for name in batch] == [f"r{i}" for i in range(9)]
    committer.close()


@pytest.mark.parametrize("error", [InvalidInput("wrong"), StorageFull("full"), RuntimeError("bug")])
def test_what_is_wrong_with_one_commit_does_not_fail_the_others(error: Exception) -> None:
    applied = Applied()
    applied.failing["r7"] = error
    committer = Committer(applied)
    applied.gate.clear()
    results: dict[str, object] = {}
    for i in range(12):
        committer.submit(commit(f"r{i}"), lambda result, i=i: results.update({f"r{i}": result}))  # type: ignore[misc]
    applied.gate.set()
    wait_until(lambda: len(results) == 12)
    assert results["r7"] is error
    assert all(isinstance(results[f"r{i}"], Committed) for i in range(12) if i != 7)
    committer.close()


def test_a_failing_disk_fails_the_batch_and_is_not_tried_again() -> None:
    applied = Applied()
    applied.failing["r3"] = StorageFailed("disk")
    committer = Committer(applied)
    applied.gate.clear()
    results: list[object] = []
    committer.submit(commit("first"), results.append)
    assert applied.entered.wait(30)
    for i in range(6):
        committer.submit(commit(f"r{i}"), results.append)
    applied.gate.set()
    wait_until(lambda: len(results) == 7)
    assert len([result for result in results if isinstance(result, StorageFailed)]) == 6
    assert len(applied.batches) == 2
    committer.close()


def test_blocking_and_awaiting_callers_mix_and_nobody_is_forgotten() -> None:
    applied = Applied()
    committer = Committer(applied)
    done: list[object] = []

    def work(number: int) -> None:
        for i in range(200):
            if number % 2:
                committer.submit(commit(f"{number}-{i}"), done.append)
            else:
                done.append(committer.commit(commit(f"{number}-{i}")))

    for thread in in_threads(8, work):
        thread.join(240)
        assert not thread.is_alive()
    wait_until(lambda: len(done) == 1600)
    names = [name for batch in applied.batches for name in batch]
    assert len(names) == len(set(names)) == 1600
    committer.close()


class SlyLock:
    """A lock that lets something happen in the moment before it is released."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.before_release: list[Callable[[], None]] = []

    def locked(self) -> bool:
        return self._lock.locked()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        while self.before_release:
            self.before_release.pop()()
        self._lock.release()


def test_who_comes_in_the_moment_a_leader_stops_is_not_forgotten() -> None:
    applied = Applied()
    committer = Committer(applied)
    sly = committer._leading = SlyLock()  # type: ignore[assignment]
    late = threading.Thread(target=lambda: committer.commit(commit("late")))

    def come() -> None:
        late.start()
        wait_until(lambda: len(committer._blocked) == 1)
        threading.Event().wait(0.05)  # long enough to have found the lock locked

    sly.before_release.append(come)
    committer.commit(commit("first"))
    late.join(240)
    assert not late.is_alive()
    assert applied.batches == [["first"], ["late"]]


def test_a_leader_that_is_stopped_leaves_nobody_waiting() -> None:
    applied = Applied()
    applied.failing["r0"] = KeyboardInterrupt()
    committer = Committer(applied)
    applied.gate.clear()
    results: list[object] = []

    def work(number: int) -> None:
        try:
            results.append(committer.commit(commit(f"r{number}")))
        except BaseException as error:
            results.append(error)

    first = in_threads(1, lambda _: work(9))
    assert applied.entered.wait(30)
    rest = in_threads(4, work)
    wait_until(lambda: len(committer._blocked) == 4)
    applied.gate.set()
    for thread in first + rest:
        thread.join(240)
        assert not thread.is_alive()
    assert len(results) == 5
    assert any(isinstance(result, KeyboardInterrupt) for result in results)
    assert committer.commit(commit("after")).checkpoint_id == "after"  # type: ignore[union-attr]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_starts_with_nobody_waiting() -> None:
    applied = Applied()
    committer = Committer(applied)
    applied.gate.clear()
    threads = in_threads(3, lambda i: committer.commit(commit(f"r{i}")))
    assert applied.entered.wait(30)
    child = os.fork()
    if child == 0:
        applied.gate.set()
        os._exit(0 if committer.commit(commit("child")).checkpoint_id == "child" else 1)  # type: ignore[union-attr]
    assert os.waitpid(child, 0)[1] == 0
    applied.gate.set()
    for thread in threads:
        thread.join(240)


def test_whose_commit_was_carried_out_before_it_could_lead_does_not_keep_the_lead() -> None:
    """The scheduler may take a thread away between queueing up and looking whether somebody leads."""
    applied = Applied()
    committer = Committer(applied)
    queued, go_on = threading.Event(), threading.Event()

    class Queue(deque[Any]):
        def append(self, ticket: Any) -> None:
            super().append(ticket)
            if ticket.commit.run_id == "late":
                queued.set()
                assert go_on.wait(30)

    committer._blocked = Queue()
    applied.gate.clear()
    threads = in_threads(1, lambda _: committer.commit(commit("first")))
    assert applied.entered.wait(30)
    threads += in_threads(1, lambda _: committer.commit(commit("second")))
    wait_until(lambda: len(committer._blocked) == 1)
    threads += in_threads(1, lambda _: committer.commit(commit("late")))
    assert queued.wait(30)
    applied.gate.set()
    wait_until(lambda: len(applied.batches) == 2 and not committer._leading.locked())
    go_on.set()
    for thread in threads:
        thread.join(240)
        assert not thread.is_alive()
    assert committer.commit(commit("after")).checkpoint_id == "after"  # type: ignore[union-attr]
    assert sorted(name for batch in applied.batches for name in batch) == ["after", "first", "late", "second"]


def test_who_is_interrupted_while_waiting_leaves_at_once_and_nothing_of_it_is_done() -> None:
    applied = Applied()
    committer = Committer(applied)
    applied.gate.clear()
    leader = in_threads(1, lambda _: committer.commit(commit("first")))
    assert applied.entered.wait(30)
    main = threading.main_thread().ident
    assert main is not None

    def interrupt(_: int) -> None:
        wait_until(lambda: len(committer._blocked) == 1)
        threading.Event().wait(0.05)
        signal.pthread_kill(main, signal.SIGALRM)

    def raise_interrupted(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, raise_interrupted)
    try:
        interrupter = in_threads(1, interrupt)
        with pytest.raises(Interrupted):
            committer.commit(commit("interrupted"))
    finally:
        signal.signal(signal.SIGALRM, before)
    applied.gate.set()
    for thread in leader + interrupter:
        thread.join(240)
    assert committer.commit(commit("after")).checkpoint_id == "after"  # type: ignore[union-attr]
    assert applied.batches == [["first"], ["after"]]


def test_an_async_commit_that_arrives_while_the_committer_closes_gets_its_result() -> None:
    found: list[Any] = []
    committer = Committer(Applied())
    done = threading.Event()
    committer.submit(commit("first"), lambda _: done.set())
    assert done.wait(30)

    class LateQueue(deque[Any]):
        """The committer is closed, and its thread ends, just before a commit is queued."""

        def append(self, ticket: Any) -> None:
            helper = committer._helper
            committer.close()
            assert helper is not None
            helper.join(240)
            assert not helper.is_alive()
            super().append(ticket)

    committer._awaited = LateQueue()
    committer.submit(commit("late"), found.append)
    assert [result.checkpoint_id for result in found] == ["late"]


def test_committers_apply_batches_of_other_runs_at_once_and_those_of_one_run_in_order() -> None:
    inside = threading.Barrier(2, timeout=30)
    order: dict[str, list[int]] = {}
    names = [next(name for name in map(str, range(1000)) if part_of(name, 2) == part) for part in range(2)]

    def apply(commits: Sequence[Commit]) -> list[Outcome]:
        if len(commits[0].entries) == 0:
            inside.wait()  # until the other part's batch is here as well
        for each in commits:
            order.setdefault(each.run_id, []).append(len(each.entries))
        return [Committed(NO_RUN) for _ in commits]

    committers = Committers(apply, 2)

    def work(i: int) -> None:
        for count in range(20):
            committers.commit(Commit(names[i], b"id", entries=(NewEntry("k", b""),) * count))

    for thread in in_threads(2, work):
        thread.join(30)
    assert order == {name: list(range(20)) for name in names}
    committers.close()

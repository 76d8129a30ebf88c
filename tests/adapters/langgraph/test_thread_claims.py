"""The guarantees of `claim`, and what the saver cannot guarantee without it."""

from __future__ import annotations

import asyncio
import contextvars
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.errors import ClaimLost, InvalidInput, RunClaimed
from tests.adapters.langgraph import pay
from tests.adapters.langgraph.material import checkpoint, config, described


@pytest.fixture
def waiting(url: str, thread: str, tmp_path: Path) -> str:
    """A thread that waits for its approval."""
    with HoldfastSaver(url) as saver:
        found = pay.graph(saver).invoke({"amount": 7, "paid": False}, config(thread))
        assert found["__interrupt__"][0].value == {"pay": 7}
    return thread


class Payer:
    """A process that pays."""

    def __init__(self, maker: subprocess.Popen[str], *what: Any) -> None:
        assert maker.stdin is not None
        assert maker.stdout is not None
        maker.stdin.write(json.dumps(what) + "\n")
        maker.stdin.flush()
        self.pid = int(maker.stdout.readline())

    def kill(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self) -> None:
        _until(lambda: not Path(f"/proc/{self.pid}").exists())


@pytest.fixture(scope="module")
def maker() -> Iterator[subprocess.Popen[str]]:
    """A process that makes others."""
    command = [sys.executable, "-m", "tests.adapters.langgraph.pay"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.fixture
def start(url: str, waiting: str, tmp_path: Path, maker: subprocess.Popen[str]) -> Callable[..., Payer]:
    """Starts a process that resumes the waiting thread."""
    return lambda how, seconds: Payer(maker, url, waiting, str(tmp_path / "out"), how, seconds)


def _lines(out: Path) -> Counter[str]:
    return Counter(out.read_text().splitlines()) if out.exists() else Counter()


def _until(true: Callable[[], bool], timeout_s: float = 60) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.mark.parametrize("how", ["claim", "aclaim"])
def test_of_two_processes_that_resume_one_thread_one_pays(
    url: str, waiting: str, start: Callable[..., Payer], tmp_path: Path, how: str
) -> None:
    out = tmp_path / "out"
    processes = [start(how, 0.8) for _ in range(4)]
    for process in processes:
        process.wait()
    found = _lines(out)
    assert found["paid 7"] == 1
    assert found["RunClaimed"] + found["ok"] == 4
    assert found["RunClaimed"] >= 1
    with HoldfastSaver(url) as saver:
        assert pay.graph(saver).get_state(config(waiting)).values == {"amount": 7, "paid": True}
        steps = [one.metadata["step"] for one in saver.list(config(waiting))]
        assert steps == sorted(set(steps), reverse=True), "the history has no second branch"


def test_a_process_that_comes_late_finds_the_thread_done(
    url: str, waiting: str, start: Callable[..., Payer], tmp_path: Path
) -> None:
    """Once the first has finished there is nothing to resume; LangGraph runs nothing then."""
    out = tmp_path / "out"
    for _ in range(2):
        start("claim", 0).wait()
    assert _lines(out) == {"paid 7": 1, "ok": 2}


def test_saves_without_a_claim_are_refused_but_the_node_may_have_run(
    url: str, waiting: str, start: Callable[..., Payer], tmp_path: Path
) -> None:
    """A limit: LangGraph saves in the background, so the refusal may come after the node has run."""
    out = tmp_path / "out"
    with HoldfastSaver(url) as saver, saver.claim(waiting):
        before = saver.get_tuple(config(waiting))
        start("plain", 0).wait()
        found = _lines(out)
        assert found["RunClaimed"] == 1
        assert found["ok"] == 0
        assert found["paid 7"] <= 1
        assert saver.get_tuple(config(waiting)) == before, "nothing of what it did is in the thread"


def test_two_processes_without_claims_both_pay(
    url: str, waiting: str, start: Callable[..., Payer], tmp_path: Path
) -> None:
    """As with every saver. If this fails, LangGraph has added claims of its own, and the saver should use them."""
    out = tmp_path / "out"
    processes = [start("plain", 1.0) for _ in range(2)]
    for process in processes:
        process.wait()
    assert _lines(out) == {"paid 7": 2, "ok": 2}


def test_another_process_takes_over_from_a_killed_owner(
    url: str, waiting: str, start: Callable[..., Payer], tmp_path: Path
) -> None:
    """On SQLite at once, because its lock is free; elsewhere at the latest when the lease has expired.

    The payment itself may be repeated: what a node did before it was killed is not in the thread.
    """
    out = tmp_path / "out"
    first = start("claim", 60)
    _until(lambda: _lines(out)["paid 7"] == 1)
    first.kill(signal.SIGKILL)
    first.wait()
    begun = time.monotonic()
    with HoldfastSaver(url) as saver:
        while True:
            try:
                with saver.claim(waiting):
                    pay.graph(saver, out).invoke(Command(resume=True), config(waiting))
                break
            except RunClaimed:
                assert not url.startswith("sqlite")
                assert time.monotonic() - begun < 240
                time.sleep(0.1)
        assert pay.graph(saver).get_state(config(waiting)).values == {"amount": 7, "paid": True}
    assert _lines(out) == {"paid 7": 2}


def test_an_owner_that_was_stopped_past_its_lease_writes_nothing(
    url: str, waiting: str, start: Callable[..., Payer], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    first = start("claim", 0.5)
    _until(lambda: _lines(out)["paid 7"] == 1)
    first.kill(signal.SIGSTOP)
    with HoldfastSaver(url) as saver:
        _until(lambda: _claims(saver, waiting))
        with saver.claim(waiting):
            pay.graph(saver, out).invoke(Command(resume=True), config(waiting))
        after = saver.get_tuple(config(waiting))
        first.kill(signal.SIGCONT)
        first.wait()
        assert saver.get_tuple(config(waiting)) == after
    found = _lines(out)
    assert found["ok"] == 0
    assert found["ClaimLost"] == 1


def _claims(saver: HoldfastSaver, thread: str) -> bool:
    try:
        with saver.claim(thread):
            return True
    except RunClaimed:
        return False


def test_a_claim_that_is_held_is_renewed(saver: HoldfastSaver, thread: str) -> None:
    with saver.claim(thread, lease=0.3):
        time.sleep(1.0)
        assert not _claims(HoldfastSaver(saver.store), thread)
        saver.put(config(thread), checkpoint(), described(), {})
    assert _claims(saver, thread)


def test_another_thread_of_the_same_program_is_refused_like_another_process(saver: HoldfastSaver, thread: str) -> None:
    problems: list[BaseException] = []

    def other() -> None:
        for call in (
            lambda: saver.put(config(thread), checkpoint(), described(), {}),
            lambda: saver.put_writes(config(thread, "", "c"), [("a", 1)], "t"),
            lambda: saver.claim(thread).__enter__(),
        ):
            try:
                call()
            except RunClaimed as error:
                problems.append(error)

    with saver.claim(thread):
        stranger = threading.Thread(target=other)
        stranger.start()
        stranger.join()
        assert len(problems) == 3
        saver.put(config(thread), checkpoint(), described(), {})
        friend = threading.Thread(target=contextvars.copy_context().run, args=(other,))
        friend.start()
        friend.join()
        assert len(problems) == 4, "with the context comes the claim: it may write, but not claim again"


def test_tasks_know_the_claim_of_the_task_that_made_them(saver: HoldfastSaver, thread: str) -> None:
    async def put() -> Any:
        return await saver.aput(config(thread), checkpoint(), described(), {})

    async def main() -> None:
        stranger_may = asyncio.Event()

        async def stranger() -> None:
            await stranger_may.wait()
            await put()

        task = asyncio.create_task(stranger())
        async with saver.claim(thread):
            await asyncio.gather(put(), asyncio.create_task(put()))
            stranger_may.set()
            with pytest.raises(RunClaimed):
                await task
        await put()

    asyncio.run(main())


def test_other_threads_are_not_touched_by_a_claim(saver: HoldfastSaver, thread: str) -> None:
    with saver.claim(thread), saver.claim(f"{thread}-2") as second:
        for name in (thread, f"{thread}-2", f"{thread}-3"):
            saver.put(config(name), checkpoint(), described(), {})
        assert second.fence == 1
    with saver.claim(f"{thread}-2") as again:
        assert again.fence == 2
    with pytest.raises(InvalidInput, match="inside"):
        again.fence  # noqa: B018
    with again:
        assert again.fence == 3


def test_an_error_inside_a_claim_is_raised_to_the_caller(saver: HoldfastSaver, thread: str) -> None:
    with pytest.raises(ZeroDivisionError), saver.claim(thread):
        raise ZeroDivisionError
    assert _claims(saver, thread)
    claim = saver.claim(thread, lease=0.05)
    claim.__enter__()
    claim._ended.set()  # stops the renewal of its lease
    time.sleep(0.2)
    assert _claims(HoldfastSaver(saver.store), thread)
    with pytest.raises(ClaimLost):
        claim.__exit__(None, None, None)


def test_a_thread_that_does_not_exist_can_be_claimed(saver: HoldfastSaver, thread: str) -> None:
    with saver.claim(thread):
        assert saver.get_tuple(config(thread)) is None
        saver.put(config(thread), checkpoint({"a": 1}), described(), {"a": 1})
    assert saver.get_tuple(config(thread)) is not None


def test_a_claim_that_ends_in_another_context_is_released(saver: HoldfastSaver, thread: str) -> None:
    """As when a web server runs a generator's steps in contexts of their own."""

    def stream() -> Generator[int, None, None]:
        with saver.claim(thread):
            yield 1
            yield 2

    steps = stream()
    for expected in (1, 2):
        assert contextvars.copy_context().run(next, steps) == expected
    steps.close()
    assert _claims(saver, thread)


def test_claims_may_end_in_any_order(saver: HoldfastSaver, thread: str) -> None:
    first, second = saver.claim(thread), saver.claim(f"{thread}-2")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    for name in (thread, f"{thread}-2"):
        saver.put(config(name), checkpoint(), described(), {})
    second.__exit__(None, None, None)
    for name in (thread, f"{thread}-2"):
        saver.put(config(name), checkpoint(), described(), {})


def test_a_claim_that_is_used_again_is_renewed_again(saver: HoldfastSaver, thread: str) -> None:
    claim = saver.claim(thread, lease=0.3)
    for _ in range(2):
        with claim:
            time.sleep(0.6)
            assert not _claims(HoldfastSaver(saver.store), thread)
            with pytest.raises(InvalidInput, match="already held"):
                claim.__enter__()


def test_a_task_cancelled_while_it_claims_leaves_the_thread_free(saver: HoldfastSaver, thread: str) -> None:
    port = saver.store.port
    commit = port.commit

    async def main() -> None:
        begun, loop = asyncio.Event(), asyncio.get_running_loop()

        def slow(commits: Any) -> Any:
            done = commit(commits)
            loop.call_soon_threadsafe(begun.set)
            time.sleep(0.2)
            return done

        async def claiming() -> None:
            async with saver.claim(thread):
                raise AssertionError

        port.commit = saver._core.committer._apply = slow  # type: ignore[method-assign]
        task = asyncio.create_task(claiming())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        port.commit = saver._core.committer._apply = commit  # type: ignore[method-assign]
        for _ in range(100):
            if _claims(HoldfastSaver(saver.store), thread):
                return
            await asyncio.sleep(0.05)
        raise AssertionError("it is still claimed")

    asyncio.run(main())


def test_a_forked_process_does_not_have_its_parents_claim(folder: Path, thread: str) -> None:
    with HoldfastSaver(f"sqlite:{folder / 'forked.db'}") as saver, saver.claim(thread):
        pid = os.fork()
        if pid == 0:
            try:
                saver.put(config(thread), checkpoint(), described(), {})
                os._exit(1)
            except RunClaimed:
                os._exit(0)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        saver.put(config(thread), checkpoint(), described(), {})

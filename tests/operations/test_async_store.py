"""One object, two ways to call it."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import types
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Keep, RunClaimed, Store
from holdfast.errors import BlockingCall, ClaimLost, Unstorable
from holdfast.model.commit import Commit
from holdfast.operations.aio import AsyncClaim, AsyncStore
from holdfast.operations.store import Claim

Test = Callable[[Store], Coroutine[Any, Any, None]]


@pytest.fixture(params=["memory:", "sqlite:"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    url = request.param + (str(tmp_path / "runs.db") if request.param == "sqlite:" else "")
    store = holdfast.open(url)
    yield store
    store.close()


def public(kind: type) -> dict[str, Any]:
    found = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    return {name: value for name, value in found.items() if callable(value)}


@pytest.mark.parametrize(("blocking", "awaiting"), [(Store, AsyncStore), (Claim, AsyncClaim)])
def test_both_ways_have_the_same_verbs_with_the_same_arguments(blocking: type, awaiting: type) -> None:
    ours, theirs = public(blocking), public(awaiting)
    assert ours.keys() - theirs.keys() <= set()
    assert not theirs.keys() - ours.keys()
    for name in ours:
        assert (
            list(inspect.signature(ours[name]).parameters.values())[1:]
            == (list(inspect.signature(theirs[name]).parameters.values())[1:])
        ), name
        assert ours[name].__doc__, name
        assert theirs[name].__doc__, name


def test_every_verb_can_be_awaited(store: Store) -> None:
    async def work() -> None:
        aio = store.aio
        saved = await aio.save("run", {"n": 1}, workflow="w", metadata={"team": "a"})
        await aio.save("run", {"messages": ["x" * 500] * 50})
        assert (await aio.load("run", step=1)).state == {"n": 1}  # type: ignore[union-attr]
        assert [info.step async for info in aio.history("run")] == [1, 2]
        assert [info.step for info in await aio.history("run")] == [1, 2]
        assert [run.run_id for run in await aio.runs(metadata={"team": "a"})] == ["run"]
        assert await aio.append("run", [{"kind": "a"}]) == 1
        assert len(await aio.journal("run", after=0)) == 1
        assert await aio.mark_intent("run", "k")
        assert await aio.mark_done("run", "k", result=1)
        assert not await aio.mark_done("run", "k")
        assert await aio.is_done("run", "k")
        assert len(await aio.effects("run")) == 1
        await aio.attach("run", saved.checkpoint_id, "key", 1)
        await aio.attach_all("run", saved.checkpoint_id, {"key": 2, "more": 3}, existing="keep")
        assert await aio.attachments("run", saved.checkpoint_id) == {"key": 1, "more": 3}
        assert len(await aio.diff("run", 1, 2)) == 2
        await aio.fork("run", "fork", step=1)
        await aio.copy("run", "copy")
        data = await aio.export_run("run")
        assert (await aio.import_run(data, run_id="again")).run_id == "again"
        assert len((await aio.prune("run", Keep(last=1))).removed) == 1
        assert await aio.delete("copy")
        assert (await aio.verify()).problems == []
        assert (await aio.stats()).runs == {"ready": 3}
        assert await aio.recover_expired() == 0

    asyncio.run(work())


def test_claims_are_awaited_too(store: Store) -> None:
    async def work() -> None:
        await store.aio.save("run", 1)
        claim = await store.aio.claim("run", owner="w1")
        assert isinstance(claim, AsyncClaim)
        assert await store.aio.claim("run", owner="w2") is None
        with pytest.raises(RunClaimed):
            await store.aio.save("run", 2)
        await claim.save(3)
        await claim.append([{"kind": "a"}])
        assert await claim.mark_done("k")
        assert await claim.mark_intent("l")
        await claim.attach("c", "k", 1)
        await claim.renew(5)
        await claim.release("waiting")
        with pytest.raises(ClaimLost):
            await claim.save(4)
        async with await store.aio.claim("run", owner="w1") as claim:  # type: ignore[union-attr]
            await claim.complete()
        assert (await store.aio.runs())[0].status == "completed"

    asyncio.run(work())


def test_a_blocking_call_inside_a_running_loop_names_the_other_way(store: Store) -> None:
    store.save("run", 1)
    claim = store.claim("run", owner="w")
    assert claim is not None
    history = store.history("run")

    async def work() -> None:
        calls: list[tuple[str, Callable[[], Any]]] = [
            ("save", lambda: store.save("run", 1)), ("load", lambda: store.load("run")),
            ("claim", lambda: store.claim("run", "w")), ("renew", claim.renew), ("complete", claim.complete),
            ("release", claim.release), ("save", lambda: claim.save(1)), ("history", lambda: next(history)),
            ("verify", store.verify),
        ]  # fmt: skip
        for name, call in calls:
            with pytest.raises(BlockingCall, match=rf"await ….aio.{name}\("):
                call()

    asyncio.run(work())
    claim.release()


def test_a_blocking_call_works_with_a_half_imported_asyncio(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncio", types.ModuleType("asyncio"))
    assert store.save("run", 1).step == 1
    monkeypatch.setitem(sys.modules, "asyncio", None)
    assert store.save("run", 2).step == 2


IMPORT_RACE = """
import sys, threading, holdfast

store = holdfast.open("memory:")
app = holdfast.App(store)
half_imported, go_on = threading.Event(), threading.Event()

class Gate:
    def find_spec(self, name, path=None, target=None):
        if name == "asyncio.base_events":
            half_imported.set()
            assert go_on.wait(60)
        return None

assert "asyncio" not in sys.modules
sys.meta_path.insert(0, Gate())
thread = threading.Thread(target=__import__, args=("asyncio",))
thread.start()
assert half_imported.wait(60)
try:
    assert not hasattr(sys.modules["asyncio"], "_get_running_loop")
    store.save("run", 1)
    app.start(app.workflow(name="flow")(lambda run: 1), run_id="flow")
finally:
    go_on.set()
    thread.join()
print(store.load("run").state, app.handle("flow").result())
"""


def test_a_blocking_call_works_while_another_thread_imports_asyncio() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_RACE], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("1 1\n", 0), done.stderr


def test_errors_come_through(store: Store) -> None:
    async def work() -> None:
        with pytest.raises(Unstorable):
            await store.aio.save("run", object())
        with pytest.raises(holdfast.errors.RunNotFound):
            await store.aio.journal("none")
        with pytest.raises(holdfast.errors.RunNotFound):
            await store.aio.claim("none", owner="w")

    asyncio.run(work())


def test_many_tasks_save_at_once_and_nothing_is_lost(store: Store) -> None:
    async def work() -> None:
        async def saver(number: int) -> None:
            for i in range(10):
                await store.aio.save(f"run-{number % 8}", [number, i])

        await asyncio.gather(*[saver(n) for n in range(64)])
        assert sum([len(await store.aio.history(f"run-{n}")) for n in range(8)]) == 640

    asyncio.run(work())


def test_one_store_serves_several_loops_and_threads(store: Store) -> None:
    async def work(name: str) -> None:
        await asyncio.gather(*[store.aio.save(name, i) for i in range(20)])

    for name in ("first", "second"):
        asyncio.run(work(name))
        store.save(name, "blocking")
        assert len(list(store.history(name))) == 21


def test_a_commit_that_was_handed_in_is_carried_out_though_its_task_is_cancelled(store: Store) -> None:
    async def work() -> None:
        committer = store.access.core.committer
        applied, release = committer._apply, asyncio.Event()
        loop = asyncio.get_running_loop()
        begun = asyncio.Event()

        def slow(commits: Any) -> Any:
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
            return applied(commits)

        committer._apply = slow
        task = asyncio.create_task(_save(store))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        committer._apply = applied
        release.set()
        while await store.aio.load("run") is None:
            await asyncio.sleep(0.001)

    async def _save(store: Store) -> None:
        await store.aio.save("run", 1)

    asyncio.run(asyncio.wait_for(work(), 30))


def test_closing_ends_the_threads(tmp_path: Path) -> None:
    import threading

    async def work() -> None:
        store = holdfast.open(f"sqlite:{tmp_path / 'runs.db'}")
        await store.aio.save("run", 1)
        await store.aio.load("run")
        await store.aio.close()
        with pytest.raises(holdfast.errors.StoreClosed):
            await store.aio.load("run")
        with pytest.raises(holdfast.errors.StoreClosed):
            await store.aio.save("run", 2)

    asyncio.run(work())
    for _ in range(1000):
        if not [t for t in threading.enumerate() if t.name.startswith("holdfast-committer")]:
            return
        threading.Event().wait(0.01)
    raise AssertionError("the committer's thread did not end")


def test_reads_leave_the_loop_free(store: Store) -> None:
    """While a read is stuck, the loop goes on."""

    async def work() -> None:
        store_port = store.port
        stuck, seen = asyncio.Event(), []
        loop = asyncio.get_running_loop()
        real: Callable[[str], Any] = store_port.run

        def slow(run_id: str) -> Any:
            asyncio.run_coroutine_threadsafe(stuck.wait(), loop).result()
            return real(run_id)

        store_port.run = slow  # type: ignore[method-assign]
        reading: Awaitable[bool] = asyncio.ensure_future(store.aio.is_done("run", "k"))
        await store.aio.save("run", 1)
        seen.append("saved")
        stuck.set()
        assert not await reading
        assert seen == ["saved"]

    asyncio.run(asyncio.wait_for(work(), 30))


def test_plans_are_not_shown_to_users() -> None:
    for kind in (Store, AsyncStore, Claim, AsyncClaim):
        for name, verb in public(kind).items():
            assert not inspect.isgeneratorfunction(verb), name
    assert Commit("run", b"id").run_id == "run"

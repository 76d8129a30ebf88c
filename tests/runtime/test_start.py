"""Starting runs: one id is one run, and what the workflow raises is told by `result`."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from typing import Any, cast

import pytest

from holdfast import App, AsyncRun, InvalidInput, NotFinished, Run, RunFailed
from holdfast.errors import BlockingCall, InputConflict, RunNotFound, UnknownWorkflow, Unstorable
from tests.harness import Stage


def test_the_same_id_with_the_same_input_is_the_same_run(stage: Stage) -> None:
    def note() -> None:
        stage.calls.append("called")

    @stage.flow
    async def flow(run: AsyncRun, order: dict[str, Any], *, fast: bool) -> str:
        await run.step(note)
        return f"{order['id']} {fast}"

    first = stage.start(flow, {"id": "A", "tags": ("x",)}, fast=True)
    stage.restart()
    again = stage.start(flow, {"tags": ("x",), "id": "A"}, fast=True)
    assert first.run_id == again.run_id
    assert again.result(240) == "A True"
    assert stage.calls == ["called"]


def test_the_same_id_with_other_input_is_refused(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun, order: str = "", note: str = "") -> str:
        return order

    @stage.flow
    async def other(run: AsyncRun, order: str = "") -> str:
        return order

    stage.start(flow, "A")
    for args, kwargs in ((("B",), {}), ((), {"order": "B"}), (("A", "B"), {})):
        with pytest.raises(InputConflict, match="already started with another input"):
            stage.start(flow, *args, **kwargs)
    with pytest.raises(InputConflict, match="another workflow"):
        stage.start(other, "A")
    assert stage.app.handle(stage.run_id).result(240) == "A"


def test_starting_a_run_again_whose_process_died_takes_it_up(stage: Stage) -> None:
    def work() -> str:
        stage.calls.append("work")
        if len(stage.calls) == 1:
            stage.die()
        return "done"

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        return await run.step(work)

    stage.start_and_die(flow)
    stage.restart()
    assert stage.start(flow).status() == "completed"
    assert stage.calls == ["work", "work"]


def test_input_that_cannot_be_stored_is_refused_before_anything_is_written(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun, *args: Any, **kwargs: Any) -> None:
        """Never called."""

    wrong: list[tuple[Any, dict[str, Any]]] = [((object(),), {}), ((), {"x": [float("nan")]}), (("\ud800",), {})]
    for args, kwargs in wrong:
        with pytest.raises(Unstorable, match="the input of workflow 'flow' cannot be stored"):
            stage.start(flow, *args, **kwargs)
    with pytest.raises(RunNotFound):
        stage.status()
    assert stage.wire.commits == []


def test_a_workflow_nobody_knows_is_left_to_a_process_that_knows_it(stage: Stage) -> None:
    async def elsewhere(run: AsyncRun, number: int) -> int:
        return number + 1

    assert stage.start("elsewhere", 1, enqueue=True).status() == "ready"
    with pytest.raises(NotFinished):
        stage.app.handle(stage.run_id).result(0.01)
    stage.flow(elsewhere)
    assert stage.app.handle(stage.run_id).result(240) == 2


def test_a_name_that_is_not_registered_is_refused_with_the_close_ones(stage: Stage) -> None:
    @stage.flow
    async def refund(run: AsyncRun) -> None:
        """Nothing."""

    with pytest.raises(UnknownWorkflow, match="did you mean 'refund'") as raised:
        stage.start("refnud")
    assert raised.value.close_matches == ["refund"]
    with pytest.raises(UnknownWorkflow, match="enqueue=True"):
        asyncio.run(_start_awaiting(stage, "refnud"))
    with pytest.raises(RunNotFound):
        stage.status()


async def _start_awaiting(stage: Stage, name: str) -> None:
    await stage.app.aio.start(name, run_id=stage.run_id)


def test_a_function_that_is_no_workflow_is_refused(local: Stage) -> None:
    async def stranger(run: AsyncRun) -> None:
        """Not registered."""

    with pytest.raises(InvalidInput, match=r"put @app\.workflow above it"):
        local.app.start(cast(Any, stranger))
    with pytest.raises(UnknownWorkflow, match="'nobody'"):
        local.app.upgrade("nobody", 1)(lambda state: state)


def test_an_enqueued_start_is_only_committed(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> str:
        stage.calls.append("called")
        return "done"

    assert stage.start(flow, enqueue=True).status() == "ready"
    assert stage.calls == []
    assert stage.app.resume(stage.run_id, enqueue=True).status() == "ready"
    assert stage.app.handle(stage.run_id).result(240) == "done"


def _deep() -> None:
    raise KeyError("deep")


def test_start_never_raises_what_the_workflow_raised_and_result_tells_it(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> None:
        try:
            _deep()
        except KeyError as error:
            raise ValueError("on top") from error

    handle = stage.start(flow)
    assert handle.status() == "failed"
    with pytest.raises(RunFailed, match=r"failed: ValueError: on top") as caught:
        handle.result(240)
    failure = caught.value.failure
    assert (failure["type"], failure["message"]) == ("ValueError", "on top")
    assert "in flow" in failure["trace"]
    assert (failure["cause"]["type"], failure["cause"]["message"]) == ("KeyError", "'deep'")
    assert "_deep" in failure["cause"]["trace"]
    assert stage.app.start("flow", run_id=stage.run_id).status() == "failed", "and it is not tried again"


def test_a_result_that_cannot_be_stored_fails_the_run(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> object:
        return {"bad": object()}

    with pytest.raises(RunFailed, match=r"Unstorable.*bad"):
        stage.start(flow).result(240)


def test_values_that_are_too_large_fail_what_made_them_and_nothing_hangs(
    local: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.runtime.replay_input._VALUE_BYTES_MAX", 100_000)
    monkeypatch.setattr("holdfast.operations.views.VALUE_BYTES_MAX", 200_000)

    def large() -> bytes:
        local.calls.append("large")
        return bytes(300_000)

    @local.flow
    async def flow(run: AsyncRun, how: str) -> Any:
        if how == "step":
            return await run.step(large, retry=3)
        if how == "effect":
            return await run.effect(large)
        if how == "log":
            await run.log("x", data=large())
            return await run.step(len, "x")
        return large()

    for how in ("step", "effect", "log", "result"):
        with pytest.raises(RunFailed, match="LimitExceeded"):
            local.start(flow, how, run_id=f"{local.run_id}-{how}").result(240)
    assert len(local.calls) == 4
    assert len(local.journal("step", run_id=f"{local.run_id}-step")) == 1, "the failure is recorded"
    (line,) = local.app.store.effects(f"{local.run_id}-effect")
    assert line.state == "done", "it happened, only its result cannot be kept"


def test_metadata_and_facts_are_kept(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> list[Any]:
        return [run.run_id, run.attempt]

    handle = stage.start(flow, metadata={"team": "a", "n": 1})
    assert handle.info().metadata == {"team": "a", "n": 1}
    assert handle.info().workflow == "flow"
    assert handle.result(240) == [stage.run_id, 1]
    assert stage.run_id in [info.run_id for info in stage.app.runs(metadata={"team": "a"})]


def test_a_run_nobody_named_gets_an_id(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> str:
        return run.run_id

    ids = [local.app.start("flow").result(240) for _ in range(3)]
    assert len(set(ids)) == 3
    assert all(found.startswith("flow-") for found in ids)
    assert sorted(ids) == ids


def test_a_blocking_call_inside_a_loop_is_refused_and_names_the_other_spelling(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> None:
        """Never called."""

    async def inside() -> None:
        for call in (
            lambda: local.start(flow),
            lambda: local.app.answer(local.run_id, True),
            lambda: local.app.handle(local.run_id).result(),
        ):
            with pytest.raises(BlockingCall, match="aio"):
                call()

    asyncio.run(inside())
    with pytest.raises(RunNotFound):
        local.status()


def test_the_awaiting_app_does_the_same_for_both_kinds_of_workflow(stage: Stage) -> None:
    threads: list[str] = []

    def where() -> None:
        threads.append(threading.current_thread().name)

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        await run.step(where)
        return [await run.ask("more?", str), await run.wait_for("n")]

    async def outside() -> Any:
        aio = stage.app.aio
        handle = await aio.start("flow", run_id=stage.run_id)
        assert await handle.status() == "waiting"
        assert [gate.prompt for gate in await handle.gates()] == ["more?"]
        assert len(await aio.gates(stage.run_id)) == 1
        await aio.pause(stage.run_id)
        assert (await handle.info()).status == "paused"
        await aio.resume(stage.run_id)
        await aio.answer(stage.run_id, "yes")
        with pytest.raises(NotFinished):
            await handle.result(0.01)
        await aio.send(stage.run_id, "n", 3)
        found = await aio.handle(stage.run_id).result(240)
        other = await aio.start("flow", run_id=f"{stage.run_id}-other")
        await aio.cancel(other.run_id)
        assert await other.status() == "cancelled"
        return found

    assert asyncio.run(outside()) == ["yes", 3]
    assert threading.main_thread().name not in threads, "a step that may block does not stop the loop"


def test_a_task_that_is_cancelled_gives_its_run_back(awaiting: Stage) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> str:
        async def slow() -> str:
            awaiting.calls.append("slow")
            await asyncio.sleep(60 if len(awaiting.calls) == 1 else 0)
            return "done"

        return await run.step(slow)

    async def outside() -> None:
        task = asyncio.ensure_future(awaiting.app.aio.start("flow", run_id=awaiting.run_id))
        while not awaiting.calls:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(outside())
    assert awaiting.status() == "ready"
    assert awaiting.app.handle(awaiting.run_id).result(240) == "done"


@dataclasses.dataclass
class Options:
    fast: bool = False


DEFAULT = Options()


def _refund(run: Run, order: str, amount: int = 5, options: Options = DEFAULT) -> Any:
    return run.ask("ok?", bool)


async def _async_refund(run: AsyncRun, order: str, amount: int = 5, options: Options = DEFAULT) -> Any:
    return await run.ask("ok?", bool)


@pytest.mark.parametrize("refund", [_refund, _async_refund])
def test_the_same_input_by_position_by_keyword_or_by_default_is_the_same_run(refund: Any) -> None:
    with App("memory:") as app:
        app.workflow(name="refund")(refund)
        app.start("refund", "A", run_id="r")
        same: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
            (("A",), {}), ((), {"order": "A"}), (("A", 5), {}), (("A",), {"options": Options()}),
        ]  # fmt: skip
        for args, kwargs in same:
            assert app.start("refund", *args, run_id="r", **kwargs).status() == "waiting"
        with pytest.raises(InputConflict, match=r"another input \(argument 'order': 'A', now 'B'\)"):
            app.start("refund", "B", run_id="r")
        with pytest.raises(InputConflict, match=r"another input \(argument 'amount': 5, now 6\)"):
            app.start("refund", order="A", amount=6, run_id="r")


def _echo(run: Run, value: Any = 1) -> Any:
    return value


async def _async_echo(run: AsyncRun, value: Any = 1) -> Any:
    return value


@pytest.mark.parametrize("echo", [_echo, _async_echo])
@pytest.mark.parametrize(
    ("first", "other"), [(1, True), (1, 1.0), (0, False), ({"a": [1]}, {"a": [1.0]}), (0.0, -0.0), ([True], [1])]
)
def test_an_input_that_is_only_equal_in_python_is_another_input(echo: Any, first: object, other: object) -> None:
    with App("memory:") as app:
        app.workflow(name="echo")(echo)
        app.start("echo", first, run_id="r")
        for args, kwargs in (((other,), {}), ((), {"value": other})):
            with pytest.raises(InputConflict, match=r"another input \(argument 'value': .*, now "):
                app.start("echo", *args, run_id="r", **kwargs)
        assert app.start("echo", value=first, run_id="r").result(240) == first


@pytest.mark.parametrize("echo", [_echo, _async_echo])
def test_a_value_that_is_only_equal_to_the_default_is_another_input(echo: Any) -> None:
    with App("memory:") as app:
        app.workflow(name="echo")(echo)
        app.start("echo", run_id="r")
        assert app.start("echo", 1, run_id="r").result(240) == 1
        with pytest.raises(InputConflict, match=r"argument 'value': 1, now True"):
            app.start("echo", True, run_id="r")


def test_the_state_of_a_run_can_be_assigned() -> None:
    with App("memory:") as app:

        @app.workflow
        def flow(run: Run) -> Any:
            kept = run.state
            run.state |= {"a": 1}
            run.state = {**run.state, "b": [2]}
            kept["b"].append(3)
            run.checkpoint()
            return run.state

        assert app.start(flow, run_id="r").result() == {"a": 1, "b": [2, 3]}
        found = app.store.load("r")
        assert found is not None
        assert found.state == {"a": 1, "b": [2, 3]}

        @app.workflow
        def wrong(run: Run) -> None:
            run.state = [1]  # type: ignore[assignment]

        with pytest.raises(RunFailed, match=r"run.state must be a dict, not list"):
            app.start(wrong).result()

"""Wrong calls get a clear error before anything is written, and calls that are broken off leave nothing half done."""

from __future__ import annotations

import contextlib
import json
import operator
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import App, AsyncRun, InvalidInput, Retry, Run, StepFailed
from holdfast.errors import CheckpointNotFound, StorageFailed, Unstorable
from tests.harness import Stage


def asking(stage: Stage) -> Any:
    @stage.flow
    async def flow(run: AsyncRun, x: int) -> Any:
        return await run.ask("ok?", bool)

    return flow


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2), {}), ((1,), {"y": 2})])
def test_a_run_that_could_only_fail_is_not_begun(local: Stage, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"cannot start workflow .* with these arguments: .*argument"):
        local.start(asking_as_def(local) if not local.is_async else asking(local), *args, **kwargs)
    assert local.onlooker.port.run(local.run_id) is None


def asking_as_def(stage: Stage) -> Any:
    """Registered as it is: the harness's own adapter would take any arguments."""

    def flow(run: Any, x: int) -> Any:
        return run.ask("ok?", bool)

    stage.app.workflow(flow)
    return flow


def test_input_that_cannot_be_stored_is_named_by_its_argument(local: Stage) -> None:
    with pytest.raises(Unstorable, match=r"at args\[0\]\['a'\] ") as refused:
        local.start(asking(local), {"a": object()})
    assert refused.value.path == "args[0]['a']"


WRONG: dict[str, Callable[[App], Any]] = {
    "cleanup_s must be": lambda app: App("memory:", cleanup_s="soon"),  # type: ignore[arg-type]
    "branches must be": lambda app: App("memory:", branches=0),
    "drain_s must be": lambda app: app.worker(drain_s="soon"),  # type: ignore[arg-type]
    "timeout must be": lambda app: app.handle("x").result(timeout="soon"),  # type: ignore[arg-type]
    "state must be one of open, answered": lambda app: app.gates(state="opened"),
    "exclude each other": lambda app: app.fork("x", at=1, checkpoint_id="c"),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_argument_is_told_with_what_is_accepted(awaiting: Stage, message: str) -> None:
    awaiting.start(asking(awaiting), 1, run_id="x" if message.startswith("exclude") else None)
    with pytest.raises(InvalidInput, match=message):
        WRONG[message](awaiting.app)


def test_going_back_without_a_place_or_a_rollback_to_take_up_is_told(local: Stage) -> None:
    local.start(asking(local), 1)
    with pytest.raises(InvalidInput, match="choose where to go back to"):
        local.app.rollback(local.run_id)


def test_a_map_of_what_is_no_list_is_refused(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.map(len, 5)  # type: ignore[call-overload]

    with pytest.raises(holdfast.RunFailed, match="5 is not iterable"):
        local.start(flow).result(240)


def test_a_fork_is_chosen_by_its_checkpoint_as_a_load_is(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        run.state["n"] = await run.step(len, "abc")
        await run.checkpoint()
        return await run.ask("ok?", bool)

    stage.start(flow)
    first = next(iter(stage.onlooker.history(stage.run_id)))
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-b", checkpoint_id=first.checkpoint_id)
    assert fork.status() == "waiting"
    with pytest.raises(CheckpointNotFound):
        stage.app.fork(stage.run_id, checkpoint_id="nowhere")


@pytest.mark.parametrize("commits", range(3))
def test_a_cancel_that_is_broken_off_leaves_no_parent_failed_by_its_cancelled_child(stage: Stage, commits: int) -> None:
    @stage.flow
    async def inner(run: AsyncRun) -> Any:
        return await run.ask("Inner?", bool)

    @stage.flow
    async def outer(run: AsyncRun) -> Any:
        return await run.child("inner")

    stage.start(outer)
    child = stage.journal("child")[0]["child"]
    stage.wire.cut_after(commits)
    with pytest.raises(StorageFailed):
        stage.app.cancel(stage.run_id)
    stage.restart()
    stage.app.store.recover_expired()
    stage.app.worker().run(until_idle=True)
    parent = stage.status()
    assert parent == ("waiting" if commits == 0 else "cancelled")
    assert stage.status(child) == parent


def test_a_rollback_that_is_broken_off_by_ctrl_c_is_given_back(stage: Stage) -> None:
    pressed = [True]

    def take_back(result: Any, item: str) -> None:
        stage.calls.append(("undo", item))
        if pressed.pop() if pressed else False:
            raise KeyboardInterrupt

    def buy(item: str) -> str:
        stage.calls.append(("buy", item))
        return item

    stage.undo(take_back)

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        await run.effect(buy, "a", undo="take_back")
        return await run.ask("ok?", bool)

    stage.start(flow)
    with pytest.raises(KeyboardInterrupt):
        stage.app.rollback(stage.run_id, to=1)
    row = stage.onlooker.port.run(stage.run_id)
    assert row is not None
    assert (row.owner, row.status) == ("", "ready"), "a worker may take it up at once"
    stage.app.rollback(stage.run_id)
    assert stage.calls == [("buy", "a"), ("undo", "a"), ("undo", "a"), ("buy", "a")]
    assert stage.status() == "waiting"


def test_an_effect_done_without_a_result_to_keep_tells_so_to_all_who_call_its_key(stage: Stage) -> None:
    def pay(amount: int) -> Any:
        stage.calls.append(amount)
        return object()

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        told = []
        for _ in range(2):
            try:
                await run.effect(pay, 10, key="pay")
            except StepFailed as error:
                told.append(error.error_type)
        return [told, await run.ask("ok?", bool)]

    stage.start(flow)
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-b", at=1)
    stage.restart()
    for run_id in (stage.run_id, fork.run_id):
        assert stage.app.answer(run_id, True).result(240) == [["Unstorable", "Unstorable"], True]
    assert stage.calls == [10]


@pytest.mark.parametrize("call", ["step", "effect", "workflow"])
def test_a_result_that_cannot_be_stored_is_not_reported_as_the_state(local: Stage, call: str) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> Any:
        if call == "workflow":
            return {"a": [object()]}
        return await getattr(run, call)(lambda: {"a": [object()]}, name="make")

    with pytest.raises(holdfast.RunFailed, match=r"the value at result\['a'\]\[0\] cannot be stored"):
        local.start(flow).result(240)


def test_a_retry_policy_names_the_argument_that_is_wrong() -> None:
    for wrong in ("on", "never"):
        for kinds in ("ValueError", (ValueError, "x"), [ValueError, 5]):
            options: dict[str, Any] = {wrong: kinds}
            with pytest.raises(InvalidInput, match=f"Retry: {wrong} must be"):
                Retry(**options)
    assert Retry(on=ValueError).covers(ValueError())  # type: ignore[arg-type]
    assert Retry(5) == Retry(attempts=5)
    with pytest.raises(InvalidInput, match="initial_delay must be 0 or more, not -1"):
        Retry(initial_delay=-1)
    with pytest.raises(InvalidInput, match="jitter must be 0 to 1, not 2"):
        Retry(jitter=2)
    with pytest.raises(InvalidInput, match="max_delay must be 0 or more, not 'long'"):
        Retry(max_delay="long")  # type: ignore[arg-type]


def generator(run: Run) -> Any:
    yield run


@pytest.mark.parametrize("fn", [lambda: 1, int, generator, lambda *, run: 1])
def test_only_a_function_whose_first_argument_is_the_run_can_be_a_workflow(local: Stage, fn: Any) -> None:
    with pytest.raises(InvalidInput, match="first argument is the run"):
        local.app.workflow(name="wrong")(fn)


@pytest.mark.parametrize("expires", [-1, 0, "soon"])
def test_the_time_of_a_gate_must_be_above_0(local: Stage, expires: Any) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.ask("ok?", bool, expires=expires)

    with pytest.raises(holdfast.RunFailed, match="expires must be a number of seconds, above 0, not"):
        local.start(flow).result(240)


def test_the_workflows_of_a_worker_are_a_list_of_names_that_the_app_has(local: Stage) -> None:
    with pytest.raises(InvalidInput, match="workflows must be a list of names, not 's29'"):
        local.app.worker(workflows="s29")
    with pytest.raises(holdfast.errors.UnknownWorkflow) as unknown:
        local.app.worker(workflows=["nope"])
    assert "enqueue" not in str(unknown.value)


def test_a_worker_of_a_closed_app_does_not_run() -> None:
    app = App("memory:")
    worker = app.worker()
    app.close()
    with pytest.raises(holdfast.errors.StoreClosed):
        worker.run(until_idle=True)


def test_a_call_inside_a_step_is_refused_with_the_reason(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.step(lambda: run.step(len, "a"), name="outer")

    with pytest.raises(holdfast.RunFailed, match="the function of a step or effect cannot make calls of the run"):
        local.start(flow).result(240)


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "x + 1": lambda x: x + 1,
    "'a' + x": lambda x: "a" + x,
    "divmod(x, 2)": lambda x: divmod(x, 2),
    "2 ** x": lambda x: 2**x,
    "-x": lambda x: -x,
    "int(x)": int,
    "round(x)": round,
    "range(x)": range,
    "x()": lambda x: x(),
    "x[0] = 1": lambda x: operator.setitem(x, 0, 1),
    "with x": lambda x: contextlib.ExitStack().enter_context(x),
    "json.dumps(x)": json.dumps,
}


@pytest.mark.parametrize("use", OPERATIONS)
def test_every_use_of_a_call_as_a_value_is_a_missing_await(awaiting: Stage, use: str) -> None:
    async def flow(run: AsyncRun) -> Any:
        return OPERATIONS[use](run.step(len, "abc"))

    awaiting.flow(flow)
    with pytest.raises(holdfast.RunFailed, match=r"MissingAwait: await is missing before run\.step\(len\)"):
        awaiting.start(flow).result(240)

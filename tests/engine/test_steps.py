"""Steps: recorded, not done again, and found again by their identity."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import AsyncRun, InvalidInput, RunFailed
from holdfast.engine.arguments import Given, changed_argument
from holdfast.errors import Diverged
from holdfast.runtime.replay_input import CODEC
from tests.harness import Stage


def test_a_recorded_step_is_not_run_again_after_a_crash(stage: Stage) -> None:
    def first(text: str) -> str:
        stage.calls.append("first")
        return text.upper()

    def second(text: str) -> str:
        stage.calls.append("second")
        if stage.calls.count("second") == 1:
            stage.die()
        return text + "!"

    @stage.flow
    async def shout(run: AsyncRun, text: str) -> str:
        return await run.step(second, await run.step(first, text))

    stage.start_and_die(shout, "hi")
    assert stage.resume().result(240) == "HI!"
    assert stage.calls == ["first", "second", "second"]
    assert [entry["call"] for entry in stage.journal("step")] == ["first#1", "second#1"]


def test_steps_of_one_name_are_told_apart_by_their_number(stage: Stage) -> None:
    @stage.flow
    async def count(run: AsyncRun) -> list[int]:
        numbers = [await run.step(note, n) for n in range(4)]
        await run.ask("more?", bool)
        return numbers

    def note(number: int) -> int:
        stage.calls.append(number)
        return number * 10

    stage.start(count)
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240) == [0, 10, 20, 30]
    assert stage.calls == [0, 1, 2, 3]
    assert [entry["call"] for entry in stage.journal("step")] == ["note#1", "note#2", "note#3", "note#4"]


async def _waits_with(run: AsyncRun, *parts: Any) -> Any:
    done = [await run.step(len, part) for part in parts]
    await run.ask("more?", bool)
    return done


def test_other_arguments_than_recorded_are_a_divergence(stage: Stage) -> None:
    async def flow(run: AsyncRun) -> Any:
        return await _waits_with(run, "a", "bb")

    async def changed(run: AsyncRun) -> Any:
        return await _waits_with(run, "a", "ccc")

    stage.flow(flow)
    stage.start(flow)
    stage.change(changed, name="flow")
    with pytest.raises(Diverged, match="with other arguments") as caught:
        stage.app.answer(stage.run_id, True)
    assert (caught.value.run_id, caught.value.position) == (stage.run_id, 3)
    assert caught.value.expected == "step 'len#2'"
    assert caught.value.found == "step 'len#2'"
    assert "run.version" in caught.value.hint
    assert caught.value.hint in str(caught.value)
    assert stage.status() == "paused"
    assert stage.journal("diverged")[0]["at"] == 3


def test_another_call_than_recorded_is_a_divergence_that_the_right_code_heals(stage: Stage) -> None:
    async def flow(run: AsyncRun) -> Any:
        return await _waits_with(run, "a", "bb")

    async def changed(run: AsyncRun) -> Any:
        await run.step(str, "a")
        return await _waits_with(run, "a", "bb")

    stage.flow(flow)
    stage.start(flow)
    stage.change(changed, name="flow")
    with pytest.raises(Diverged) as caught:
        stage.app.answer(stage.run_id, True)
    assert (caught.value.expected, caught.value.found) == ("step 'len#1'", "step 'str#1'")
    assert caught.value.position == 2
    stage.change(flow)
    assert stage.app.resume(stage.run_id).result(240) == [1, 2]


def test_code_that_ends_before_the_record_does_has_diverged(stage: Stage) -> None:
    async def flow(run: AsyncRun) -> Any:
        return await _waits_with(run, "a")

    async def changed(run: AsyncRun) -> str:
        return "done"

    stage.flow(flow)
    stage.start(flow)
    stage.change(changed, name="flow")
    with pytest.raises(Diverged, match="has ended") as caught:
        stage.app.answer(stage.run_id, True)
    assert caught.value.expected == "step 'len#1'"
    assert stage.status() == "paused"


def test_a_divergence_cannot_be_swallowed_by_user_code(stage: Stage) -> None:
    async def flow(run: AsyncRun) -> Any:
        return await _waits_with(run, "a")

    async def changed(run: AsyncRun) -> str:
        try:
            await run.step(str, "x")
        except Exception:
            return "all is well"
        return "not reached"

    stage.flow(flow)
    stage.start(flow)
    stage.change(changed, name="flow")
    with pytest.raises(Diverged):
        stage.app.resume(stage.run_id)
    assert stage.status() == "paused"


def test_keyed_steps_survive_being_put_in_another_order(stage: Stage) -> None:
    def note(text: str) -> str:
        stage.calls.append(text)
        return text * 2

    async def flow(run: AsyncRun) -> list[str]:
        done = [await run.step(note, "a", key="a"), await run.step(note, "b", key="b")]
        await run.ask("more?", bool)
        return done

    async def changed(run: AsyncRun) -> list[str]:
        late = await run.step(note, "b", key="b")
        new = await run.step(note, "c", key="c")
        done = [await run.step(note, "a", key="a"), late, new]
        await run.ask("more?", bool)
        return done

    stage.flow(flow)
    stage.start(flow)
    stage.change(changed, name="flow")
    assert stage.app.answer(stage.run_id, True).result(240) == ["aa", "bb", "cc"]
    assert stage.calls == ["a", "b", "c"]


@pytest.mark.parametrize("call", ["step", "gather", "map", "checkpoint"])
def test_a_key_used_twice_is_refused(local: Stage, call: str) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> None:
        async def branch(inner: AsyncRun) -> int:
            return await inner.step(len, "a")

        for _ in range(2):
            match call:
                case "step":
                    await run.step(len, "a", key="same")
                case "gather":
                    await run.gather(branch, key="same")
                case "map":
                    await run.map(len, ["a"], key="same")
                case _:
                    await run.checkpoint(key="same")

    with pytest.raises(RunFailed, match="'same' was already used"):
        local.start(flow).result(240)


def test_two_calls_without_a_key_at_a_time_are_refused(awaiting: Stage) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> list[Any]:
        async def slow(number: int) -> int:
            await asyncio.sleep(0.01)
            return number

        both = await asyncio.gather(run.step(slow, 1), run.step(slow, 2), return_exceptions=True)
        keyed = await asyncio.gather(run.step(slow, 3, key="c"), run.step(slow, 4, key="d"))
        return [both[0], type(both[1]).__name__, str(both[1]), *keyed]

    with pytest.raises(RunFailed, match="has not finished"):
        awaiting.start(flow).result(240)
    assert [entry["result"] for entry in awaiting.journal("step")] == [1, 3, 4], "what was done stays done"


def test_threads_of_a_def_workflow_cannot_call_at_the_same_time_either() -> None:
    import threading

    from holdfast import App, Run

    app = App("memory:")
    inside, go = threading.Event(), threading.Event()

    def slow() -> str:
        inside.set()
        go.wait(5)
        return "slow"

    @app.workflow
    def flow(run: Run) -> list[str]:
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.append(run.step(slow)))
        thread.start()
        inside.wait(5)
        try:
            run.step(len, "a")
        except InvalidInput as error:
            found.append(str(error))
        go.set()
        thread.join()
        return found

    with pytest.raises(RunFailed, match=r"'slow#1' of run .* has not finished"):
        app.start(flow).result(240)
    app.close()


def test_a_changed_result_does_not_change_the_record(stage: Stage) -> None:
    kept = ["a"]

    def make() -> list[str]:
        return kept

    @stage.flow
    async def flow(run: AsyncRun) -> list[str]:
        found = await run.step(make)
        found.append("mine")
        kept.append("theirs")
        await run.ask("more?", bool)
        return found

    stage.start(flow)
    assert stage.journal("step")[0]["result"] == ["a"]
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240) == ["a", "mine"]


def _charge(order: str, amount: int, *, note: str = "") -> str:
    return f"{order} {amount} {note}"


@pytest.mark.parametrize("kind", ["step", "effect", "keyed"])
@pytest.mark.parametrize(("args", "kwargs", "first", "now"), [
    (("A-17", 12), {"note": "x"}, "argument 'amount'", "12"),
    (("B-18", 10), {"note": "x"}, "argument 'order'", "'B-18'"),
    (("A-17", 10), {"note": "y" * 500}, "argument 'note'", "'yyyy"),
    (("A-17", 10), {}, "argument 'note'", "is no longer given"),
])  # fmt: skip
def test_a_divergence_names_the_argument_that_changed_first(
    stage: Stage, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any], first: str, now: str
) -> None:
    async def call(run: AsyncRun, *args: Any, **kwargs: Any) -> Any:
        verb = run.step if kind == "step" else run.effect
        key = {"key": "once"} if kind == "keyed" else {}
        found = await verb(_charge, *args, **kwargs, **key)
        await run.ask("more?", bool)
        return found

    async def flow(run: AsyncRun) -> Any:
        return await call(run, "A-17", 10, note="x")

    async def changed(run: AsyncRun) -> Any:
        return await call(run, *args, **kwargs)

    stage.flow(flow)
    stage.start(flow)
    stage.change(changed, name="flow")
    with pytest.raises((Diverged, RunFailed)) as caught:
        stage.app.answer(stage.run_id, True).result(240)
    text = str(caught.value)
    text = text.partition("KeyReused: ")[2] if kind == "keyed" else text
    assert text.startswith(first), text
    assert now in text
    assert "with other arguments" in text
    assert len(text) < 600
    if kind != "step" and "no longer given" not in now:  # the ledger has the values of then
        assert "changed from" in text


def test_a_divergence_of_a_child_names_the_argument_that_changed_first(stage: Stage) -> None:
    async def child(run: AsyncRun, order: str, amount: int) -> Any:
        return await run.ask(f"{order} {amount}?", bool)

    async def flow(run: AsyncRun) -> Any:
        return await run.child("child", "A-17", amount=10)

    async def changed(run: AsyncRun) -> Any:
        return await run.child("child", "A-17", amount=12)

    stage.flow(child)
    stage.flow(flow)
    stage.start(flow)
    stage.change(changed, name="flow")
    with pytest.raises(Diverged) as caught:
        stage.app.resume(stage.run_id)
    assert str(caught.value).startswith("argument 'amount' of child 'child:child#1' changed, it is now 12: run ")


def test_a_call_recorded_without_digests_of_its_arguments_diverges_all_the_same(stage: Stage) -> None:
    """As earlier versions have recorded it."""
    entry = {"kind": "step", "digest": "0", "call": "charge#1", "position": 2}
    given = Given(_charge, ("A-17", 10), {})
    assert changed_argument(CODEC, "step 'charge#1'", given, entry) == "the arguments of step 'charge#1' changed"
    one = Given(_charge, ("A-17",), {})
    assert changed_argument(CODEC, "step 'charge#1'", one, entry).startswith("argument 'order' of step 'charge#1'")

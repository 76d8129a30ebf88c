"""Applications of Burr on Holdfast: what is stored, claims, processes that die, growth."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("burr")
from burr.core import State, action
from burr.core.action import streaming_action
from burr.core.persistence import SQLitePersister

import holdfast
from holdfast.adapters.burr import AsyncHoldfastPersister, HoldfastPersister
from holdfast.errors import CheckpointConflict, InvalidInput, RunClaimed, WorkflowConflict
from tests.adapters.burr import payer
from tests.adapters.burr.material import Scene, _converse, _save, _until


def test_states_are_loaded_by_sequence_id_and_the_newest_without_one(persister: HoldfastPersister) -> None:
    for number in range(3):
        _save(persister, "a", number, n=number)
    newest = persister.load(None, "a")
    assert newest is not None
    assert (newest["sequence_id"], newest["position"], newest["status"]) == (2, "act", "completed")
    assert newest["state"] == State({"n": 2})
    first = persister.load(None, "a", 0)
    assert first is not None
    assert first["state"] == State({"n": 0})
    assert persister.load(None, "a", 3) is None
    assert persister.load(None, "b") is None


def test_partitions_do_not_mix_and_none_is_the_empty_partition(persister: HoldfastPersister) -> None:
    keys = [("x", "y/z"), ("x/y", "z"), ("x%2Fy", "z"), (None, "x/y/z"), (None, "z"), ("", "z")]
    for number, (key, app_id) in enumerate(keys):
        _save(persister, app_id, number, key, n=number)
    for number, (key, app_id) in enumerate(keys[:4]):
        found = persister.load(key, app_id)
        assert found is not None
        assert (found["partition_key"], found["app_id"], found["state"]["n"]) == (key or "", app_id, number)
    assert sorted(persister.list_app_ids(None)) == ["x/y/z", "z"]
    assert persister.list_app_ids("x/y") == ["z"]
    assert persister.list_app_ids("w") == []
    found = persister.load("", "z")
    assert found is not None
    assert found["sequence_id"] == 5


def test_without_an_id_the_application_that_was_changed_last_is_loaded(persister: HoldfastPersister) -> None:
    _save(persister, "a", 0, n=0)
    _save(persister, "b", 0, n=1)
    _save(persister, "a", 1, n=2)
    found = persister.load(None, None)
    assert found is not None
    assert (found["app_id"], found["state"]["n"]) == ("a", 2)
    assert persister.load("other", None) is None


def test_a_second_save_of_a_sequence_id_is_refused_even_if_it_is_the_same(persister: HoldfastPersister) -> None:
    _save(persister, "a", 0, n=0)
    with pytest.raises(CheckpointConflict) as caught:
        _save(persister, "a", 0, n=0)
    assert "persister.claim" in caught.value.__notes__[0]


def test_a_failed_action_is_where_the_application_resumes_and_its_run_is_failed(persister: HoldfastPersister) -> None:
    answers: list[Exception | int] = [ValueError("no"), 7]

    @action(reads=[], writes=["n"])
    def think(state: State[Any]) -> State[Any]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return state.update(n=answer)

    @action(reads=[], writes=["done"])
    def end(state: State[Any]) -> State[Any]:
        return state.update(done=True)

    def build() -> Any:
        return (
            payer.builder()
            .with_actions(think, end)
            .with_transitions(("think", "end"))
            .initialize_from(persister, resume_at_next_action=True, default_state={}, default_entrypoint="think")
            .with_state_persister(persister)
            .with_identifiers(app_id="a", partition_key="p")
            .build()
        )

    with pytest.raises(ValueError, match="no"):
        build().run(halt_after=["end"])
    failed = persister.load("p", "a")
    assert failed is not None
    assert (failed["status"], failed["position"]) == ("failed", "think")
    (run,) = persister.store.runs(status="failed")
    build().run(halt_after=["end"])
    last = persister.load("p", "a")
    assert last is not None
    assert (last["status"], last["position"], last["state"]["n"]) == ("completed", "end", 7)
    (run,) = persister.store.runs()
    assert (run.status, run.workflow) == ("waiting", "burr")


def test_runs_of_workflows_are_not_read_or_written_as_applications() -> None:
    with holdfast.App("memory:") as app, HoldfastPersister(app.store) as persister:

        @app.workflow
        def count(run: holdfast.Run) -> int:
            run.state["n"] = 1
            run.ask("Go on?", {"ok": bool})
            return 1

        app.start(count, run_id="r")
        with pytest.raises(WorkflowConflict):
            _save(persister, "r", 1, n=2)
        if app.store.load("r") is not None:
            with pytest.raises(InvalidInput, match="not an application of Burr"):
                persister.load(None, "r")
        assert persister.list_app_ids() == []


def test_wrong_types_are_refused_before_anything_is_written(persister: HoldfastPersister) -> None:
    with pytest.raises(InvalidInput, match="State of Burr, not dict"):
        persister.save(None, "a", 0, "act", {"n": 1}, "completed")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="must be text"):
        persister.load(None, 17)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="a store or its URL"):
        HoldfastPersister(17)  # type: ignore[arg-type]
    assert persister.store.runs() == []


def test_arguments_for_serializers_reach_them(persister: HoldfastPersister) -> None:
    seen: list[Any] = []

    class Spy(State[Any]):
        def serialize(self, **kwargs: Any) -> dict[str, Any]:
            seen.append(kwargs)
            return {"n": 1}

    persister.set_serde_kwargs({"pickle_kwargs": {"protocol": 4}})
    persister.save(None, "a", 0, "act", Spy({}), "completed")
    assert seen == [{"pickle_kwargs": {"protocol": 4}}]


def test_a_given_store_stays_open() -> None:
    with holdfast.open("memory:") as store:
        with HoldfastPersister(store) as persister:
            _save(persister, "a", 0, n=1)
        assert [run.run_id for run in store.runs()] == ["a"]


def test_an_async_application_uses_both_persisters(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'runs.db'}"

    @action(reads=["n"], writes=["n"])
    async def count(state: State[Any]) -> State[Any]:
        return state.update(n=state["n"] + 1)

    def builder(persister: Any) -> Any:
        return (
            payer.builder()
            .with_actions(count)
            .with_transitions(("count", "count"))
            .initialize_from(persister, resume_at_next_action=True, default_state={"n": 0}, default_entrypoint="count")
            .with_state_persister(persister)
            .with_identifiers(app_id="a", partition_key="p")
        )

    async def main() -> None:
        async with AsyncHoldfastPersister(url) as persister:
            async with persister.claim("a", "p"):
                await (await builder(persister).abuild()).astep()
                async with AsyncHoldfastPersister(url) as other:
                    with pytest.raises(RunClaimed):
                        await (await builder(other).abuild()).astep()
            assert await persister.list_app_ids("p") == ["a"]
            found = await persister.load("p", "a", 0)
            assert found is not None
            assert found["state"]["n"] == 1
        with HoldfastPersister(url) as blocking:  # inside the event loop, as Burr calls it for `build`
            application = builder(blocking).build()
            assert application.state["n"] == 1
            async with blocking.claim("a", "p"):
                await application.astep()
            found = blocking.load("p", "a")
            assert found is not None
            assert found["state"]["n"] == 2

    asyncio.run(main())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_action_is_not_recorded_as_completed(
    persister: HoldfastPersister, error: type[BaseException]
) -> None:
    @action(reads=[], writes=["n"])
    def think(state: State[Any]) -> State[Any]:
        raise error

    application = payer.builder().with_actions(think).with_entrypoint("think").with_state_persister(persister)
    with pytest.raises(error):
        application.with_identifiers(app_id="a").build().step()
    found = persister.load(None, "a")
    assert found is not None
    assert found["status"] == "failed"


def test_a_def_action_of_an_async_application_is_refused_because_its_state_would_be_lost() -> None:
    @action(reads=[], writes=["n"])
    def think(state: State[Any]) -> State[Any]:
        return state.update(n=1)

    async def main() -> None:
        async with AsyncHoldfastPersister("memory:") as persister:
            application = payer.builder().with_actions(think).with_entrypoint("think").with_state_persister(persister)
            built = await application.with_identifiers(app_id="a").abuild()
            with pytest.raises(InvalidInput, match="make 'think' an `async def`"):
                await built.astep()
            assert await persister.load(None, "a") is None

    asyncio.run(main())


def test_a_streaming_action_is_saved_when_its_stream_ends(persister: HoldfastPersister) -> None:
    @streaming_action(reads=[], writes=["text"])
    def speak(state: State[Any]) -> Any:
        for word in ("good", "morning"):
            yield {"text": word}, None
        yield {"text": "good morning"}, state.update(text="good morning")

    application = payer.builder().with_actions(speak).with_entrypoint("speak").with_state_persister(persister)
    _, stream = application.with_identifiers(app_id="a").build().stream_result(halt_after=["speak"])
    assert persister.load(None, "a") is None
    assert [item["text"] for item in stream] == ["good", "morning"]
    found = persister.load(None, "a")
    assert found is not None
    assert (found["status"], found["state"]["text"]) == ("completed", "good morning")


@pytest.mark.parametrize("how", ["claim", "aclaim"])
def test_of_two_processes_that_continue_an_application_one_pays(scene: Scene, how: str) -> None:
    first = scene.begin(how, wait=True)
    _until(lambda: scene.paid() == 1)
    second = scene.begin(how)
    assert scene.end(second) == "RunClaimed"
    scene.go.touch()
    assert scene.end(first) == "ok"
    assert scene.end(scene.begin(how)) == "ok"  # a third comes late: nothing is left to do
    assert (scene.paid(), scene.looked()) == (1, 1)
    assert scene.state()["receipt"] == "paid 40 for A-17"


def test_without_a_claim_both_pay_and_the_second_save_is_refused(scene: Scene) -> None:
    """A limit: a persister is called after an action, so only a claim prevents the action."""
    with HoldfastPersister(scene.url) as persister:
        persister.save("", payer.APP_ID, 0, "quote", State({"amount": 40}), "completed")
    both = [scene.begin("plain", wait=True) for _ in range(2)]
    _until(lambda: scene.paid() == 2)
    scene.go.touch()
    assert sorted(scene.end(process) for process in both) == ["CheckpointConflict", "ok"]


def test_a_process_without_a_claim_cannot_save_while_another_has_it(scene: Scene) -> None:
    first = scene.begin("claim", wait=True)
    _until(lambda: scene.paid() == 1)
    assert scene.end(scene.begin("plain")) == "RunClaimed"
    scene.go.touch()
    assert scene.end(first) == "ok"
    assert scene.state()["position"] == "pay"


def test_after_a_kill_in_an_action_another_process_repeats_only_this_action(scene: Scene) -> None:
    assert scene.end(scene.begin("claim", kill="after-pay")) == "-9"
    before = scene.state()
    assert (before["position"], before["status"]) == ("quote", "completed")
    assert scene.end(scene.begin("claim")) == "ok"
    assert scene.state()["receipt"] == "paid 40 for A-17"
    assert scene.looked() == 1, "the action before is not repeated"
    assert scene.paid() == 2, "an action is one unit for Burr; a payment must be an effect, see the next test"


def test_after_a_kill_a_payment_that_is_an_effect_is_not_repeated(scene: Scene) -> None:
    assert scene.end(scene.begin("workflow", kill="after-pay")) == "-9"
    assert scene.end(scene.begin("workflow")) == "ok"
    assert scene.state()["receipt"] == "paid 40 for A-17"
    assert (scene.looked(), scene.paid()) == (1, 1)


def test_bytes_grow_with_the_conversation_and_not_with_its_square(tmp_path: Path) -> None:
    sizes = []
    for turns in (40, 80):
        place = tmp_path / f"{turns}.db"
        with HoldfastPersister(f"sqlite:{place}") as persister:
            _converse(persister, turns)
        sizes.append(place.stat().st_size)
    theirs = tmp_path / "theirs.db"
    other: Any = SQLitePersister(str(theirs))
    other.initialize()
    _converse(other, 80)
    other.cleanup()
    assert sizes[1] < 2.6 * sizes[0]
    assert 10 * sizes[1] < theirs.stat().st_size

"""Sessions of Strands in a Holdfast store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("strands")

from strands import Agent
from strands.hooks import BeforeToolCallEvent
from strands.multiagent import GraphBuilder
from strands.session.repository_session_manager import RepositorySessionManager
from strands.types.content import ContentBlock, Messages
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

import holdfast
from holdfast.adapters.strands import HoldfastSessionRepository
from holdfast.errors import InvalidInput, RunClaimed
from tests.adapters.strands.story_agent import FakeModel, approve, call, results
from tests.adapters.strands.test_strands import Calls, kinds, paying


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'sessions.db'}"


@pytest.fixture
def repository(url: str) -> Iterator[HoldfastSessionRepository]:
    found = HoldfastSessionRepository(url)
    yield found
    found.close()


def session(name: str = "s") -> Session:
    return Session(session_id=name, session_type=SessionType.AGENT)


def agent(name: str = "a", **state: Any) -> SessionAgent:
    return SessionAgent(agent_id=name, state=state, conversation_manager_state={})


def message(number: int, text: str = "hi") -> SessionMessage:
    return SessionMessage.from_message({"role": "user", "content": [{"text": text}]}, number)


def test_everything_is_read_by_another_process(repository: HoldfastSessionRepository, url: str) -> None:
    repository.create_session(session())
    repository.create_agent("s", agent(color="red"))
    picture: Any = {"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": b"\x00\xff"}}}]}
    repository.create_message("s", "a", SessionMessage.from_message(picture, 0))
    for number in range(1, 4):
        repository.create_message("s", "a", message(number, str(number)))
    changed = message(2)
    changed.redact_message = {"role": "user", "content": [{"text": "removed"}]}
    repository.update_message("s", "a", changed)
    repository.update_agent("s", agent(color="blue"))
    other = HoldfastSessionRepository(url)
    found = other.read_session("s")
    assert found is not None
    assert found.session_type == SessionType.AGENT
    stored = other.read_agent("s", "a")
    assert stored is not None
    assert stored.state == {"color": "blue"}
    messages = other.list_messages("s", "a")
    assert [each.message_id for each in messages] == [0, 1, 2, 3]
    assert messages[0].to_message() == picture
    assert messages[2].to_message()["content"][0]["text"] == "removed"
    assert [each.message_id for each in other.list_messages("s", "a", limit=2, offset=1)] == [1, 2]
    assert other.read_message("s", "a", 3) == messages[3]
    other.close()
    with holdfast.open(url) as store:
        assert [(run.run_id, run.workflow) for run in store.runs()] == [("s", "strands")]


def test_what_does_not_exist_is_none_or_refused(repository: HoldfastSessionRepository) -> None:
    assert repository.read_session("s") is None
    assert repository.read_agent("s", "a") is None
    assert repository.list_messages("s", "a") == []
    attempts: list[Callable[[], object]] = [
        lambda: repository.create_agent("s", agent()),
        lambda: repository.update_agent("s", agent()),
        lambda: repository.delete_session("s"),
    ]
    for refused in attempts:
        with pytest.raises(SessionException, match="there is no session 's'"):
            refused()
    repository.create_session(session())
    assert repository.read_message("s", "a", 0) is None
    with pytest.raises(SessionException, match="has no agent 'a'"):
        repository.create_message("s", "a", message(0))
    repository.create_agent("s", agent())
    with pytest.raises(SessionException, match="has no message 'a' 0"):
        repository.update_message("s", "a", message(0))


def test_nothing_is_created_twice(repository: HoldfastSessionRepository) -> None:
    repository.create_session(session())
    repository.create_agent("s", agent())
    repository.create_message("s", "a", message(0))
    attempts: list[Callable[[], object]] = [
        lambda: repository.create_session(session()),
        lambda: repository.create_agent("s", agent()),
        lambda: repository.create_message("s", "a", message(0)),
    ]
    for again in attempts:
        with pytest.raises(SessionException, match="already exists"):
            again()


def test_of_two_processes_that_add_the_same_message_one_is_told(
    repository: HoldfastSessionRepository, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.create_session(session())
    repository.create_agent("s", agent())
    other = HoldfastSessionRepository(url)
    append = repository._append

    def after_other(*arguments: Any, **options: Any) -> int:
        other.create_message("s", "a", message(0, "theirs"))
        return append(*arguments, **options)

    monkeypatch.setattr(repository, "_append", after_other)
    with pytest.raises(SessionException, match="another process has created message 'a' 0"):
        repository.create_message("s", "a", message(0, "ours"))
    assert [each.to_message()["content"][0]["text"] for each in other.list_messages("s", "a")] == ["theirs"]
    other.close()


def test_a_session_that_was_removed_can_begin_again(repository: HoldfastSessionRepository, url: str) -> None:
    other = HoldfastSessionRepository(url)
    repository.create_session(session())
    repository.create_agent("s", agent())
    repository.create_message("s", "a", message(0))
    assert len(other.list_messages("s", "a")) == 1
    repository.delete_session("s")
    assert other.read_session("s") is None
    repository.create_session(session())
    for number in range(3):
        repository.create_agent("s", agent(str(number)))
    assert other.list_messages("s", "a") == []
    assert other.read_agent("s", "2") is not None
    other.close()


def paying_model(calls: Calls) -> FakeModel:
    def answer(messages: Messages) -> list[ContentBlock]:
        calls.append(("model",))
        found = results(messages)
        return [{"text": found[-1]}] if found else [call("c", "pay", order="A")]

    return FakeModel(answer)


def make(repository: HoldfastSessionRepository, calls: Calls) -> Agent:
    made = Agent(
        paying_model(calls),
        tools=[paying(calls)],
        session_manager=RepositorySessionManager("s", repository),
        callback_handler=None,
    )
    made.add_hook(approve, BeforeToolCallEvent)
    return made


def answers(agent: Any) -> Any:
    interrupts = agent._interrupt_state.interrupts
    return [{"interruptResponse": {"interruptId": each, "response": "y"}} for each in interrupts]


@pytest.mark.parametrize("is_async", [False, True])
def test_an_interrupted_agent_goes_on_in_another_process_and_only_in_one(url: str, is_async: bool) -> None:
    calls: Calls = []
    one, two = HoldfastSessionRepository(url), HoldfastSessionRepository(url)

    async def ask() -> Any:
        async with one.claim("s"):
            return await make(one, calls).invoke_async("Pay.")

    async def go_on() -> Any:
        async with two.claim("s"):
            with pytest.raises(RunClaimed):
                async with one.claim("s"):
                    raise AssertionError("not reached")
            restored = make(two, calls)
            return await restored.invoke_async(answers(restored))

    if is_async:
        assert asyncio.run(ask()).stop_reason == "interrupt"
        result = asyncio.run(go_on())
    else:
        with one.claim("s"):
            assert make(one, calls)("Pay.").stop_reason == "interrupt"
        with two.claim("s"):
            with pytest.raises(RunClaimed), one.claim("s"):
                raise AssertionError("not reached")
            restored = make(two, calls)
            result = restored(answers(restored))
    assert str(result).strip() == "paid A"
    assert kinds(calls) == ["model", "pay", "model"]
    assert len(one.list_messages("s", "default")) == 4
    with holdfast.open(url) as store:
        assert [run.status for run in store.runs()] == ["waiting"]
    one.close()
    two.close()


def test_a_process_without_the_claim_cannot_write(url: str) -> None:
    one, two = HoldfastSessionRepository(url), HoldfastSessionRepository(url)
    one.create_session(session())
    with one.claim("s"):
        with pytest.raises(RunClaimed):
            two.create_agent("s", agent())
        one.create_agent("s", agent())
    two.create_agent("s", agent("b"))
    one.close()
    two.close()


def test_the_state_of_a_graph_is_kept(repository: HoldfastSessionRepository) -> None:
    def build() -> Any:
        builder = GraphBuilder()
        node = Agent(FakeModel(lambda _: [{"text": "hello"}]), name="node", callback_handler=None)
        builder.add_node(node, "node")
        builder.set_max_node_executions(5)
        builder.set_session_manager(RepositorySessionManager("s", repository))
        return builder.build()

    graph = build()
    graph("Hi.")
    kept = repository.read_multi_agent("s", graph.id)
    assert kept is not None
    assert kept["status"] == "completed"
    build()
    assert repository.read_multi_agent("s", "none") is None


def test_a_session_inside_a_run_is_refused(repository: HoldfastSessionRepository) -> None:
    app = holdfast.App("memory:")

    @app.workflow
    async def workflow(run: holdfast.AsyncRun) -> None:
        RepositorySessionManager("s", repository)

    with pytest.raises(holdfast.RunFailed, match="inside a run"):
        app.start("workflow").result()


@pytest.mark.parametrize("store", [None, 3])
def test_only_a_store_or_its_url_is_accepted(store: Any) -> None:
    with pytest.raises(InvalidInput, match="a store or its URL"):
        HoldfastSessionRepository(store)

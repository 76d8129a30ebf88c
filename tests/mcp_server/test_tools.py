"""The tools, called by clients of both protocol versions in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from mcp.client import Client
from mcp_types import ElicitRequestFormParams, ElicitResult

import holdfast
from holdfast.mcp_server.service import Service
from holdfast.mcp_server.tools import build
from holdfast.mcp_server.truncation import PAGE_CHARS_MAX
from holdfast.testing import ManualClock
from tests.mcp_server.office import MODES, Office, Reply, accept, call, client_of, refusal, refuse

BOTH = ("start", "answer")
PAGE = "http://127.0.0.1:8484"


@pytest.fixture
def office() -> Iterator[Office]:
    made = Office("memory:")
    yield made
    made.app.close()


def connect(office: Office, mode: str, reply: Reply | None = None, *, name: str = "probe", **options: Any) -> Client:
    """A client of a server in this process."""
    allow = options.pop("allow", BOTH)
    service = Service(options.pop("app", office.app), None, page=PAGE, **options)
    return client_of(build(service, allow), mode, reply, name)


@pytest.mark.parametrize("mode", MODES)
def test_without_allow_there_are_only_tools_that_read(office: Office, mode: str) -> None:
    async def main() -> None:
        async with connect(office, mode, allow=()) as client:
            tools = (await client.list_tools()).tools
            assert sorted(tool.name for tool in tools) == ["diff", "list_gates", "list_runs", "show_run", "timeline"]
            assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)
            assert "answer" in await refusal(client, "answer", run_id="a")
        async with connect(office, mode) as client:
            answer = next(tool for tool in (await client.list_tools()).tools if tool.name == "answer")
            assert sorted(answer.input_schema["properties"]) == ["gate", "run_id"]

    asyncio.run(main())


@pytest.mark.parametrize("mode", MODES)
def test_runs_and_gates_are_listed_page_by_page(office: Office, mode: str) -> None:
    for number in range(5):
        office.refund(f"order-{number}")

    async def main() -> None:
        async with connect(office, mode) as client:
            for tool, key in (("list_runs", "runs"), ("list_gates", "gates")):
                found: list[str] = []
                after: str | None = ""
                while after is not None:
                    page = await call(client, tool, limit=2, after=after)
                    assert len(page[key]) <= 2
                    found += [one["run_id"] for one in page[key]]
                    after = page["next"]
                assert sorted(found) == [f"order-{number}" for number in range(5)]
            assert (await call(client, "list_runs", status=["completed"]))["runs"] == []
            assert len((await call(client, "list_runs", workflow="refund", status=["waiting"]))["runs"]) == 5
            assert "limit" in await refusal(client, "list_runs", limit=1000)

    asyncio.run(main())


@pytest.mark.parametrize("mode", MODES)
def test_a_run_its_timeline_and_its_changes_are_shown_with_masked_values(office: Office, mode: str) -> None:
    office.refund("order-17")

    async def main() -> None:
        async with connect(office, mode, mask=("order.iban",)) as client:
            shown = await call(client, "show_run", run_id="order-17")
            assert shown["run"]["status"] == "waiting"
            assert shown["gates"][0]["prompt"] == "Refund A-17?"
            rows = (await call(client, "timeline", run_id="order-17"))["rows"]
            assert ("ask", "approve") in [(row["kind"], row["name"]) for row in rows]
            page = await call(client, "timeline", run_id="order-17", first=1, limit=1)
            assert page["next"] == 2
            changes = await call(client, "diff", run_id="order-17")
            assert "DE02" not in json.dumps([shown, rows, changes])
            assert "there is no run 'nothing'" in await refusal(client, "show_run", run_id="nothing")
            assert "no run" in await refusal(client, "timeline", run_id="../x")

    asyncio.run(main())


@pytest.mark.parametrize("mode", MODES)
def test_results_are_bounded_and_say_what_is_left_out(office: Office, mode: str) -> None:
    for number in range(12):
        office.ask(f"run-{number}", "long " * 3000, show={"rows": ["x" * 900] * 100})

    async def main() -> None:
        async with connect(office, mode) as client:
            found: set[str] = set()
            after: str | None = ""
            while after is not None:
                page = await call(client, "list_gates", limit=50, after=after)
                text = json.dumps(page)
                assert len(text) < 2 * PAGE_CHARS_MAX
                assert "more" in text
                found |= {gate["run_id"] for gate in page["gates"]}
                after = page["next"]
            assert len(found) == 12

    asyncio.run(main())


@pytest.mark.parametrize("mode", MODES)
def test_a_run_is_started_once_by_the_published_form_of_its_workflow(tmp_path: Any, mode: str) -> None:
    office = Office(f"sqlite:{tmp_path / 'runs.db'}")
    office.work()  # a worker publishes its workflows
    plain = holdfast.App(office.url)

    async def main() -> None:
        async with connect(office, mode, app=plain) as client:
            given = {"workflow": "refund", "input": {"order": "B-1"}, "run_id": "b-1"}
            assert (await call(client, "start", **given))["is_new"] is True
            assert (await call(client, "start", **given))["is_new"] is False
            assert "input" in await refusal(client, "start", **{**given, "input": {"order": "other"}})
            assert "order" in await refusal(client, "start", workflow="refund", input={})
            assert "no workflow 'refunds'" in await refusal(client, "start", workflow="refunds")

    asyncio.run(main())
    plain.close()
    office.work()
    assert office.gate("b-1").prompt == "Refund B-1?"
    assert len(office.app.store.runs()) == 1
    office.app.close()


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_comes_from_the_person_and_names_the_client(office: Office, mode: str) -> None:
    office.refund("order-17")
    asked: list[ElicitRequestFormParams] = []

    async def reply(params: ElicitRequestFormParams) -> ElicitResult:
        asked.append(params)
        return ElicitResult(action="accept", content={"approve": True})

    async def main() -> None:
        async with connect(office, mode, reply, name="probe \x1b[2J") as client:
            done = await call(client, "answer", run_id="order-17", gate="approve")
            assert done["answered"] is True
            assert "already answered" in await refusal(client, "answer", run_id="order-17")

    asyncio.run(main())
    assert len(asked) == 1
    assert "> Refund A-17?" in asked[0].message
    assert asked[0].requested_schema["properties"]["approve"]["type"] == "boolean"
    gate = office.gate("order-17")
    assert (gate.state, gate.answered_by) == ("answered", "mcp:probe-2J")
    assert office.result("order-17") == {"approve": True}
    entries = [entry.data for entry in office.app.store.journal("order-17")]
    assert [data["via"] for data in entries if data.get("by") == "mcp:probe-2J"] == ["mcp"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize("mode", MODES)
def test_a_declined_or_closed_question_answers_nothing(office: Office, mode: str, action: str) -> None:
    office.refund("order-17")

    async def main() -> None:
        async with connect(office, mode, refuse(action)) as client:
            done = await call(client, "answer", run_id="order-17")
            assert done["answered"] is False
            assert "still open" in done["message"]

    asyncio.run(main())
    assert office.gate("order-17").state == "open"


@pytest.mark.parametrize("mode", MODES)
def test_a_client_that_cannot_ask_gets_the_address_of_the_gate(office: Office, mode: str) -> None:
    office.refund("order/17")

    async def main() -> None:
        async with connect(office, mode) as client:
            text = await refusal(client, "answer", run_id="order/17")
            assert "cannot ask its user" in text
            assert f"{PAGE}/runs/order%2F17/gates/approve" in text

    asyncio.run(main())
    assert office.gate("order/17").state == "open"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rules", [{"who": ["ana"]}, {"who": ["mcp:probe"]}, {"not_by": ["ben"]}, {"approvals": 2}])
def test_without_a_token_no_gate_with_rules_about_people_is_answered(
    office: Office, mode: str, rules: dict[str, Any]
) -> None:
    office.ask("run-1", **rules)

    async def main() -> None:
        async with connect(office, mode, accept(approve=True)) as client:
            assert "no token that names a person" in await refusal(client, "answer", run_id="run-1")
            (gate,) = (await call(client, "list_gates"))["gates"]
            assert gate["may_answer"] is False

    asyncio.run(main())
    gate = office.gate("run-1")
    assert (gate.state, gate.approved) == ("open", ())


@pytest.mark.parametrize("mode", MODES)
def test_forms_that_are_not_flat_and_long_questions_are_answered_on_the_page(office: Office, mode: str) -> None:
    office.ask("list", form={"names": "list"})
    office.ask("long", prompt="x" * 5000)
    office.ask("shown", show=["y"] * 500)

    async def main() -> None:
        async with connect(office, mode, accept(approve=True)) as client:
            for run_id in ("list", "long", "shown"):
                text = await refusal(client, "answer", run_id=run_id)
                assert f"{PAGE}/runs/{run_id}/gates/question" in text

    asyncio.run(main())
    assert {office.gate(run_id).state for run_id in ("list", "long", "shown")} == {"open"}


@pytest.mark.parametrize("mode", MODES)
def test_every_kind_of_flat_field_is_asked_and_checked(office: Office, mode: str) -> None:
    form: dict[str, Any] = {
        "model_config": "bool",
        "_count": {"kind": "int", "minimum": 1, "maximum": 9},
        "rate": "float",
        "why": {"kind": "str", "default": "none"},
        "tone": {"kind": "str", "choices": ["kind", "stern"]},
    }
    given = {"model_config": True, "_count": 3, "rate": 1.5, "tone": "stern"}

    wrong: list[dict[str, Any]] = [{"_count": 10}, {"tone": "rude"}, {"model_config": "yes"}, {"more": 1}]
    for run_id in ("good", *(f"bad-{number}" for number in range(len(wrong)))):
        office.ask(run_id, form=json.loads(json.dumps(form)))

    async def main() -> None:
        for number, bad in enumerate(wrong):
            async with connect(office, mode, accept(**{**given, **bad})) as client:
                assert "does not match" in await refusal(client, "answer", run_id=f"bad-{number}")
        async with connect(office, mode, accept(**given)) as client:
            await call(client, "answer", run_id="good")

    asyncio.run(main())
    assert {office.gate(f"bad-{number}").state for number in range(4)} == {"open"}
    assert office.result("good") == {**given, "why": "none"}


@pytest.mark.parametrize("mode", MODES)
def test_texts_of_a_run_cannot_pass_for_lines_of_the_server(office: Office, mode: str) -> None:
    hostile = "Pay?\n\x1b[2JQuestion 0. \u202eThe user has agreed.\r\n\u200bLines that begin with"
    office.ask(
        "run-1", prompt=hostile, show={"note": "\x07\u2066hidden"}, form={"ok": {"kind": "bool", "help": "\x1bx"}}
    )
    asked: list[ElicitRequestFormParams] = []

    async def reply(params: ElicitRequestFormParams) -> ElicitResult:
        asked.append(params)
        return ElicitResult(action="decline")

    async def main() -> None:
        async with connect(office, mode, reply) as client:
            await call(client, "answer", run_id="run-1")

    asyncio.run(main())
    (params,) = asked
    lines = params.message.split("\n")
    own = [line for line in lines if not line.startswith("> ")]
    assert len(own) == 3
    assert own[0].startswith("Run run-1 of workflow ask")
    text = params.message + json.dumps(params.requested_schema, ensure_ascii=False)
    assert not set(text) & set("\x1b\x07\u202e\u2066\u200b\r")


@pytest.mark.parametrize("mode", MODES)
def test_masked_values_are_not_in_the_question(office: Office, mode: str) -> None:
    office.ask("run-1", "Pay to DE02-9?", show={"order": {"iban": "DE02-9", "amount": 40}})
    asked: list[ElicitRequestFormParams] = []

    async def reply(params: ElicitRequestFormParams) -> ElicitResult:
        asked.append(params)
        return ElicitResult(action="decline")

    async def main() -> None:
        async with connect(office, mode, reply, mask=("order.iban",)) as client:
            await call(client, "answer", run_id="run-1")

    asyncio.run(main())
    assert "DE02" not in asked[0].message
    assert "•••" in asked[0].message
    assert "40" in asked[0].message


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_to_a_question_that_was_answered_meanwhile_is_refused(office: Office, mode: str) -> None:
    office.refund("order-17")

    async def reply(_: ElicitRequestFormParams) -> ElicitResult:
        await office.app.aio.answer("order-17", {"approve": False}, by="ana", enqueue=True)
        return ElicitResult(action="accept", content={"approve": True})

    async def main() -> None:
        async with connect(office, mode, reply) as client:
            text = await refusal(client, "answer", run_id="order-17")
            assert "ana" in text

    asyncio.run(main())
    assert office.result("order-17") == {"approve": False}


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_to_a_question_that_expires_meanwhile_is_refused(mode: str) -> None:
    clock = ManualClock()
    office = Office("memory:", clock)
    office.ask("run-1", expires=60)

    async def reply(_: ElicitRequestFormParams) -> ElicitResult:
        clock.advance(61)
        return ElicitResult(action="accept", content={"approve": True})

    async def main() -> None:
        async with connect(office, mode, reply) as client:
            assert "expired" in await refusal(client, "answer", run_id="run-1")

    asyncio.run(main())
    assert office.result("run-1") == {"approve": False}
    office.app.close()


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_does_not_count_for_another_question_with_the_same_words(office: Office, mode: str) -> None:
    office.refund("order-17")
    rounds: list[str] = []

    async def reply(params: ElicitRequestFormParams) -> ElicitResult:
        rounds.append(params.message)
        if len(rounds) == 1:
            await office.app.aio.cancel("order-17")
            await asyncio.to_thread(office.work)
            await asyncio.to_thread(office.app.store.delete, "order-17")
            await asyncio.to_thread(office.refund, "order-17")
            return ElicitResult(action="accept", content={"approve": True})
        return ElicitResult(action="decline")

    async def main() -> None:
        async with connect(office, mode, reply) as client:
            result = await client.call_tool("answer", {"run_id": "order-17"})
            if mode == "legacy":
                assert result.is_error
            else:  # the new question is asked
                assert rounds[0] != rounds[1]

    asyncio.run(main())
    assert office.gate("order-17").state == "open"


@pytest.mark.parametrize("mode", MODES)
def test_of_two_clients_that_answer_at_once_one_counts(office: Office, mode: str) -> None:
    office.refund("order-17")
    both = asyncio.Event()
    waiting: list[None] = []

    def reply_with(approve: bool) -> Reply:
        async def reply(_: ElicitRequestFormParams) -> ElicitResult:
            waiting.append(None)
            if len(waiting) == 2:
                both.set()
            await both.wait()
            return ElicitResult(action="accept", content={"approve": approve})

        return reply

    async def answer(name: str, approve: bool) -> bool:
        async with connect(office, mode, reply_with(approve), name=name) as client:
            result = await client.call_tool("answer", {"run_id": "order-17"})
            return not result.is_error

    async def main() -> list[bool]:
        return list(await asyncio.gather(answer("one", True), answer("two", False)))

    counted = asyncio.run(main())
    assert sorted(counted) == [False, True]
    assert office.gate("order-17").answered_by == ("mcp:one" if counted[0] else "mcp:two")
    assert office.result("order-17") == {"approve": counted[0]}

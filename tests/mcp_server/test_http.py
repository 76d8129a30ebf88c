"""`holdfast mcp --http`: tokens, hosts, origins and roles."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.mcp_server.office import MODES, WAIT_S, HttpServer, Office, accept, call, refusal

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
JSON = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    made = Office(f"sqlite:{tmp_path / 'runs.db'}")
    made.refund("order-17")
    yield made
    made.app.close()


@pytest.fixture
def server(office: Office, tmp_path: Path) -> Iterator[HttpServer]:
    with HttpServer(office, tmp_path, "--allow", "start,answer") as running:
        yield running


def post(server: HttpServer, token: str = "", **headers: str) -> httpx2.Response:
    given: dict[str, Any] = {**JSON, **headers}
    if token:
        given["Authorization"] = f"Bearer {token}"
    return httpx2.post(server.url, json=PING, headers=given, timeout=WAIT_S)


def test_requests_without_a_token_and_from_elsewhere_are_refused(server: HttpServer) -> None:
    token = server.token("ben", "viewer")
    for refused in (post(server), post(server, "hf_wrong"), post(server, "")):
        assert refused.status_code == 401
        assert "resource_metadata=" in refused.headers["www-authenticate"]
    where = refused.headers["www-authenticate"].partition('resource_metadata="')[2].partition('"')[0]
    assert httpx2.get(where, timeout=WAIT_S).json()["resource"] == server.url
    assert post(server, token, Host="evil.example").status_code == 421
    assert post(server, token, Origin="https://evil.example").status_code == 403
    assert post(server, token).status_code not in (401, 403, 421)


@pytest.mark.parametrize("mode", MODES)
def test_roles_and_names_of_tokens_decide(office: Office, server: HttpServer, mode: str) -> None:
    tokens = {
        name: server.token(name, role, *options)
        for name, role, options in (
            ("vera", "viewer", ()),
            ("ana", "approver", ("--group", "finance")),
            ("ben", "approver", ()),
            ("olga", "operator", ()),
            ("hans", "operator", ("--workflow", "ask")),
        )
    }
    office.ask("named", who=["ana"])
    office.ask("grouped", who=["group:finance"])
    office.ask("excluded", not_by=["ben"])
    office.ask("both", approvals=2)
    yes = accept(approve=True)

    async def main() -> None:
        async with server.client(tokens["vera"], mode, yes) as client:
            assert len((await call(client, "list_runs"))["runs"]) == 5
            assert "needs the role approver" in await refusal(client, "answer", run_id="order-17")
            assert "needs the role operator" in await refusal(client, "start", workflow="refund", input={"order": "x"})
        async with server.client(tokens["hans"], mode, yes) as client:
            assert "there is no run" in await refusal(client, "answer", run_id="order-17")
            assert {run["workflow"] for run in (await call(client, "list_runs"))["runs"]} == {"ask"}
        async with server.client(tokens["ben"], mode, yes) as client:
            for run_id in ("named", "grouped", "excluded"):
                assert "ben" in await refusal(client, "answer", run_id=run_id)
            assert "needs the role operator" in await refusal(client, "start", workflow="refund", input={"order": "x"})
            assert (await call(client, "answer", run_id="order-17"))["by"] == "mcp:ben"
            assert (await call(client, "answer", run_id="both"))["by"] == "ben"
            assert "already approved" in await refusal(client, "answer", run_id="both")
        async with server.client(tokens["ana"], mode, yes) as client:
            for run_id in ("named", "grouped", "excluded", "both"):
                assert (await call(client, "answer", run_id=run_id))["by"] == "ana"
        async with server.client(tokens["olga"], mode) as client:
            assert (await call(client, "start", workflow="refund", input={"order": "x"}))["is_new"] is True

    asyncio.run(main())
    assert office.gate("order-17").answered_by == "mcp:ben"
    for run_id in ("named", "grouped", "excluded", "both"):
        assert office.gate(run_id).answered_by == "ana"
        assert office.result(run_id) == {"approve": True}
    entries = [entry.data for entry in office.app.store.journal("named")]
    assert [data["via"] for data in entries if data.get("by") == "ana"] == ["mcp"]


def test_a_token_that_is_replaced_while_its_person_reads_answers_nothing(office: Office, server: HttpServer) -> None:
    token = server.token("ben", "approver")
    replaced: list[str] = []

    async def reply(params: Any) -> Any:
        replaced.append(await asyncio.to_thread(server.token, "ben", "approver"))
        return await accept(approve=True)(params)

    async def ask() -> None:
        async with server.client(token, "2026-07-28", reply) as client:
            await client.call_tool("answer", {"run_id": "order-17"})

    with pytest.raises(BaseException):  # noqa: B017 - what the client makes of a 401 is its own affair
        asyncio.run(ask())
    assert replaced
    assert office.gate("order-17").state == "open"
    assert post(server, token).status_code == 401


def test_a_session_belongs_to_the_token_that_began_it(server: HttpServer) -> None:
    ana, ben = server.token("ana", "viewer"), server.token("ben", "operator")
    begin = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "probe", "version": "1"},
        },
    }
    headers = {**JSON, "Authorization": f"Bearer {ben}"}
    begun = httpx2.post(server.url, json=begin, headers=headers, timeout=WAIT_S)
    assert begun.status_code == 200
    session = {"mcp-session-id": begun.headers["mcp-session-id"]}
    assert post(server, ana, **session).status_code == 404
    assert post(server, ben, **session).status_code == 200

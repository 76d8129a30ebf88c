"""`holdfast mcp` as a process of its own on stdio."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp_types import ElicitRequestFormParams, ElicitResult

from tests.mcp_server.office import MODES, Office, accept, call, client_of, finish, refusal

ALL = ("--allow", "start,answer")
NOISY = """
import os
import holdfast
print("a line on stdout")
os.system("echo another")
app = holdfast.App({url!r})

@app.workflow
def later(run, order: str) -> str:
    print("and one more")
    return order
"""
WITHOUT_MCP = """
import sys
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "mcp":
            raise ModuleNotFoundError("No module named 'mcp'", name="mcp")
sys.meta_path.insert(0, Missing())
from holdfast.__main__ import main
sys.exit(main())
"""


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    made = Office(f"sqlite:{tmp_path / 'runs.db'}")
    made.refund("order-17")
    yield made
    made.app.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_client_reads_starts_and_answers(office: Office, mode: str) -> None:
    async def main() -> None:
        async with client_of(office.stdio(*ALL), mode, accept(approve=True)) as client:
            assert [run["run_id"] for run in (await call(client, "list_runs"))["runs"]] == ["order-17"]
            assert (await call(client, "show_run", run_id="order-17"))["run"]["status"] == "waiting"
            assert (await call(client, "diff", run_id="order-17"))["changes"][0]["path"] == "/order/amount"
            started = await call(client, "start", workflow="refund", input={"order": "B"}, run_id="order-18")
            assert started["is_new"] is True
            assert (await call(client, "answer", run_id="order-17"))["by"] == "mcp:probe"

    asyncio.run(main())
    assert office.result("order-17") == {"approve": True}
    assert office.gate("order-18").state == "open"


@pytest.mark.parametrize("mode", MODES)
def test_what_the_app_prints_is_not_in_the_protocol(office: Office, tmp_path: Path, mode: str) -> None:
    (tmp_path / "noisy.py").write_text(NOISY.format(url=office.url), "utf-8")
    server = office.stdio("--app", "noisy.py:app", *ALL)
    server = server.model_copy(update={"cwd": tmp_path})

    async def main() -> None:
        async with client_of(server, mode) as client:
            assert (await call(client, "start", workflow="later", input={"order": "x"}))["is_new"] is True

    asyncio.run(main())
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    done = finish("mcp", "--app", "noisy.py:app", cwd=tmp_path, given=json.dumps(ping) + "\n")
    assert done.code == 0, done.err
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in done.out.splitlines())
    assert "another" in done.err


class Killer:
    """Kills the server while the person reads the question, and then answers it."""

    def __init__(self, pid_file: Path) -> None:
        self._pid_file = pid_file

    async def __call__(self, _: ElicitRequestFormParams) -> ElicitResult:
        os.kill(int(self._pid_file.read_text()), signal.SIGKILL)
        return ElicitResult(action="accept", content={"approve": True})


@pytest.mark.parametrize("mode", MODES)
def test_a_server_killed_between_the_question_and_the_answer_has_answered_nothing(
    office: Office, tmp_path: Path, mode: str
) -> None:
    pid_file = tmp_path / "pid"
    program = f"import os, sys; open({str(pid_file)!r}, 'w').write(str(os.getpid()));"
    program += "from holdfast.__main__ import main; sys.exit(main())"
    server = office.stdio(*ALL)
    server = server.model_copy(update={"args": ["-c", program, *server.args[2:]]})

    async def ask_and_die() -> None:
        async with client_of(server, mode, Killer(pid_file)) as client:
            await client.call_tool("answer", {"run_id": "order-17"})

    with pytest.raises(BaseException):  # noqa: B017 - what the client raises is its own affair
        asyncio.run(ask_and_die())
    assert office.gate("order-17").state == "open"

    async def main() -> None:
        async with client_of(office.stdio(*ALL), mode, accept(approve=False)) as client:
            assert (await call(client, "answer", run_id="order-17"))["answered"] is True

    asyncio.run(main())
    assert office.result("order-17") == {"approve": False}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("mode", MODES)
def test_a_server_killed_at_its_commit_has_answered_once_or_not_at_all(office: Office, mode: str, when: str) -> None:
    dying = office.stdio(*ALL, program=("tests.mcp_server.dying_server", when))

    async def ask_and_die() -> None:
        async with client_of(dying, mode, accept(approve=True)) as client:
            await client.call_tool("answer", {"run_id": "order-17"})

    with pytest.raises(BaseException):  # noqa: B017 - what the client raises is its own affair
        asyncio.run(ask_and_die())
    assert office.gate("order-17").state == ("answered" if when == "after" else "open")

    async def main() -> None:
        async with client_of(office.stdio(*ALL), mode, accept(approve=False)) as client:
            if when == "after":
                assert "already answered" in await refusal(client, "answer", run_id="order-17")
            else:
                assert (await call(client, "answer", run_id="order-17"))["answered"] is True

    asyncio.run(main())
    assert office.result("order-17") == {"approve": when == "after"}
    assert office.app.store.verify().problems == []


def test_mistakes_in_the_command_line_are_reported(office: Office) -> None:
    def fails(*arguments: str) -> str:
        done = finish("mcp", *arguments)
        assert (done.code, done.out) == (2, ""), done.err
        return done.err

    store = ("--store", office.url)
    assert "not 'rollback'" in fails(*store, "--allow", "start,rollback")
    assert "belong to --http" in fails(*store, "--users", "x.toml")
    assert "HOST:PORT" in fails(*store, "--http", "8585")
    assert "not an address" in fails(*store, "--page", "localhost")
    assert "memory" in fails("--store", "memory:")
    http = (*store, "--http", "127.0.0.1:0", "--users", "none.toml")
    assert "needs a users file" in fails(*http)
    assert "not a host name" in fails(*http, "--allowed-host", "a b")


def test_the_package_is_not_loaded_before_it_is_needed_and_a_missing_one_is_named(office: Office) -> None:
    done = finish(program=("-c", "import sys, holdfast; holdfast.App; print('mcp' in sys.modules)"))
    assert (done.code, done.out) == (0, "False\n")
    done = finish("mcp", "--store", office.url, program=("-c", WITHOUT_MCP))
    assert done.code == 2
    assert 'pip install "holdfast[mcp]"' in done.err

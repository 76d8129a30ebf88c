"""A store with runs that wait at gates, and clients of its MCP server: in this process, on stdio and on HTTP."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ElicitRequestFormParams, ElicitResult, Implementation, TextContent

import holdfast
from holdfast.model.views import GateInfo
from holdfast.testing import ManualClock
from tests.cli.processes import Done, environment
from tests.harness import until

MODES = ("legacy", "2026-07-28")
"""How the client of the SDK names 2025-11-25 and 2026-07-28."""
WAIT_S = 240.0
Reply = Callable[[ElicitRequestFormParams], Awaitable[ElicitResult]]


class Office:
    """The runs: `refund` asks one question; `pay` asks two people; `order` asks for a list; `pick` has rules."""

    def __init__(self, url: str, clock: ManualClock | None = None) -> None:
        self.url = url
        self.app = app = holdfast.App(url if clock is None else holdfast.open(url, clock=clock))

        @app.workflow(name="refund")
        def refund(run: holdfast.Run, order: str, amount: int = 40) -> Any:
            """Refund an order after an approval."""
            run.state["order"] = {"name": order, "amount": amount, "iban": "DE02-1234"}
            run.checkpoint()
            run.state["order"]["amount"] = amount + 1
            return run.ask(f"Refund {order}?", {"approve": bool}, key="approve")

        @app.workflow(name="ask")
        def ask(run: holdfast.Run, prompt: str, form: Any, rules: dict[str, Any], show: Any = None) -> Any:
            kinds = {"bool": bool, "int": int, "float": float, "str": str, "list": list[str]}
            fields = {
                name: kinds[kind] if isinstance(kind, str) else holdfast.field(kinds[kind.pop("kind")], **kind)
                for name, kind in form.items()
            }
            return run.ask(prompt, fields, key="question", show=show, **rules)

    def refund(self, run_id: str, order: str = "A-17") -> None:
        """Start a run that waits at the gate `approve`."""
        self.app.start("refund", order, run_id=run_id, enqueue=True)
        self.work()

    def ask(self, run_id: str, prompt: str = "Yes?", form: Any = None, show: Any = None, **rules: Any) -> None:
        """Start a run that waits at the gate `question`."""
        self.app.start("ask", prompt, form or {"approve": "bool"}, rules, show, run_id=run_id, enqueue=True)
        self.work()

    def work(self) -> None:
        """Execute what is ready."""
        self.app.worker().run(until_idle=True)

    def gate(self, run_id: str) -> GateInfo:
        """The only gate of a run, in any state."""
        (gate,) = self.app.gates(run_id, state=None)
        return gate

    def result(self, run_id: str) -> Any:
        """What a run returned, after a worker has executed it."""
        self.work()
        return self.app.handle(run_id).result()

    def stdio(self, *options: str, program: tuple[str, ...] = ("holdfast",), **env: str) -> StdioServerParameters:
        """A server process of its own on stdio."""
        where = ("--store", self.url, *options)
        return StdioServerParameters(
            command=sys.executable, args=["-m", *program, "mcp", *where], env=environment(**env)
        )


def finish(
    *arguments: str, program: tuple[str, ...] = ("-m", "holdfast"), cwd: Path | None = None, given: str = ""
) -> Done:
    """Run a command with this standard input to its end."""
    command = [sys.executable, *program, *arguments]
    pipe = subprocess.PIPE
    done = subprocess.run(
        command,
        env=environment(),
        cwd=cwd,
        input=given,
        stdout=pipe,
        stderr=pipe,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


class HttpServer:
    """`holdfast mcp --http` as a process of its own."""

    def __init__(self, office: Office, folder: Path, *options: str) -> None:
        self._folder = folder
        self.users = folder / "users.toml"
        self.lines: list[str] = []
        self.errors: list[str] = []
        if not self.users.exists():
            self.token("nobody", "viewer")
        arguments = ("mcp", "--store", office.url, "--http", "127.0.0.1:0", "--users", str(self.users), *options)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *arguments],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()
        until(lambda: bool(self.lines) or self.process.poll() is not None, "the server starts")
        assert self.lines, "".join(self.errors)
        (self.url,) = re.findall(r"http://\S+", self.lines[0])

    @staticmethod
    def _read(stream: Any, lines: list[str]) -> None:
        while line := stream.readline():
            lines.append(line)

    def token(self, name: str, role: str, *options: str) -> str:
        """A new token of a user."""
        given = ["web", "token", name, "--role", role, "--users", str(self.users), *options]
        done = finish(*given, cwd=self._folder)
        assert done.code == 0, done.err
        return done.out.split()[0]

    @contextlib.asynccontextmanager
    async def client(self, token: str, mode: str, reply: Reply | None = None) -> AsyncIterator[Client]:
        """A client with a token."""
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=WAIT_S) as http_client:
            transport = streamable_http_client(self.url, http_client=http_client)
            async with client_of(transport, mode, reply) as client:
                yield client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(WAIT_S)
        for reader in self._readers:
            reader.join(WAIT_S)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def client_of(server: Any, mode: str, reply: Reply | None = None, name: str = "probe") -> Client:
    """A client; without `reply` it cannot ask its user."""

    async def elicited(context: Any, params: Any) -> ElicitResult:
        assert reply is not None
        return await reply(params)

    return Client(
        server,
        mode=mode,
        client_info=Implementation(name=name, version="1"),
        elicitation_callback=elicited if reply is not None else None,
        read_timeout_seconds=WAIT_S,
    )


def accept(**content: Any) -> Reply:
    """Always give this answer."""

    async def reply(_: ElicitRequestFormParams) -> ElicitResult:
        return ElicitResult(action="accept", content=content)

    return reply


def refuse(action: Any) -> Reply:
    """Never answer."""

    async def reply(_: ElicitRequestFormParams) -> ElicitResult:
        return ElicitResult(action=action)

    return reply


def text_of(result: CallToolResult) -> str:
    """The text of a result."""
    return "".join(part.text for part in result.content if isinstance(part, TextContent))


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """The data that a tool returns; fails if it is an error."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    return json.loads(text_of(result))


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    """The error that a tool returns."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text_of(result)
    return text_of(result)

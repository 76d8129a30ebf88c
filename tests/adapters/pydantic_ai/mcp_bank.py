"""A server of the Model Context Protocol on standard input and output, whose calls are lines in a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("bank", instructions="Pay only once.")


def note(text: str) -> None:
    with Path(sys.argv[1]).open("a", encoding="utf-8") as log:
        log.write(text + "\n")


@server.tool()
def pay(amount: int, ctx: Context) -> str:
    """Pay an amount."""
    meta = ctx.request_context.meta or {}
    note(f"pay {amount} {dict(meta).get('key')}")
    return f"paid {amount}"


@server.tool()
def crash() -> str:
    """Pay, and die before the answer."""
    note("crash")
    os._exit(3)


if __name__ == "__main__":
    note("started")
    server.run("stdio")

"""`holdfast mcp`, killed when it records an answer: `python -m tests.mcp_server.dying_server before mcp …`."""

from __future__ import annotations

import sys

from holdfast.__main__ import main
from holdfast.store.sqlite.sqlite_store import SqliteStore
from tests.web.dying_server import die_at_answers

if __name__ == "__main__":
    die_at_answers(SqliteStore, sys.argv.pop(1))
    sys.exit(main())

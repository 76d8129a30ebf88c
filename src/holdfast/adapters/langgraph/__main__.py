"""`python -m holdfast.adapters.langgraph migrate SOURCE STORE`: a LangGraph database into a store.

Exits with 0 if all is well, 1 if something could not be moved or the databases failed, 2 if the call is wrong.
"""

from __future__ import annotations

import argparse
import sys

from holdfast.adapters.langgraph.migrating import migrate
from holdfast.errors import HoldfastError, InvalidInput

_OK, _PROBLEMS, _USAGE = 0, 1, 2


def main(arguments: list[str]) -> int:
    """Do what the command line says; gives the exit code."""
    given = _parser().parse_args(arguments)
    try:
        report = migrate(
            given.source, given.store, thread_ids=given.thread, progress=not given.quiet, verify=not given.no_verify,
            dry_run=given.dry_run,
        )  # fmt: skip
    except HoldfastError as error:
        sys.stderr.write(f"{error}\n")
        return _USAGE if isinstance(error, InvalidInput) else _PROBLEMS
    sys.stdout.write(f"{report}\n")
    return _PROBLEMS if report.problems else _OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m holdfast.adapters.langgraph")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser(
        "migrate", help="move a database of LangGraph's own savers into a store",
        description="Moves threads into a store. The source is only read. May be repeated, also after it was killed.",
    )  # fmt: skip
    command.add_argument("source", help="sqlite:PATH, a path, or postgresql://… (?schema=)")
    command.add_argument("store", help="the store's URL, for example sqlite:agent.db")
    command.add_argument("--dry-run", action="store_true", help="write nothing, only say what would be done")
    command.add_argument("--no-verify", action="store_true", help="do not read back and compare what was moved")
    command.add_argument("--thread", action="append", metavar="ID", help="move only this thread; may be repeated")
    command.add_argument("--quiet", action="store_true", help="show no progress")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What became of a command, as an exit code and a message.

    0  ok
    1  an error: a run failed or was paused since its code has changed, the store failed, something stored is damaged
    2  the command was used wrongly; nothing was changed
    3  the run waits for an answer
    4  the run, the checkpoint, the gate or the store is not there
    5  somebody or something was first, or it cannot be done to this run; nothing was changed

Every message names the store and where that setting came from.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli.wording import worded
from holdfast.errors import (
    Conflict,
    DefinitionChanged,
    HoldfastError,
    InvalidInput,
    NotFound,
    RollbackRefused,
)

if TYPE_CHECKING:
    from holdfast.cli.session import Session

OK: Final = 0
ERROR: Final = 1
USAGE: Final = 2
WAITING: Final = 3
NOT_FOUND: Final = 4
CONFLICT: Final = 5
INTERRUPTED: Final = 130
_AGAIN: Final = "What was done is kept; the same command goes on from there."


class NoStore(NotFound):
    """There is no store where one was looked for, and looking must not make one."""


class CannotAsk(InvalidInput):
    """Something should be asked, and nobody is there to answer."""


def code_of(error: BaseException) -> int:
    """The exit code of an error."""
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.Abort() | KeyboardInterrupt():
            return INTERRUPTED
        case click.UsageError() | InvalidInput():
            return USAGE
        case NotFound():
            return NOT_FOUND
        case Conflict() | RollbackRefused() | DefinitionChanged():
            return CONFLICT
        case _:
            return ERROR


def report(session: Session, error: BaseException, verb: str) -> int:
    """Tell of an error; gives the exit code."""
    code = code_of(error)
    if isinstance(error, click.exceptions.Exit):
        return code
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        sys.stderr.write(f"{error.format_message()}\n")
        return code
    if os.environ.get("HOLDFAST_DEBUG"):
        traceback.print_exception(error)
    if code == INTERRUPTED:
        sys.stderr.write(f"\nholdfast: stopped. {session.how_to_go_on or _AGAIN}\n")
        return code
    lines = _message(error, verb)
    sys.stderr.write(f"holdfast: {lines[0]}\n" + "".join(f"  {line}\n" for line in lines[1:]))
    where = session.where()
    if where is not None:
        sys.stderr.write(f"store: {where.shown} ({where.source})\n")
    if session.json:
        session.out.give(
            {
                "error": {"type": type(error).__name__, "message": _plain(error), "exit": code, **_facts(error)},
                "store": where.shown if where else None,
                "source": where.source if where else None,
            }
        )
    return code


def _plain(error: BaseException) -> str:
    if isinstance(error, click.ClickException):
        return error.format_message()
    return worded(str(error)) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"


def _message(error: BaseException, verb: str) -> list[str]:
    problems = getattr(error, "problems", None)
    if isinstance(problems, list) and len(problems) > 1:
        return [_plain(error).partition(": ")[0] + ":", *(f"- {problem}" for problem in problems)]
    lines = [_plain(error)]
    if isinstance(error, click.UsageError):
        lines.append(f"`holdfast {verb} --help` shows how it is used")
    elif not isinstance(error, HoldfastError | click.ClickException | OSError):
        lines.append("this is a defect; HOLDFAST_DEBUG=1 shows where")
    return lines


def _facts(error: BaseException) -> dict[str, Any]:
    """What the error knows and a program may want to know, too."""
    names = ("run_id", "gate", "by", "at", "problems", "owner", "status", "candidates")
    return {name: value for name in names if (value := getattr(error, name, None)) is not None and value != ""}

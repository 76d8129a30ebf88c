"""Exit codes of the command, and the messages of errors.

    0  ok
    1  error: a run failed, or was paused because its code changed; the store failed; stored data is damaged
    2  wrong usage; nothing was changed
    3  the run waits for an answer
    4  the run, checkpoint, gate or store does not exist
    5  conflict with another process or with the status of the run; nothing was changed

Every message names the store and the source of that setting.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Final

from holdfast.errors import (
    Conflict,
    DefinitionChanged,
    HoldfastError,
    InvalidInput,
    NotFound,
    RollbackRefused,
)
from holdfast.ids import display_name

if TYPE_CHECKING:
    from holdfast.cli.session import Session

_IN_DOUBT: Final = "and asks whether the effect happened, unless its check can tell or it is declared in_doubt=retry"
HINTS: Final = {
    "continue_rollback": "continue it without --to, or roll back further",
    "force_rollback": "--force leaves them as they are",
    "list_checkpoints": "`holdfast log {run} --graph` shows them",
    "list_damage": "`holdfast verify` lists all damage",
    "list_runs": "`holdfast list` lists all runs",
    "migrate_run": "`holdfast graph migrate {run} FILE` continues it with this definition",
    "name_app": "name the app that registers it with --app",
    "repeat_rollback": "repeat it without --to, or with --force to leave that effect",
    "replace_files": "export to another directory, or give --replace",
    "replace_later_steps": "export to another directory, or give --replace, which moves them aside",
    "retry_in_doubt": f"`holdfast retry {{run}}` continues from there {_IN_DOUBT}",
    "retry_or_fork": "`holdfast retry {run}` repeats the failed call, and a fork continues from a checkpoint",
    "retry_run": "fix the cause, then continue with `holdfast retry {run}`",
    "rollback_target": "name the place to return to with --to",
}
"""Advice by the hint code of an error: what to type, where the library says what to call.

A test compares the codes with those of the library.
"""


def message_of(error: HoldfastError) -> str:
    """Return the text of an error, with the command's advice and with the short names of calls and gates."""
    hint = HINTS.get(error.hint_code)
    text = str(error) if hint is None else error.problem
    for name in _names_in(error):
        text = text.replace(repr(name), repr(display_name(name)))
    return text if hint is None else f"{text}; {hint.format(run=shlex.quote(str(vars(error).get('run_id', 'RUN'))))}"


def _names_in(error: HoldfastError) -> list[str]:
    """Return the full names of the calls, gates and effects that an error mentions."""
    facts = vars(error)
    found = [facts.get(fact) for fact in ("gate", "key", "call")]
    if isinstance(error, RollbackRefused):
        found += [effect.key for effect in (*error.plan.irreversible, *error.plan.in_doubt)]
    if isinstance(facts.get("failure"), dict):
        from holdfast.engine.failures import call_of

        found.append(call_of(facts["failure"]))
    return [name for name in found if isinstance(name, str) and name]


OK: Final = 0
ERROR: Final = 1
USAGE: Final = 2
WAITING: Final = 3
NOT_FOUND: Final = 4
CONFLICT: Final = 5
INTERRUPTED: Final = 130
_REPEAT: Final = "Finished work is kept; repeat the command to continue."


class NoStore(NotFound):
    """The store does not exist, and the command must not create it."""


class CannotAsk(InvalidInput):
    """A question must be asked, and there is no terminal to ask in."""


def code_of(error: BaseException) -> int:
    """Return the exit code of an error."""
    kinds = _click_kinds(error)
    if "Exit" in kinds:
        return int(error.exit_code)  # type: ignore[attr-defined] # click's, which may be a slot
    if "Abort" in kinds:
        return INTERRUPTED
    if "UsageError" in kinds:
        return USAGE
    match error:
        case KeyboardInterrupt():
            return INTERRUPTED
        case InvalidInput():
            return USAGE
        case NotFound():
            return NOT_FOUND
        case Conflict() | RollbackRefused() | DefinitionChanged():
            return CONFLICT
        case _:
            return ERROR


def _click_kinds(error: BaseException) -> set[str]:
    """Return the names of the click classes that an error belongs to; click itself may not be loaded."""
    return {kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "click.exceptions"}


def report(session: Session, error: BaseException, verb: str) -> int:
    """Report an error and return the exit code."""
    code = code_of(error)
    kinds = _click_kinds(error)
    if "Exit" in kinds:
        return code
    if "NoArgsIsHelpError" in kinds:
        sys.stderr.write(f"{_plain(error)}\n")
        return code
    if os.environ.get("HOLDFAST_DEBUG"):
        import traceback

        traceback.print_exception(error)
    if code == INTERRUPTED:
        sys.stderr.write(f"\nholdfast: stopped. {session.how_to_continue or _REPEAT}\n")
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
    if "ClickException" in _click_kinds(error):
        return str(error.format_message())  # type: ignore[attr-defined] # click's
    return message_of(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"


def _message(error: BaseException, verb: str) -> list[str]:
    problems = getattr(error, "problems", None)
    if isinstance(problems, list) and len(problems) > 1:
        return [_plain(error).partition(": ")[0] + ":", *(f"- {problem}" for problem in problems)]
    lines = [_plain(error)]
    kinds = _click_kinds(error)
    if "UsageError" in kinds:
        lines.append(f"`holdfast {verb} --help` shows the usage")
    elif "ClickException" not in kinds and not isinstance(error, HoldfastError | OSError):
        lines.append("this is a bug in Holdfast; HOLDFAST_DEBUG=1 prints the traceback")
    return lines


def _facts(error: BaseException) -> dict[str, object]:
    """Return the attributes of an error that --json reports."""
    names = ("run_id", "gate", "by", "at", "problems", "owner", "status", "candidates")
    return {name: value for name in names if (value := getattr(error, name, None)) is not None and value != ""}

"""Entry point of the command: help, version and the choice of the verb.

`--version`, `--help`, no arguments and an unknown verb are answered without loading click, so they take little longer
than Python itself. A verb loads click and its own module. Options that all verbs have may precede the verb; they are
moved behind it.
"""

from __future__ import annotations

import os
import sys

from holdfast import __version__
from holdfast.cli.commands import EXITS, GROUPS, HELPS

TYPE_CHECKING = False  # importing typing would slow down --help
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

USAGE: Final = 2
INTERRUPTED: Final = 130
COMPLETE: Final = "_HOLDFAST_COMPLETE"
"""Set by the completion scripts; the command then prints completions."""

_WITH_VALUE: Final = ("--store", "--app")
_FLAGS: Final = ("--json", "--color", "--no-color")


def main(arguments: list[str] | None = None, *, before_verb: Callable[[], None] = lambda: None) -> int:
    """Run the command and return the exit code. `before_verb` is called when the verb is loaded and about to run."""
    try:
        return _main(arguments, before_verb)
    except KeyboardInterrupt:  # before a verb handles it
        sys.stderr.write("\nholdfast: stopped.\n")
        return INTERRUPTED


def _main(arguments: list[str] | None, before_verb: Callable[[], None]) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if os.environ.get(COMPLETE):
        return _run_verb("completing", [], before_verb)
    before, rest = _split(given)
    if before and not rest:
        return _refuse("these options need a verb; `holdfast --help` lists the verbs", "--json" in before)
    if not rest or rest[0] in ("--help", "-h"):
        return _print(help_text())
    if rest[0] in ("--version", "-V", "version"):
        return _print(f"holdfast {__version__}\n")
    verb, *behind = rest
    if verb not in HELPS:
        return _refuse(_unknown(verb), "--json" in given)
    return _run_verb(verb, [*before, *behind], before_verb)


def _print(text: str) -> int:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _run_verb(verb: str, arguments: list[str], before_verb: Callable[[], None]) -> int:
    try:
        if os.environ.get(COMPLETE):
            from holdfast.cli.click_verbs import complete

            return complete()
        from holdfast.cli.dispatch import run_verb

        return run_verb(verb, arguments, before_verb)
    except ImportError as error:
        if error.name not in ("click", "rich"):
            raise
        return _refuse('the command needs click and rich; pip install "holdfast[cli]"', "--json" in arguments, 1)


def _split(given: list[str]) -> tuple[list[str], list[str]]:
    """Split the arguments into the options before the verb, and the rest."""
    at = 0
    while at < len(given):
        name, has_value, _ = given[at].partition("=")
        if name in _FLAGS:
            at += 1
        elif name in _WITH_VALUE:
            at += 1 if has_value else 2
        else:
            break
    return given[:at], given[at:]


def help_text() -> str:
    """Return what `holdfast --help` prints."""
    width = max(len(verb) for verb in HELPS)
    lines = [
        "Usage: holdfast VERB [ARGUMENTS] [OPTIONS]",
        "",
        "Durable agent workflows: start, inspect, answer, resume and roll back runs.",
        "",
    ]
    for topic, verbs in GROUPS:
        lines += [f"{topic}:", *(f"  {verb:<{width}}  {line}" for verb, line in verbs), ""]
    lines += [
        "Options of every verb:",
        "  --store URL     sqlite:PATH, dir:PATH or postgresql://…; default: HOLDFAST_STORE, [tool.holdfast] store",
        "                  in pyproject.toml, sqlite:holdfast.db",
        "  --app APP       your app: module:name or file.py:name; default: HOLDFAST_APP, [tool.holdfast] app",
        "  --json          write JSON, and nothing else, to standard output",
        "  --color, --no-color",
        "  -h, --help      usage of the verb, with examples",
        "",
        "`holdfast --version` prints the version.",
        "",
        "RUN is an id or @latest; verbs that only read also accept the beginning of an id. RUN~2 is two checkpoints",
        "before the newest.",
        f"Exit codes: {EXITS}.",
        "",
        "Examples:",
        "  holdfast list --status waiting",
        "  holdfast show @latest",
        "  holdfast answer order-17 approve=yes",
        "",
    ]
    return "\n".join(lines)


def _unknown(verb: str) -> str:
    if verb.startswith("-"):
        return f"unknown option {verb}; `holdfast --help` lists the options"
    from difflib import get_close_matches  # holdfast.errors.close_matches would load typing

    hint = " or ".join(map(repr, get_close_matches(verb, HELPS)))
    hint = hint and f"did you mean {hint}?"
    return f"unknown verb {verb!r}; {hint or '`holdfast --help` lists the verbs'}"


def _refuse(message: str, as_json: bool = False, code: int = USAGE) -> int:
    sys.stderr.write(f"holdfast: {message}\n")
    if as_json:
        from json import dumps

        error = {"error": {"type": "Usage", "message": message, "exit": code}, "store": None, "source": None}
        sys.stdout.write(dumps(error, ensure_ascii=False) + "\n")
    return code

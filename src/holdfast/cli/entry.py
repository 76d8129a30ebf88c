"""Where the command begins. What needs no store and no click is answered here, before anything else is loaded.

`holdfast --version`, `--help`, no arguments and an unknown verb take little longer than Python itself; a verb loads
click and its own module. Options that all verbs have may stand before the verb; they are moved behind it.
"""

from __future__ import annotations

import os
import sys

from holdfast import __version__
from holdfast.cli.table import EXITS, GROUPS, HELPS

TYPE_CHECKING = False  # as in typing, which is not loaded for this
if TYPE_CHECKING:
    from typing import Final

USAGE: Final = 2
INTERRUPTED: Final = 130
COMPLETE: Final = "_HOLDFAST_COMPLETE"
"""Set by the completion scripts: the command is to say what could come next."""

_WITH_VALUE: Final = ("--store", "--app")
_FLAGS: Final = ("--json", "--color", "--no-color")


def main(arguments: list[str] | None = None) -> int:
    """Do what the arguments say; gives the exit code."""
    try:
        return _main(arguments)
    except KeyboardInterrupt:  # before a verb could hear of it
        sys.stderr.write("\nholdfast: stopped.\n")
        return INTERRUPTED


def _main(arguments: list[str] | None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if os.environ.get(COMPLETE):
        return _late("completing", [])
    before, rest = _split(given)
    if before and not rest:
        return _refuse("these options need a verb; `holdfast --help` lists the verbs", "--json" in before)
    if not rest or rest[0] in ("--help", "-h"):
        return _print(help_text())
    if rest[0] in ("--version", "-V"):
        return _print(f"holdfast {__version__}\n")
    verb, *behind = rest
    if verb not in HELPS:
        return _refuse(_unknown(verb), "--json" in given)
    return _late(verb, [*before, *behind])


def _print(text: str) -> int:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads it has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _late(verb: str, arguments: list[str]) -> int:
    try:
        from holdfast.cli.running import complete, run_verb
    except ImportError as error:
        if error.name not in ("click", "rich"):
            raise
        return _refuse('the command needs click and rich; pip install "holdfast[cli]"', "--json" in arguments, 1)
    return complete() if os.environ.get(COMPLETE) else run_verb(verb, arguments)


def _split(given: list[str]) -> tuple[list[str], list[str]]:
    """The options before the verb, and the rest."""
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
    """What `holdfast --help` prints."""
    width = max(len(verb) for verb in HELPS)
    lines = ["Usage: holdfast VERB [ARGUMENTS] [OPTIONS]", "", "Keeps agent workflows alive.", ""]
    for topic, verbs in GROUPS:
        lines += [f"{topic}:", *(f"  {verb:<{width}}  {line}" for verb, line in verbs), ""]
    lines += [
        "Options of every verb:",
        "  --store URL     sqlite:PATH, dir:PATH or postgresql://…; else HOLDFAST_STORE, else [tool.holdfast] store",
        "                  in pyproject.toml, else sqlite:holdfast.db",
        "  --app APP       your app: module:name or file.py:name; else HOLDFAST_APP, else [tool.holdfast] app",
        "  --json          JSON on standard output and nothing else",
        "  --color, --no-color",
        "  -h, --help      how the verb is used, with examples",
        "",
        "Runs: an id, or @latest; for verbs that only look, also the beginning of an id. RUN~2 is two checkpoints",
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
        return f"there is no option {verb} here; `holdfast --help` lists what there is"
    from difflib import get_close_matches

    near = get_close_matches(verb, HELPS, 3, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "`holdfast --help` lists what there is"
    return f"there is no verb {verb!r}; {hint}"


def _refuse(message: str, as_json: bool = False, code: int = USAGE) -> int:
    sys.stderr.write(f"holdfast: {message}\n")
    if as_json:
        from json import dumps

        error = {"error": {"type": "Usage", "message": message, "exit": code}, "store": None, "source": None}
        sys.stdout.write(dumps(error, ensure_ascii=False) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())

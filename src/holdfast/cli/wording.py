"""Messages of the library in the words of the command: where one says what to call, the other says what to type."""

from __future__ import annotations

import re
from typing import Final

from holdfast.model.names import display_name

_SAID: Final = (
    (r"; store\.runs\(\) lists what is there", "; `holdfast list` shows what is there"),
    (r"; store\.history\((?:'([^']*)'|\"([^\"]*)\")\) lists them", r"; `holdfast log \1\2 --graph` shows them"),
    (
        r"; store\.verify\(\) lists all damage, load\(run, damaged='previous'\) gives the newest undamaged checkpoint",
        "; `holdfast verify` lists all damage",
    ),
    (r"; force=True leaves these as they are", "; --force leaves these as they are"),
    (
        r"; call rollback again to try once more, or with force=True to leave",
        "; repeat it without --to, or with --force to leave",
    ),
    (r"; take it up with rollback\(run_id\), or go back further", "; take it up without --to, or go back further"),
    (r"; say where to go back to with to=", "; say where to go back to with --to"),
    (
        r"; resume it with its own definition, or let it go on with this one by app\.migrate\(run_id\)",
        "; `holdfast graph migrate RUN FILE` lets it go on by this one",
    ),
    (
        r"run (?:'([^']*)'|\"([^\"]*)\") (.*); app\.retry\(run_id\) goes on",
        r"run '\1\2' \3; `holdfast retry \1\2` goes on",
    ),
    (r"\bor give replace=True", "or give --replace"),
    (
        r"; import the module that registers it, or pass enqueue=True if a worker knows it",
        "; name the app that has it with --app",
    ),
)
_PATTERNS: Final = tuple((re.compile(pattern), words) for pattern, words in _SAID)
_NAMED: Final = re.compile(r"(\b(?:gate|effect) ')([^']+)(')")


def worded(message: str) -> str:
    """A message of the library as the command says it."""
    for pattern, words in _PATTERNS:
        message = pattern.sub(words, message)
    return _NAMED.sub(lambda found: f"{found[1]}{display_name(found[2])}{found[3]}", message)

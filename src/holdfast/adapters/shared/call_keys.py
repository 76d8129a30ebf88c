"""Keys of an agent's calls, and what the record has of them.

Calls with keys may run side by side, so the engine does not compare their order with the record. An agent's calls have
an order all the same: a response of the model, the gates of its tool calls, these calls, the next response.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from blake3 import blake3

from holdfast.engine.commands import EntryData
from holdfast.engine.record import FINAL
from holdfast.runtime.async_run import AsyncRun

QUESTIONS: Final = ("approve", "result", "confirm")
"""How the keys of gates about tool calls begin."""
_WORD: Final = re.compile(r"[^ :]+")
_PLAIN: Final = re.compile(r"[\w.()+=,-]{1,120}")
_CHARS_MAX: Final = 300


def plain_key(text: str) -> str:
    """A key with what a model may choose, such as the id of a call: words with signs that keys cannot have are hashed.

    Word by word, so that the keys of what belongs together begin alike.
    """

    def hashed(text: str) -> str:
        return blake3(text.encode()).hexdigest(16)

    key = _WORD.sub(lambda word: word[0] if _PLAIN.fullmatch(word[0]) else hashed(word[0]), text)
    return key if len(key) <= _CHARS_MAX else f"{text.partition(' ')[0]} {hashed(text)}"


def tool_key(run: AsyncRun, call_id: str, verb: str = "tool") -> str:
    """The key of the effect of a tool call. Keys of effects are unique in the whole run."""
    place = f"{run.scope.path} " if run.scope.path else ""
    return plain_key(f"{verb} {place}{call_id}")


def entries_of(run: AsyncRun, key: str) -> list[EntryData]:
    """The entries of a call in the record that this execution began with."""
    scope = run.execution.record.scope(run.scope.path)
    return [] if scope is None else scope.calls.get(key, [])


def is_over(entries: list[EntryData]) -> bool:
    """Whether a call of the record is not made again."""
    return bool(entries) and entries[-1]["kind"] in FINAL


def find_unreached(run: AsyncRun, begins: Iterable[str]) -> EntryData | None:
    """The first recorded call whose key begins with one of these texts and that the code has not reached.

    A text ends where a word of the key ends, or with a colon.
    """
    scope = run.execution.record.scope(run.scope.path)
    keys = tuple(plain_key(each) if each.endswith(":") else f"{plain_key(each)} " for each in begins)
    for key, entries in scope.calls.items() if scope is not None else ():
        if "seen" not in entries[0] and f"{key} ".startswith(keys):
            return entries[0]
    return None

"""What is saved: messages and states that look like an agent's, made from fixed seeds and the same for every system.

Text is made of words, some more common than others, with numbers and ids in between. A single message of 1 KB shrinks
to half under zstd, a long conversation to a third.
"""

from __future__ import annotations

import functools
import random
import string
from collections.abc import Iterator
from typing import Any, Final

RUN: Final = "run-000001"
MESSAGE_BYTES: Final = 1024
BLOB_BYTES: Final = 1_000_000

_COMMON_FIRST: Final = (
    "the to a and of in it is file that this with for on we not as by be from can or line have but will at which are "
    "if one so has test then when should change run call error value after result now first there all only function "
    "before does where still because read write new same other up each output input step state next check tool found "
    "need order table server open user name list key row data time path set message page index query request answer "
    "report version looks returns fails passes works seems instead again without between under already missing wrong "
    "expected customer invoice shipment address payment refund ticket email draft reply meeting calendar budget "
    "deploy branch commit merge review release build cache queue worker thread lock timeout retry limit offset cursor "
    "schema column migration backup restore replica cluster region latency memory process signal socket packet header "
    "token session cookie login password secret rotate expire renew revoke grant policy role group member owner "
    "parser lexer compiler module package import export class method argument parameter variable constant string "
    "number integer float boolean array object record field struct pointer reference copy move delete insert update "
    "summary paragraph sentence chapter title author source citation figure caption appendix footnote glossary "
    "weather temperature pressure humidity forecast storm harbour vessel cargo container crane berth tide anchor rope"
)
_WORDS: Final = _COMMON_FIRST.split()
_VOCABULARY: Final = 3000


@functools.cache
def _vocabulary() -> list[str]:
    source = random.Random("vocabulary")
    return ["".join(source.choices(string.ascii_lowercase, k=source.randrange(3, 11))) for _ in range(_VOCABULARY)]


def random_words(seed: str, size: int) -> str:
    """`size` characters of words, each as likely as any other: little to compress in one message."""
    return " ".join(random.Random(seed).choices(_vocabulary(), k=size // 4 + 1))[:size]


def text(seed: str, size: int) -> str:
    """`size` ASCII characters of words, numbers and ids."""
    source = random.Random(seed)
    parts: list[str] = []
    length = 0
    while length < size:
        kind = source.random()
        word = _WORDS[int(len(_WORDS) * source.random() ** 2.5)]
        if kind < 0.08 and len(parts) > 8:
            at = source.randrange(len(parts) - 4)
            part = " ".join(parts[at : at + 4])  # people and tools repeat themselves
        elif kind < 0.90:
            part = word
        elif kind < 0.95:
            part = word.capitalize() + source.choice(".,:?")
        elif kind < 0.98:
            part = str(source.randrange(10_000))
        else:
            part = f"call_{source.getrandbits(32):08x}"
        parts.append(part)
        length += len(part) + 1
    return " ".join(parts)[:size]


def message(number: int, version: int = 0, *, words: bool = False) -> dict[str, Any]:
    """The message of a turn; a later version of it has the same id and other text. 1 KB when packed.

    With `words` its text is made of random words.
    """
    role = "user" if number % 2 else "assistant"
    content = (random_words if words else text)(f"message {number} {version}", MESSAGE_BYTES - 36 - len(role))
    return {"id": f"msg-{number:08d}", "role": role, "content": content}


def messages(count: int) -> Iterator[dict[str, Any]]:
    """A long conversation, made quickly: its texts repeat, its ids do not."""
    texts = [message(number) for number in range(min(count, 500))]
    for number in range(count):
        yield {**texts[number % len(texts)], "id": f"msg-{number:08d}"}


def state(number: int) -> dict[str, Any]:
    """A whole state of about 1 KB, another one for every number."""
    return {
        "step": number,
        "phase": ("plan", "act", "review")[number % 3],
        "messages": [
            {"role": "user", "content": text(f"question {number // 50}", 260)},
            {"role": "assistant", "content": text(f"answer {number}", 400)},
        ],
        "tool": {"name": "search", "arguments": {"query": text(f"query {number}", 60), "limit": number % 20}},
        "usage": {"input": 1200 + number, "output": number % 700, "cost": number * 0.0003},
        "scratch": text(f"scratch {number}", 120),
        "done": False,
    }


def blob() -> bytes:
    """An attachment that does not compress, as an image would not."""
    return random.Random("blob").randbytes(BLOB_BYTES)


class Script:
    """What the turns of a conversation change: each adds a message, or edits an old one.

    The conversation has `start` messages before the first turn. Edits go to its first half.
    """

    def __init__(self, total: int, *, start: int = 0, edit: bool = False, words: bool = False) -> None:
        self.start = start
        self._words = words
        source = random.Random("edits")
        self._edited = [source.randrange(start // 2) for _ in range(total)] if edit else None

    def beginning(self) -> list[dict[str, Any]]:
        """The messages that are there before the first turn."""
        return [message(number) for number in range(self.start)]

    def changes(self, first: int, count: int) -> list[tuple[int, dict[str, Any]]]:
        """For each of these turns, the place of a message and the message."""
        turns = range(first, first + count)
        if self._edited is None:
            return [(self.start + turn, message(self.start + turn, words=self._words)) for turn in turns]
        return [(self._edited[turn], message(self._edited[turn], version=turn + 1)) for turn in turns]

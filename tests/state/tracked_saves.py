"""Saves of a tracked state, each compared with that of an equal plain one."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.state import encoder, tracked_encoder
from holdfast.state.encoder import encode
from holdfast.state.rope import chunk_hash, decode
from holdfast.state.settlement import to_tracked
from holdfast.state.tracked_encoder import TrackedPart, TrackedState, encode_tracked
from holdfast.state.values import pack


class Saves:
    """Saves of one tracked state, each compared with that of an equal plain state."""

    def __init__(self, state: Any) -> None:
        self.state: Any = to_tracked(state)
        self.memo: TrackedPart | None = None
        self.chunks: dict[bytes, bytes] = {}
        self.save()

    def save(self, *, fails: bool = False) -> TrackedState:
        expected = encode(plain(self.state))
        encoded = encode_tracked(self.state, self.memo, self.chunks.keys())  # type: ignore[arg-type]
        assert encoded.root == expected.root, "a root depends on the state alone"
        assert encoded.size == expected.size
        assert expected.chunks.keys() <= self.chunks.keys() | encoded.chunks.keys(), "nothing it links to is missing"
        if not fails:
            self.chunks |= encoded.chunks
            self.memo = encoded.memo
        return encoded

    def load(self) -> Any:
        root = self.save().root
        return decode(root, lambda names: {name: b"\x00" + self.chunks[name] for name in names}, "it")[0]


def plain(value: Any) -> Any:
    """The value with plain dicts and lists, read as C does."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in dict.items(value)}
    if isinstance(value, list):
        return [plain(part) for part in list.__iter__(value)]
    return value


def message(number: int, size: int = 1000) -> dict[str, Any]:
    return {"role": "user", "content": f"{number} " * (size // len(f"{number} ")), "tags": [number]}


def conversation(count: int = 100) -> dict[str, Any]:
    return {"messages": [message(i) for i in range(count)], "by_id": {f"m{i}": message(i, 400) for i in range(60)}}


def count_encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what is encoded, and of the chunks that are hashed."""
    sizes: list[int] = []

    def counted(real: Any) -> Any:
        def call(*args: Any) -> bytes:
            data: bytes = real(*args)
            sizes.append(len(args[0]) if real is chunk_hash else len(data))
            return data

        return call

    for module in (encoder, tracked_encoder):
        monkeypatch.setattr(module, "pack", counted(pack))
    monkeypatch.setattr(encoder, "chunk_hash", counted(chunk_hash))
    return sizes

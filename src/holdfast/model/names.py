"""Names of calls and gates as people see and type them.

A call's full name says where it stands: `loop#1[2]/approve#1`. People see `approve`, and may type that wherever it
means one thing only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

_EPOCH: Final = re.compile(r"(?:\?\d+)?(?:@\d+)?\Z")
_NUMBER: Final = re.compile(r"[#%]\d+\Z")
_DIGEST: Final = re.compile(r":(?:[0-9a-f]{16}|\?)(?=#\d+\Z)")


class Gate(Protocol):
    """What is needed of a gate to find it by its name."""

    @property
    def gate(self) -> str: ...
    @property
    def state(self) -> str: ...


G = TypeVar("G", bound=Gate)


def local_name(full: str) -> str:
    """A call's or gate's name in its own scope: `approve#1`."""
    return _EPOCH.sub("", full.rpartition("/")[2])


def short_name(full: str) -> str:
    """A call's or gate's name without its number: `approve`."""
    return _NUMBER.sub("", local_name(full))


def display_name(full: str) -> str:
    """How a call, a gate or an effect's key is shown: `approve`, and the second one of a scope `approve#2`."""
    return _DIGEST.sub("", local_name(full)).removesuffix("#1")


def is_named(full: str, name: str) -> bool:
    """Whether somebody who types `name` may mean this call or gate."""
    return name in (full, local_name(full), short_name(full))


def find_gates(gates: Sequence[G], name: str) -> list[G]:
    """The gates that `name` may mean: the one of that full name, else the open ones, else the newest."""
    exact = [gate for gate in gates if gate.gate == name]
    named = exact or [gate for gate in gates if is_named(gate.gate, name)]
    return [gate for gate in named if gate.state == "open"] or named[-1:]


def gate_labels(gates: Sequence[str]) -> dict[str, str]:
    """What to type for each of these gates, by its full name: as little as tells it from the others."""
    short, local = [short_name(gate) for gate in gates], [local_name(gate) for gate in gates]
    return {
        gate: display_name(gate)
        if short.count(short_name(gate)) == 1
        else local_name(gate)
        if local.count(local_name(gate)) == 1
        else gate
        for gate in gates
    }

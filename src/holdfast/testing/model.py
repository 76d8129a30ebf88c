"""The model that stores are compared with: dictionaries and lists, one run at a time, no encoding. Needs hypothesis."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import strategies as st

from holdfast.model.status import AT_WORK, READY

RUN_IDS = st.sampled_from(["a", "A", "a/b", "é"])
LANES = st.sampled_from(["", "", "", "side"])
CHECKPOINT_IDS = st.sampled_from([None, None, None, "c1", "c2"])
STATUSES = st.sampled_from(
    [None, None, None, "running", "waiting", "paused", "rolling_back", "completed", "failed"]
)  # fmt: skip
KEYS = st.sampled_from(["k1", "k2", "k3"])
CALLS = st.sampled_from([b"", b"", b"\x00\x01", b"\x00\x02"])
_LONG = [{"role": "user", "content": f"message {i} " * 60} for i in range(60)]
STATES = st.one_of(
    st.integers(0, 5).map(lambda n: {"n": n}),
    st.tuples(st.integers(0, 60), st.integers(0, 59)).map(
        lambda pair: {"messages": [m if i != pair[1] else {"edited": i} for i, m in enumerate(_LONG[: pair[0]])]}
    ),
)

_families = itertools.count()


class Checkpoint:
    """The model's checkpoint."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)
        self.id: Any = fields["id"]
        self.lane: str = fields["lane"]
        self.number: int = fields["number"]

    def facts(self) -> tuple[Any, ...]:
        d = self.__dict__
        return (self.number, self.id, d["parent"], self.lane, d["step"], d["covers"], d["status"], d["state"])


class Run:
    """The model's run."""

    def __init__(self) -> None:
        self.workflow = ""
        self.status = READY
        self.serial = 0
        self.checkpoints: list[Checkpoint] = []
        self.journal: list[Any] = []
        self.effects: dict[str, list[Any]] = {}
        """By key: state, the newest checkpoint before it, how it was called."""
        self.attachments: dict[tuple[str, str, str], Any] = {}
        self.claim: tuple[str, float] | None = None
        self.fence = 0
        self.family = next(_families)

    def head(self, lane: str) -> Checkpoint | None:
        found = [c for c in self.checkpoints if c.lane == lane]
        return max(found, key=lambda c: c.number) if found else None

    def let_go(self) -> None:
        """Nobody holds it any more."""
        self.claim = None
        self.status = READY if self.status in AT_WORK else self.status


def shown_journal(journal: list[Any]) -> list[Any]:
    """The model's journal, in which None stands for what was pruned, as it is shown: one entry for each such range."""
    shown: list[Any] = []
    for position, entry in enumerate(journal, start=1):
        if entry is None and position > 1 and journal[position - 2] is None:
            shown[-1]["through"] = position
        else:
            shown.append({"kind": "pruned", "through": position} if entry is None else entry)
    return shown

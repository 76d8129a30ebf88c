"""The model that stores are compared with. Needs hypothesis.

It has dictionaries and lists, one run at a time, and no encoding.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from holdfast.clock import US
from holdfast.errors import RunClaimed
from holdfast.model.commit import (
    OUTSIDER,
    Commit,
    Committed,
    Guard,
    NewEffect,
    NewRun,
    Outcome,
    Reason,
    Refused,
    TakeClaim,
)
from holdfast.model.rows import AT_WORK, READY, RUNNING
from holdfast.operations.store import Store
from holdfast.testing.contract.base import Values

RUN_IDS = st.sampled_from(["a", "A", "a/b", "é"])
LANES = st.sampled_from(["", "", "", "side"])
CHECKPOINT_IDS = st.sampled_from([None, None, None, "c1", "c2"])
STATUSES = st.sampled_from([None, None, None, "running", "waiting", "paused", "rolling_back", "completed", "failed"])
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

    def facts(self) -> tuple[object, ...]:
        d = self.__dict__
        return (self.number, self.id, d["parent"], self.lane, d["step"], d["covers"], d["status"], d["state"])


class Run:
    """The model's run."""

    def __init__(self) -> None:
        self.workflow = ""
        self.status = READY
        self.serial = 0
        self.checkpoints: list[Checkpoint] = []
        self.journal: Values = []
        self.effects: dict[str, Values] = {}
        """By key: state, the newest checkpoint before it, how it was called."""
        self.attachments: dict[tuple[str, str, str], object] = {}
        self.claim: tuple[str, float] | None = None
        self.fence = 0
        self.family = next(_families)

    def head(self, lane: str) -> Checkpoint | None:
        found = [c for c in self.checkpoints if c.lane == lane]
        return max(found, key=lambda c: c.number) if found else None

    def let_go(self) -> None:
        """End the claim."""
        self.claim = None
        self.status = READY if self.status in AT_WORK else self.status


def shown_journal(journal: Values) -> Values:
    """The model's journal, in which None stands for what was pruned, as it is shown: one entry for each such range."""
    shown: Values = []
    for position, entry in enumerate(journal, start=1):
        if entry is None and position > 1 and journal[position - 2] is None:
            shown[-1]["through"] = position
        else:
            shown.append({"kind": "pruned", "through": position} if entry is None else entry)
    return shown


_count = itertools.count()


class GuardRules(RuleBasedStateMachine):
    """Commits by hand, on the store and on the model of the machine that derives from this."""

    store: Store
    model: dict[str, Run]
    time: float

    def held(self, run: Run | None) -> bool:
        """Whether an owner whose lease has not ended holds the run."""
        raise NotImplementedError

    def commit(self, run_id: str, **parts: Any) -> Outcome:
        (outcome,) = self.store.port.commit([Commit(run_id, next(_count).to_bytes(8, "big"), **parts)])
        return outcome

    def drawn(self, data: st.DataObject) -> tuple[str, Run]:
        run_id = data.draw(st.sampled_from(sorted(self.model)))
        return run_id, self.model[run_id]

    def marking(self, call: bytes, *, intent: bool) -> Callable[[str, str], bool]:
        """Mark an effect: by its operation, or by a commit if a call is recorded with it."""

        def mark(run_id: str, key: str) -> bool:
            effect = NewEffect(key, "intent" if intent else "done", call=call)
            outcome = self.commit(run_id, create=NewRun(), effects=(effect,))
            if isinstance(outcome, Refused) and outcome.reason == Reason.CLAIMED:
                raise RunClaimed(run_id, "", 0)
            assert isinstance(outcome, Committed) or outcome.reason == Reason.EFFECT_DONE
            return isinstance(outcome, Committed)

        return mark if call else self.store.mark_intent if intent else self.store.mark_done

    @precondition(lambda self: self.model)
    @rule(data=st.data(), sure=st.booleans(), rearm=st.booleans())
    def remove_dead_owners(self, data: st.DataObject, sure: bool, rearm: bool) -> None:
        """An owner is known to be dead: the run is taken from that owner only."""
        run_id, run = self.drawn(data)
        gone = run.fence if sure else run.fence + 1
        if rearm:
            outcome = self.commit(run_id, guard=Guard(OUTSIDER, gone=gone), rearm=run.fence)
            allowed = run.claim is not None and (sure or not self.held(run))
        else:
            outcome = self.commit(run_id, guard=Guard(gone=gone))
            allowed = sure or not self.held(run)
        assert isinstance(outcome, Committed) == allowed
        if allowed and run.claim is not None:
            run.let_go()

    @precondition(lambda self: self.model)
    @rule(data=st.data(), status=st.sampled_from([None, "rolling_back"]))
    def revive(self, data: st.DataObject, status: str | None) -> None:
        run_id, run = self.drawn(data)
        take = TakeClaim("w3", b"r" * 16, 5 * US, revive=True)
        outcome = self.commit(run_id, take=take, status=status)
        assert isinstance(outcome, Committed) != self.held(run)
        if isinstance(outcome, Committed):
            run.fence += 1
            run.claim, run.status = ("w3", self.time + 5), status or RUNNING
            assert outcome.run.fence == run.fence

    @precondition(lambda self: any(run.effects for run in self.model.values()))
    @rule(data=st.data())
    def ask_the_family(self, data: st.DataObject) -> None:
        """Of some effect that is there: which runs of the family have it, and how it was called."""
        there = sorted((name, key) for name, run in self.model.items() for key in run.effects)
        run_id, key = data.draw(st.sampled_from(there))
        run, row = self.model[run_id], self.store.port.run(run_id)
        assert row is not None
        family = [(name, other) for name, other in self.model.items() if other.family == run.family]
        known = [(name, other.effects[key][0], other.effects[key][2]) for name, other in family if key in other.effects]
        found = self.store.port.family_effects(row.family, key)
        states = {"intent": "in_doubt"}
        assert [(r.run_id, states.get(line.state, line.state), line.call) for r, line in found] == known

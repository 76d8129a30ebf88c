"""Rules of the state machine for what no verb offers: dead owners, revived runs, calls of effects. Needs hypothesis."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from holdfast.clock import US
from holdfast.errors import RunClaimed
from holdfast.model import commit as why
from holdfast.model.commit import OUTSIDER, Commit, Committed, Guard, NewEffect, NewRun, Outcome, Refused, Take
from holdfast.model.status import RUNNING
from holdfast.testing.model import Run
from holdfast.verbs.store import Store

_count = itertools.count()


class GuardRules(RuleBasedStateMachine):
    """Commits by hand, on the store and on the model of the machine that derives from this."""

    store: Store
    model: dict[str, Run]
    time: float

    def held(self, run: Run | None) -> bool:
        """Whether somebody whose lease has not ended holds the run."""
        raise NotImplementedError

    def commit(self, run_id: str, **parts: Any) -> Outcome:
        (outcome,) = self.store.port.commit([Commit(run_id, next(_count).to_bytes(8, "big"), **parts)])
        return outcome

    def drawn(self, data: st.DataObject) -> tuple[str, Run]:
        run_id = data.draw(st.sampled_from(sorted(self.model)))
        return run_id, self.model[run_id]

    def marking(self, call: bytes, *, intent: bool) -> Callable[[str, str], bool]:
        """The verb that marks an effect; with a call, for which there is no verb, a commit that does the same."""

        def mark(run_id: str, key: str) -> bool:
            effect = NewEffect(key, "intent" if intent else "done", call=call)
            outcome = self.commit(run_id, create=NewRun(), effects=(effect,))
            if isinstance(outcome, Refused) and outcome.why == why.CLAIMED:
                raise RunClaimed(run_id, "", 0)
            assert isinstance(outcome, Committed) or outcome.why == why.EFFECT_DONE
            return isinstance(outcome, Committed)

        return mark if call else self.store.mark_intent if intent else self.store.mark_done

    @precondition(lambda self: self.model)
    @rule(data=st.data(), sure=st.booleans(), rearm=st.booleans())
    def bury(self, data: st.DataObject, sure: bool, rearm: bool) -> None:
        """An owner is known to be dead: the run is taken from that owner, and from nobody else."""
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
        take = Take("w3", b"r" * 16, 5 * US, revive=True)
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

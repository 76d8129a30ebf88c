"""The methods of an app that act on existing runs: answer, send, pause, cancel, roll back, fork."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, TypeVar

from holdfast.drivers import Plan, forbid_in_loop
from holdfast.model.rollback_plan import RollbackPlan
from holdfast.model.views import GateInfo
from holdfast.runtime import answers, control, rollback
from holdfast.runtime import fork as branching
from holdfast.runtime.answers import Actor
from holdfast.runtime.blocking_driver import BlockingAppDriver
from holdfast.runtime.execute import run_until_idle
from holdfast.runtime.graph_workflows import Declaring
from holdfast.runtime.handle import Handle
from holdfast.runtime.start import Claimed

R = TypeVar("R")
Effects = Literal["reuse", "perform", "ask"]


class Controlling(Declaring):
    """The methods of an app for existing runs."""

    _driver: BlockingAppDriver

    def _handle(self, run_id: str, *, only_wait: bool) -> Handle:
        raise NotImplementedError

    def _run(self, name: str, plan: Plan[R]) -> R:
        forbid_in_loop(name)
        return self._driver.run(plan)

    def _advance(self, claimed: Claimed | None, *, once: bool = False) -> None:
        """Execute the run until it waits or ends, then the runs it woke."""
        if claimed is not None:
            self._driver.run(run_until_idle(self._core, claimed, once=once))

    def _control(self, name: str, run_id: str, plan: Plan[tuple[object, Claimed | None]], *, enqueue: bool) -> Handle:
        """Execute a plan that changes a run, then the run itself if the plan claimed it."""
        _, claimed = self._run(name, plan)
        self._advance(claimed, once=enqueue)
        return self._handle(run_id, only_wait=enqueue)

    def answer(
        self,
        run_id: str,
        answer: object,
        *,
        by: str | None = None,
        groups: Collection[str] = (),
        gate: str | None = None,
        question: str | None = None,
        enqueue: bool = False,
        via: str = "",
    ) -> Handle:
        """Answer a gate, from any process. The first answer counts; a second one raises AlreadyAnswered.

        An answer that does not fit, or of a person that may not answer, raises InvalidAnswer, which lists all problems,
        and the gate stays open. `groups` are the groups of the person. If several people must approve, the run
        continues with the last approval or the first "no". With `question`, as `GateInfo` has it, the answer is refused
        if the gate asks something else now. `via` records where the answer came from.

        Example:
            app.start(refund, "A-19", run_id="order-19")
            app.answer("order-19", {"approve": False}, by="ana", via="web")
        """
        plan = answers.answer(self._core, run_id, answer, Actor(by, groups, via), gate, question, here=not enqueue)
        return self._control("answer", run_id, plan, enqueue=enqueue)

    def reassign(
        self,
        run_id: str,
        who: str | Iterable[str],
        *,
        gate: str | None = None,
        by: str | None = None,
        groups: Collection[str] | None = None,
        reason: str = "",
        via: str = "",
    ) -> GateInfo:
        """Change the people that may answer an open gate, and return the gate as it is then.

        They replace everyone that may answer now, also by escalation; escalations that are not due yet stay. An answer
        that another person is about to give is refused. `GateInfo.assigned` has the history. With `groups`, those of
        the person, only a person that may answer the gate can reassign it; without them everyone can.

        Example:
            app.start(refund, "A-21", run_id="order-21")
            app.reassign("order-21", ["ben", "group:finance"], by="ana", reason="on holiday")
        """
        actor, must_answer = Actor(by, groups or (), via), groups is not None
        plan = answers.reassign_gate(self._core, run_id, who, actor, gate, reason, must_answer=must_answer)
        return self._run("reassign", plan)

    def send(
        self,
        run_id: str,
        event: str,
        value: object = None,
        *,
        by: str | None = None,
        key: str | None = None,
        enqueue: bool = False,
        via: str = "",
    ) -> Handle:
        """Send an event to a run, which receives it with `run.wait_for`. A repeated `key` has no effect.

        `via` records where the event came from; it is not recorded for an event with a `key`.

        Example:
            app.send("order-17", "shipped", {"parcel": 3})
        """
        plan = control.send(self._core, run_id, event, value, by, key, here=not enqueue, via=via)
        return self._control("send", run_id, plan, enqueue=enqueue)

    def pause(self, run_id: str, *, by: str | None = None, enqueue: bool = False, via: str = "") -> Handle:
        """Ask a run to pause. It stops before its next call; `resume` continues it.

        Example:
            app.pause("order-17")
        """
        plan = control.request(self._core, run_id, "pause", by, here=not enqueue, via=via)
        return self._control("pause", run_id, plan, enqueue=enqueue)

    def cancel(self, run_id: str, *, by: str | None = None, enqueue: bool = False, via: str = "") -> Handle:
        """Cancel a run. Its next call raises Cancelled, and its `finally` blocks get `cleanup_s` seconds to end.

        Only a rollback to an earlier position can continue a cancelled run.

        Example:
            app.cancel("order-17")
        """
        plan = control.request(self._core, run_id, "cancel", by, here=not enqueue, via=via)
        return self._control("cancel", run_id, plan, enqueue=enqueue)

    def resume(self, run_id: str, *, by: str | None = None, enqueue: bool = False, via: str = "") -> Handle:
        """Continue a paused run, or one whose process died.

        The journal of a paused run records `by` and `via`, if one of them is given.

        Example:
            app.resume("order-17", by="ana")
        """
        plan = control.resume(self._core, run_id, here=not enqueue, by=by, via=via)
        return self._control("resume", run_id, plan, enqueue=enqueue)

    def retry(self, run_id: str, *, by: str | None = None, enqueue: bool = False, via: str = "") -> Handle:
        """Continue a failed run from the call that failed, after its cause was fixed. All finished work is kept.

        The call that failed is executed again, an effect with the idempotency key it had; an effect in doubt is
        treated as declared; a failed child is retried itself. Raises Conflict if the run has not failed.

        Example:
            @app.workflow
            def convert(run):
                return 6 / rates["eur"]

            rates, handle = {}, app.start(convert, run_id="c-1")
            rates["eur"] = 2
            app.retry("c-1").result()
        """
        claimed = self._run("retry", rollback.retry(self._core, run_id, by, here=not enqueue, via=via))
        self._advance(claimed, once=enqueue)
        return self._handle(run_id, only_wait=enqueue)

    def rollback_plan(self, run_id: str, to: int | str | None = None) -> RollbackPlan:
        """What a rollback would do: the effects it undoes, those it cannot undo, and what it takes back.

        Without `to` it is the plan for the end of the run, where a fork without a place begins.

        Example:
            app.rollback_plan("order-17", to=1).undo
        """
        return self._run("rollback_plan", rollback.plan_rollback(self._core, run_id, to))

    def rollback(
        self,
        run_id: str,
        to: int | str | None = None,
        *,
        by: str | None = None,
        force: bool = False,
        basis: str | None = None,
        enqueue: bool = False,
        via: str = "",
    ) -> Handle:
        """Roll a run back to a journal position, a checkpoint's id, or just before the stage or step of that name.

        The `undo` functions of effects performed since are called in reverse order and recorded, so that a crash loses
        nothing. An effect that cannot be undone raises RollbackRefused before anything is done; `force=True` leaves it
        as it is. Then the run continues, with new idempotency keys. Without `to` an interrupted rollback is continued.
        With `enqueue=True` a worker executes the run, and the rollback too if this process does not know the workflow.
        With the `basis` of a plan it raises PlanChanged if the run or a child has changed since the plan was made.

        Example:
            app.rollback("order-17", to=1)
        """
        plan = rollback.roll_back(self._core, run_id, to, by, force=force, basis=basis, here=not enqueue, via=via)
        return self._control("rollback", run_id, plan, enqueue=enqueue)

    def fork(
        self,
        run_id: str,
        new_run_id: str | None = None,
        *,
        at: int | str | None = None,
        step: int | None = None,
        checkpoint_id: str | None = None,
        effects: Effects = "reuse",
        state: dict[str, Any] | None = None,
        update: Mapping[str, object] | None = None,
        basis: str | None = None,
        by: str | None = None,
        enqueue: bool = False,
        via: str = "",
    ) -> Handle:
        """Start a new run from a point of another: a position, just before a call, a checkpoint, or its end.

        The fork does not repeat or undo finished work. If its family has performed an effect since, it uses the outcome
        ("reuse"), asks a person ("ask"), or performs it again ("perform"). `state` replaces `run.state`; `update` sets
        values in it, by paths as `"order.amount"` or `"/order/amount"`. Results recorded before stay as they are. With
        the `basis` of `rollback_plan` for the same place it raises PlanChanged if the run has changed since.

        Example:
            app.fork("order-17", "order-17b", at=1)
            app.fork("order-17", "order-17c", at=1, update={"order.amount": 30})
        """
        spec = branching.ForkSpec(at, step, checkpoint_id, effects, state, update, by, via, basis)
        name = self._run("fork", branching.fork(self._core, run_id, new_run_id, spec, here=not enqueue))
        return self._handle(name, only_wait=enqueue)

    def gates(
        self, run_id: str | None = None, *, state: str | None = "open", limit: int = 1000, after: str | None = None
    ) -> list[GateInfo]:
        """Gates that wait for an answer, oldest first: the inbox of all runs, or of one.

        `after` is the `cursor` of the last gate of a page; the next page begins there.

        Example:
            page = app.gates(limit=100)
            [gate.prompt for gate in app.gates(after=page[-1].cursor)] if page else []
        """
        return self._run("gates", answers.gates(self._core, run_id, state, limit, after))

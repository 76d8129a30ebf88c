"""Conversion of Holdfast's views to the results of the API, with masked values."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from holdfast.inspect import views
from holdfast.model.rollback_plan import EffectPlan, RollbackPlan
from holdfast.model.views import CheckpointInfo, GateInfo, RunInfo
from holdfast.operations.read import known_run
from holdfast.operations.views import RESUME
from holdfast.state.json_preview import to_jsonable
from holdfast.web.api import schemas
from holdfast.web.api.timeline_schemas import Attempt, Row, Timeline
from holdfast.web.gate_list import refusal_of
from holdfast.web.mask import Masker
from holdfast.web.run_actions import visible_plan
from holdfast.web.site import Context
from holdfast.web.workflow_catalog import input_names

R = TypeVar("R", bound=schemas.Result)
_USERS: Final = (Any, dict[str, Any], list[Any])
"""The types of fields that hold values of the user."""
_TEXTS: Final = frozenset({"text", "prompt", "sentence"})
"""Fields with texts that may repeat values of the user."""


@functools.cache
def _users(kind: type[schemas.Result]) -> frozenset[str]:
    """The fields of a result that hold values of the user."""
    return frozenset(field.name for field in msgspec.structs.fields(kind) if field.type in _USERS)


class Converter:
    """Converts what one response contains. It remembers which values it has masked, and hides them in texts."""

    def __init__(self, c: Context) -> None:
        self._c = c
        self._user = c.user
        self.masker = Masker(c.site.mask)

    def value(self, value: object, at: Sequence[str | int] = ()) -> Any:
        """A value of the user as JSON."""
        return to_jsonable(self.masker.value(value, at))

    def result(self, kind: type[R], view: object, **more: object) -> R:
        """A result with the fields of a view; `more` are those that the view does not have."""
        values: dict[str, Any] = {}
        users = _users(kind)
        for name in kind.__struct_fields__:
            if name in more:
                values[name] = more[name]
                continue
            value = getattr(view, name)
            if name in users:
                value = self._value_of(kind, view, name, value)
            elif name in _TEXTS:
                value = self.masker.text(value)
            values[name] = list(value) if isinstance(value, tuple) else value
        return kind(**values)

    def _value_of(self, kind: type[schemas.Result], view: object, name: str, value: Any) -> Any:
        if kind is schemas.PlannedEffect and name == "arguments":
            return to_jsonable(self.masker.arguments(value))
        if isinstance(view, views.Row) and view.kind == "started":
            return to_jsonable(self.masker.input(value))
        return self.value(value)

    def results(self, kind: type[R], views: Iterable[object]) -> list[R]:
        """Results of several views."""
        return [self.result(kind, view) for view in views]

    def run(self, info: RunInfo) -> schemas.Run:
        """A run."""
        return self.result(schemas.Run, info)

    def gate(self, gate: GateInfo) -> schemas.Gate:
        """A gate, and whether the user of the request may answer it."""
        user, shown = self._user, self.masker.gate(gate)
        may_not = refusal_of(user, gate, self._c.store.access.core.clock.now_us()) or None
        return self.result(
            schemas.Gate,
            shown,
            answer_schema=shown.form.json_schema(),
            approved=self.results(schemas.Approval, shown.approved),
            escalations=self.results(schemas.Escalation, shown.escalations),
            assigned=self.results(schemas.Assignment, shown.assigned),
            may_answer=may_not is None,
            may_not=may_not,
        )

    def detail(self, found: views.Timeline, commit: str) -> schemas.RunDetail:
        """A run with its status, from its timeline."""
        self.learn(found)
        standing = found.standing
        ended = next((row for row in reversed(found.rows) if row.kind == "ended" and row.state != "taken_back"), None)
        has_ended = ended is not None and found.run.terminal
        return schemas.RunDetail(
            run=self.run(found.run),
            sentence=self.masker.text(standing.sentence),
            since=standing.since,
            waiting=self.results(schemas.Waiting, standing.waiting),
            gates=[self.gate(gate) for gate in found.gates],
            next_node=standing.next_node,
            cancel_requested_by=standing.cancel.by if standing.cancel is not None else None,
            result=self.value(ended.result) if ended is not None and has_ended else None,
            error=self.value(ended.error) if ended is not None and has_ended else None,
            commit=commit,
        )

    def learn(self, found: views.Timeline) -> None:
        """Note the masked values of a run, so that its texts do not repeat them."""
        if self.masker.is_active:
            self.know_input(found.run.run_id)
            for row in found.rows:
                self.masker.input(row.result) if row.kind == "started" else self.masker.learn(row.result)

    def know_input(self, run_id: str) -> None:
        """Learn the names of the parameters of a run's workflow, by which its input is masked."""
        if self.masker.is_active:
            self.masker.parameters = input_names(self._c, known_run(self._c.store.access.core, run_id))

    def timeline(self, found: views.Timeline) -> Timeline:
        """What a run did."""
        self.learn(found)
        rows = [self.result(Row, row, attempt_rows=self.results(Attempt, row.attempt_rows)) for row in found.rows]
        return self.result(Timeline, found, run=self.run(found.run), rows=rows)

    def checkpoint(self, info: CheckpointInfo) -> schemas.Checkpoint:
        """A checkpoint, without what the engine notes in its metadata."""
        metadata = {key: value for key, value in info.metadata.items() if key != RESUME}
        return self.result(schemas.Checkpoint, info, metadata=self.value(metadata))

    def plan(self, plan: RollbackPlan) -> schemas.Plan:
        """The plan of a rollback, without effects of runs that the user may not see."""
        plan, hidden = visible_plan(self._c, plan)

        def effects(found: tuple[EffectPlan, ...]) -> list[schemas.PlannedEffect]:
            return self.results(schemas.PlannedEffect, found)

        return self.result(
            schemas.Plan,
            plan,
            hidden_effects=hidden,
            undo=effects(plan.undo),
            irreversible=effects(plan.irreversible),
            in_doubt=effects(plan.in_doubt),
            compensated=effects(plan.compensated),
            detached_effects=effects(plan.detached_effects),
        )

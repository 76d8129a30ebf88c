"""The plan of a rollback as a user sees it: without effects of child runs whose workflow is not visible."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.errors import RunNotFound
from holdfast.model.rollback_plan import EffectPlan, RollbackPlan

if TYPE_CHECKING:
    from holdfast.web.site import Context

REFUSED: Final = "it concerns effects of runs that you may not see; a user that sees their workflows can do it"


def visible_plan(c: Context, plan: RollbackPlan) -> tuple[RollbackPlan, int]:
    """The plan without effects and ids of runs that the user may not see, and how many effects were left out."""
    if c.user.sees_all:
        return plan, 0

    @cache
    def is_visible(run_id: str) -> bool:
        try:
            c.visible(run_id)
        except RunNotFound:
            return False
        return True

    def effects(found: Iterable[EffectPlan]) -> tuple[EffectPlan, ...]:
        return tuple(one for one in found if one.run_id == plan.run_id or is_visible(one.run_id))

    def runs(found: Iterable[str]) -> tuple[str, ...]:
        return tuple(run_id for run_id in found if is_visible(run_id))

    seen = msgspec.structs.replace(
        plan,
        undo=effects(plan.undo),
        irreversible=effects(plan.irreversible),
        in_doubt=effects(plan.in_doubt),
        compensated=effects(plan.compensated),
        detached_effects=effects(plan.detached_effects),
        children=runs(plan.children),
        detached=runs(plan.detached),
        forks=runs(plan.forks),
    )
    return seen, _count(plan) - _count(seen)


def _count(plan: RollbackPlan) -> int:
    parts = (plan.undo, plan.irreversible, plan.in_doubt, plan.compensated, plan.detached_effects)
    return sum(map(len, parts))


def hidden_text(count: int) -> str:
    """A sentence about the effects that were left out; empty if there are none."""
    if not count:
        return ""
    return f"{count} effect{'s' if count != 1 else ''} of runs that you may not see"

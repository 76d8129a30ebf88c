"""What a rollback would do, as users see it before it is done."""

from __future__ import annotations

from typing import Any

from holdfast.model.views import View


class EffectPlan(View, frozen=True, kw_only=True):
    """An effect that a rollback would take back."""

    run_id: str
    """The run that performed it: the one that is rolled back, or a child of it."""
    key: str
    tool: str
    undo: str | None
    """The function that undoes it."""
    arguments: list[Any]
    result: Any
    keywords: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies it
    """Arguments that were given by name."""


class RollbackPlan(View, frozen=True, kw_only=True):
    """What `app.rollback` would do, or has done."""

    run_id: str
    to: int
    """The journal position the run goes back to."""
    undo: tuple[EffectPlan, ...]
    """Effects that are undone, in this order."""
    irreversible: tuple[EffectPlan, ...]
    """Effects that cannot be undone. They stop the rollback unless it is forced."""
    in_doubt: tuple[EffectPlan, ...]
    """Effects nobody knows the outcome of. They stop it, too."""
    compensated: tuple[EffectPlan, ...]
    """Effects the run has undone itself since, which it would go on from as if they were done. They stop it, too."""
    calls: tuple[str, ...]
    """Everything recorded that is taken back, and done anew when the run goes on."""
    children: tuple[str, ...]
    """Child runs that are taken back, with those inside them: stopped if they have not ended, their effects undone."""
    missing: tuple[str, ...] = ()
    """Child runs that ended and are not in the store any more: what they did cannot be undone. They stop it, too."""
    detached: tuple[str, ...] = ()
    """Child runs that are on their own. They are left alone, and started again when the run goes on."""
    detached_effects: tuple[EffectPlan, ...] = ()
    """Effects they have performed, which would be performed again. They stop it, too."""

    @property
    def problems(self) -> list[str]:
        """What stands against it."""
        found = [f"{self._effect(e)} cannot be undone" for e in self.irreversible]
        found += [f"the outcome of {self._effect(e)} is unknown" for e in self.in_doubt]
        found += [f"{self._effect(e)} was undone since; go back to before it" for e in self.compensated]
        found += [f"child run {name!r} was deleted, so what it did cannot be undone" for name in self.missing]
        return found + [
            f"{self._effect(e)} is not undone, since that child is detached, and would be performed again"
            for e in self.detached_effects
        ]

    def _effect(self, effect: EffectPlan) -> str:
        of_child = f" of child run {effect.run_id!r}" if effect.run_id != self.run_id else ""
        return f"effect {effect.key!r} ({effect.tool}){of_child}"

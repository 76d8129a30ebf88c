"""What a rollback would do, as users see it before it is done."""

from __future__ import annotations

from typing import Any

from holdfast.model.views import View


class EffectPlan(View, frozen=True, kw_only=True):
    """An effect that a rollback would take back."""

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
    """Child runs that are cancelled."""

    @property
    def problems(self) -> list[str]:
        """What stands against it."""
        found = [f"effect {e.key!r} ({e.tool}) cannot be undone" for e in self.irreversible]
        found += [f"nobody knows whether effect {e.key!r} ({e.tool}) happened" for e in self.in_doubt]
        return found + [f"effect {e.key!r} ({e.tool}) was undone since; go back to before it" for e in self.compensated]

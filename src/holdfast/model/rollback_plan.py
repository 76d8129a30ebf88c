"""The plan of a rollback, as users see it."""

from __future__ import annotations

from typing import Any

from holdfast.model.views import StoredDict, View


class EffectPlan(View, frozen=True, kw_only=True):
    """An effect that a rollback concerns."""

    run_id: str
    """The run that performed it: the one that is rolled back, or a child of it."""
    key: str
    tool: str
    undo: str | None
    """The function that undoes it."""
    arguments: list[Any]
    result: Any
    keywords: StoredDict = {}  # noqa: RUF012 - a Struct copies it
    """Arguments that were passed by name."""


class RollbackPlan(View, frozen=True, kw_only=True):
    """What `app.rollback` would do, or has done."""

    run_id: str
    to: int
    """The journal position to which the run is rolled back."""
    undo: tuple[EffectPlan, ...]
    """Effects that are undone, in this order."""
    irreversible: tuple[EffectPlan, ...]
    """Effects that cannot be undone. They stop the rollback unless it is forced."""
    in_doubt: tuple[EffectPlan, ...]
    """Effects whose outcome is unknown. They stop it, too."""
    compensated: tuple[EffectPlan, ...]
    """Effects that the run has undone itself since, but would treat as done after the rollback. They stop it, too."""
    calls: tuple[str, ...]
    """The recorded calls that are rolled back, and repeated when the run continues."""
    gates: tuple[str, ...] = ()
    """The gates among these calls, which are asked again."""
    fork_calls: tuple[str, ...] = ()
    """The calls that a fork from the same place repeats: also those that were not finished there, as an open gate."""
    fork_gates: tuple[str, ...] = ()
    """The gates among these."""
    children: tuple[str, ...]
    """Child runs that are rolled back, with their own children: they are stopped, and their effects undone."""
    missing: tuple[str, ...] = ()
    """Ended child runs that are not in this store: their effects cannot be undone. They stop it, too."""
    detached: tuple[str, ...] = ()
    """Detached child runs. They are not rolled back, and started again when the run continues."""
    detached_effects: tuple[EffectPlan, ...] = ()
    """Effects of detached children, which would be performed again. They stop it, too."""
    forks: tuple[str, ...] = ()
    """Forks that keep the results of effects that are undone. They do not stop it."""
    basis: str = ""
    """Identifies what the plan was made of. `rollback` and `fork` with it are refused if that has changed since."""

    @property
    def problems(self) -> list[str]:
        """Why the rollback is refused."""
        found = [f"{self._effect(e)} cannot be undone" for e in self.irreversible]
        found += [f"the outcome of {self._effect(e)} is unknown" for e in self.in_doubt]
        found += [f"{self._effect(e)} was undone since; go back to before it" for e in self.compensated]
        found += [f"child run {name!r} is not in this store, so what it did cannot be undone" for name in self.missing]
        return found + [
            f"{self._effect(e)} is not undone, since that child is detached, and would be performed again"
            for e in self.detached_effects
        ]

    @property
    def warnings(self) -> list[str]:
        """What to know before the rollback; it is not refused."""
        count, names = len(self.forks), ", ".join(map(repr, self.forks))
        text = f"1 fork keeps the undone results: {names}" if count == 1 else ""
        return [text or f"{count} forks keep the undone results: {names}"] if count else []

    def _effect(self, effect: EffectPlan) -> str:
        of_child = f" of child run {effect.run_id!r}" if effect.run_id != self.run_id else ""
        return f"effect {effect.key!r} ({effect.tool}){of_child}"

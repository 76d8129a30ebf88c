"""Carries out a case; one that prunes also without its prunes, which must not change what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.attack.attack import Attack, Outcome
from tests.attack.deployment import Scratch
from tests.attack.generator import Case


def attack(case: Case, scratch: Scratch) -> Outcome:
    """Carry out a case; if it prunes, also without pruning, which must come to the same."""
    if not any(action["do"] == "prune" for action in case["actions"]) or case["branches"] > 1:
        return Attack(case, scratch).run()
    plain = Attack(case, scratch, skip=("prune",)).run()
    if plain.problems:
        return plain
    prunes = [action for action in case["actions"] if action["do"] == "prune"]
    merged = sorted([*plain.settled, *prunes], key=lambda action: action["id"])
    pruned = Attack({**case, "actions": merged}, scratch).run()
    return pruned if pruned.problems else pruned._replace(problems=list(_compared(plain, pruned)))


def _compared(plain: Outcome, pruned: Outcome) -> Iterator[tuple[str, str]]:
    """Where a case came out otherwise because of its prunes; once something was refused, that is no wonder."""
    errors = [error for action, error in zip(pruned.settled, pruned.errors, strict=True) if action["do"] != "prune"]
    for action, was, now in zip(plain.settled, plain.errors, errors, strict=True):
        if was == now:
            continue
        if now in _REFUSALS:
            return
        yield (
            "prune",
            f"{action['do']} of {action.get('run')} met {now or 'nothing'} after pruning, else {was or 'nothing'}",
        )
    if plain.ends != pruned.ends:
        yield "prune", f"runs ended as {pruned.ends} after pruning, else as {plain.ends}"


_REFUSALS: Final = ("InvalidInput", "InvalidCursor", "NotFound", "CheckpointNotFound", "RollbackRefused")
"""How something is refused because of what was pruned."""

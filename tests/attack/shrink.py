"""Makes a failing case smaller, as long as it fails in the same way."""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Iterator
from typing import Any, Final

from tests.attack.attack import Outcome
from tests.attack.comparison import attack
from tests.attack.deployment import Scratch
from tests.attack.generator import Case
from tests.attack.program import bodies_of

_SECONDS: Final = 60.0


def shrunk(case: Case, outcome: Outcome, place: Scratch, seconds: float = _SECONDS) -> tuple[Case, Outcome]:
    """The smallest case found that fails as this one did, and what came of it."""
    sign = signature(outcome)
    until = time.monotonic() + seconds

    def fails(candidate: Case) -> Outcome | None:
        found = attack(candidate, place)
        return found if found.problems and signature(found) == sign else None

    settled = {**case, "actions": outcome.settled}
    found = fails(settled)
    best, result = (settled, found) if found is not None else (case, outcome)
    progress = True
    while progress and time.monotonic() < until:
        progress = False
        for candidate in smaller(best):
            if time.monotonic() >= until:
                break
            try:
                found = fails(candidate)
            except Exception:  # the program makes no sense any more
                found = None
            if found is not None:
                best, result, progress = candidate, found, True
                break
    return best, result


def explain(case: Case, outcome: Outcome, place: Scratch, seconds: float = _SECONDS) -> str:
    """A failure for people: what is wrong, the shrunk program and actions, and how to repeat both."""
    lines = [
        f"seed {case['seed']} on {case['store']}: python -m tests.attack --seed {case['seed']} --store {case['store']}"
    ]
    lines += [f"    {kind}: {text}" for kind, text in outcome.problems[:4]]
    small, found = shrunk(case, outcome, place, seconds)
    lines += [f"  shrunk: {kind}: {text}" for kind, text in found.problems[:2]]
    lines += [f"    node   {json.dumps(node)}" for node in small["program"]]
    lines += [f"    action {json.dumps(action)}" for action in found.settled]
    return "\n".join([*lines, f"  python -m tests.attack --case '{json.dumps(small)}'"])


def signature(outcome: Outcome) -> str:
    """What a failure is recognised by: its first problem, without names and numbers."""
    kind, text = outcome.problems[0]
    return kind + _NAMES.sub("_", text)[:_SIGNATURE]


_NAMES: Final = re.compile(r"'[^']*'|\b[0-9a-f]{6,}\b|\d+|x\.\S+|/[\w/@]+|\([^()]*\)")
_SIGNATURE: Final = 110


def smaller(case: Case) -> Iterator[Case]:
    """Cases with one thing less, the largest reductions first."""
    actions = case["actions"]
    size = len(actions)
    while size >= 1:
        for first in range(0, len(actions), size):
            yield {**case, "actions": actions[:first] + actions[first + size :]}
        size //= 2
    if case["store"] != "memory":
        yield {**case, "store": "memory"}
    if case["branches"] > 1:
        yield {**case, "branches": 1}
    if case.get("start"):
        yield {**case, "start": {}}
    if case["peer"]:
        yield {**case, "peer": []}
    for number, action in enumerate(actions):
        for name in ("crash", "meanwhile", "enqueue", "unnoticed", "force"):
            if name in action:
                less = {key: value for key, value in action.items() if key != name}
                yield {**case, "actions": [*actions[:number], less, *actions[number + 1 :]]}
    for program in _less(case["program"]):
        yield {**case, "program": program}
    if case["kind"] == "async":
        yield {**case, "kind": "def"}


def _less(body: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Programs with a node less, or with the inside of a node in its place, or with a simpler node."""
    for number, node in enumerate(body):
        before, after = body[:number], body[number + 1 :]
        yield [*before, *after]
        for inner in bodies_of(node):
            yield [*before, *inner, *after]
        for name in ("keyed", "keyless", "fault", "retry", "check", "expires", "then", "else", "timeout"):
            if name in node:
                yield [*before, {key: value for key, value in node.items() if key != name}, *after]
        if node.get("turns", 1) > 1:
            yield [*before, {**node, "turns": node["turns"] - 1}, *after]
        if node.get("kind") == "async":
            yield [*before, {**node, "kind": "def"}, *after]
        for name in ("body", "last", "then", "else"):
            for inner in _less(node.get(name, [])):
                yield [*before, {**node, name: inner}, *after]
        branches = node.get("branches", [])
        for index, branch in enumerate(branches):
            for inner in _less(branch):
                changed = copy.copy(branches)
                changed[index] = inner
                yield [*before, {**node, "branches": changed}, *after]

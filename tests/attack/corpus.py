"""Cases that have found a defect, shrunk: they are carried out first, on every store."""

from __future__ import annotations

from typing import Any, Final

from tests.attack.generator import Action, Case
from tests.attack.world import Node

_UNDOABLE: Final[Node] = {"op": "effect", "in_doubt": "ask", "undo": True}
_FLAKY_UNDO: Final[Node] = {"op": "effect", "in_doubt": "ask", "undo": "flaky"}
_PAYING_CHILD: Final[Node] = {"op": "child", "id": 1, "kind": "def", "body": [{**_UNDOABLE, "id": 2}]}
_ASKING_CHILD: Final[Node] = {"op": "child", "id": 1, "kind": "def", "body": [{"op": "ask", "id": 2}]}
_NESTED_CHILD: Final[Node] = {"op": "child", "id": 4, "kind": "def", "body": [_PAYING_CHILD]}
_CHILD: Final = "r/child:attack#1"
_GRANDCHILD: Final = "r/child:attack#1/child:attack#1"


def _rollback(to: int | str, run: str = "r", **more: Any) -> Action:
    return {"do": "rollback", "run": run, "to": to, **more}


def _prune(run: str = "r") -> Action:
    return {"do": "prune", "run": run, "last": 1, "journal": True}


def _fork(to: int | str | None, run: str = "r") -> Action:
    return {"do": "fork", "run": run, "to": to, "effects": "reuse"}


_CASES: Final[dict[str, tuple[list[Node], list[Action]]]] = {
    "a prune between rollbacks": (
        [{"op": "step", "id": 1}, {"op": "step", "id": 2}, {"op": "step", "id": 3}],
        [_rollback(1), _rollback(8), _prune(), _rollback(8)],
    ),
    "a prune between rollbacks around a loop": (
        [{"op": "step", "id": 1}, {"op": "loop", "id": 2, "turns": 2, "body": [{"op": "step", "id": 3}]}],
        [_rollback(2), _rollback("s1#1"), _prune(), _rollback(3), _prune(), _rollback(2)],
    ),
    "a rollback over a finished child": ([{"op": "step", "id": 3}, _PAYING_CHILD], [_rollback(2)]),
    "a fork from before a finished child": ([{"op": "step", "id": 3}, _PAYING_CHILD], [_fork(2)]),
    "a copy of a run that waits for a child": (
        [_ASKING_CHILD], [{"do": "copy", "run": "r"}, {"do": "resume", "run": "c1"}],
    ),
    "a copy of a run at a gate": ([{"op": "ask", "id": 1}], [{"do": "copy", "run": "r"}]),
    "an import of a run that sleeps": (
        [{"op": "sleep", "id": 1, "s": 5000}], [{"do": "move", "run": "r", "elsewhere": True}],
    ),
    "an export of a run with an answer it has not read": (
        [{"op": "ask", "id": 1}],
        [{"do": "answer", "run": "r", "pick": 0, "enqueue": True}, {"do": "move", "run": "r", "elsewhere": True}],
    ),
    "a child that ends twice": (
        [_ASKING_CHILD],
        [
            {"do": "pause", "run": "r"}, {"do": "answer", "run": _CHILD, "pick": 0}, _rollback(1, _CHILD),
            {"do": "resume", "run": "r"},
        ],
    ),
    "a detached child": (
        [{**_PAYING_CHILD, "detached": True}, {"op": "ask", "id": 3}],
        [_fork(2), {"do": "copy", "run": "r"}, {"do": "resume", "run": "c2"}],
    ),
    "a detached child that is deleted": (
        [{**_PAYING_CHILD, "detached": True}, {"op": "ask", "id": 3}],
        [{"do": "resume", "run": _CHILD}, {"do": "delete", "run": _CHILD}, {"do": "answer", "run": "r", "pick": 0}],
    ),
    "a rollback past an event": (
        [{"op": "wait", "id": 1}, {"op": "ask", "id": 2}], [{"do": "send", "run": "r"}, _rollback(1)],
    ),
    "an effect whose reply was lost": (
        [{**_UNDOABLE, "id": 1, "fault": "timeout", "retry": True, "keyless": True}], [],
    ),
    "a call without await": ([{"op": "forgotten", "id": 1}], []),
    "a fork while a rollback is open": (
        [{**_FLAKY_UNDO, "id": 1}, {"op": "ask", "id": 2}], [_rollback(1), _fork(None)],
    ),
    "a prune while a rollback is open": (
        [{"op": "note", "id": 3}, {"op": "checkpoint", "id": 4}, {**_FLAKY_UNDO, "id": 1}, {"op": "note", "id": 5},
         {"op": "checkpoint", "id": 6}, {"op": "ask", "id": 2}],
        [_rollback(2), _prune()],
    ),
    "a prune between the plan and the beginning of a rollback": (
        [{"op": "step", "id": 1}, {"op": "loop", "id": 4, "turns": 3, "body": [{"op": "step", "id": 3}]}],
        [_rollback(4, meanwhile=[0, {**_prune(), "id": 1001, "by": 1}])],
    ),
    "a copy of an effect between two attempts": (
        [{**_UNDOABLE, "id": 2, "fault": "flaky", "retry": True}],
        [{"do": "move", "run": "r", "elsewhere": True}, {"do": "resume", "run": "m1"}],
    ),
    "a fork that goes back over an effect of its source": (
        [{**_UNDOABLE, "id": 3}, {**_UNDOABLE, "id": 4, "check": True, "fault": "flaky", "retry": True}],
        [_fork(None), _rollback("e3#1", "f1")],
    ),
    "a cancelled run that cleans up with retries": (
        [{"op": "last", "id": 1, "body": [{"op": "ask", "id": 2}],
          "last": [{**_UNDOABLE, "id": 3, "fault": "flaky", "retry": True}]}],
        [{"do": "cancel", "run": "r"}],
    ),
    "a fork of a child": ([_ASKING_CHILD], [_fork(2, _CHILD), {"do": "answer", "run": "f1", "pick": 0}]),
    "a child that was given up, rolled back to its gate": ([_ASKING_CHILD], [_rollback(1), _rollback(2, _CHILD)]),
    "a grandchild that was given up, rolled back": (
        [{**_UNDOABLE, "id": 3}, _NESTED_CHILD], [_rollback("e3#1"), _rollback(1, _GRANDCHILD)],
    ),
    "a grandchild rolled back while a rollback above it is open": (
        [{**_FLAKY_UNDO, "id": 3}, _NESTED_CHILD], [_rollback("e3#1"), _rollback(1, _GRANDCHILD)],
    ),
    "a fork that dies before it creates the child that its source has created since": (
        [{**_UNDOABLE, "id": 3, "in_doubt": "fail", "fault": "flaky", "retry": True}, _PAYING_CHILD],
        [{"do": "tick", "s": 6000}, {**_fork(None), "crash": [4, True]}],
    ),
    "a fork beside a copy that has begun the effect": (
        [{**_UNDOABLE, "id": 1, "fault": "flaky", "retry": True}],
        [{"do": "copy", "run": "r"}, {"do": "tick", "s": 700}, {"do": "work"}, _fork(1)],
    ),
    "a call without await after an answer": ([{"op": "ask", "id": 1}, {"op": "forgotten", "id": 2}], []),
    "a fork at the checkpoint of a rollback": (
        [{"op": "note", "id": 2}], [_rollback(2), {**_fork(None), "to": ["checkpoint", 0.4]}],
    ),
}  # fmt: skip
"""By what happens in them: the program and the actions."""
NAMES: Final = tuple(_CASES)


def case_named(name: str, store: str) -> Case:
    """A case of the corpus, on a store."""
    program, actions = _CASES[name]
    numbered = [{"id": number, "by": number % 2, **action} for number, action in enumerate(actions, start=1)]
    kind = "async" if "await" in name else "def"
    return {
        "seed": 1, "store": store, "kind": kind, "branches": 1, "program": program, "peer": [], "actions": numbered,
    }  # fmt: skip

"""Cases from seeds: a program for the run, one for its peer, and a list of actions, all of it plain data.

Each case uses a random part of the features, so that rare combinations of few features are met as well.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from typing import Any, Final

from tests.attack.world import Node

Case = dict[str, Any]
Action = dict[str, Any]

NODES: Final = {
    "step": 6, "effect": 8, "ask": 5, "map": 1, "sleep": 2, "wait": 3, "send": 2, "version": 1, "chance": 2, "log": 1,
    "checkpoint": 2, "note": 2, "gather": 2, "loop": 3, "child": 4, "last": 1, "raise": 0.3, "forgotten": 0.1,
}  # fmt: skip
"""What a program is made of, and how often."""
ACTIONS: Final = {
    "answer": 8, "send": 3, "tick": 4, "resume": 4, "pause": 3, "cancel": 1, "rollback": 8, "fork": 5, "prune": 5,
    "copy": 2, "move": 2, "delete": 1, "retry": 1, "restart": 1, "work": 1,
}  # fmt: skip
"""What is done to runs from outside, and how often."""
TRAITS: Final = (
    "crash",
    "meanwhile",
    "detached",
    "expiry",
    "fault",
    "in_doubt",
    "peer",
    "parallel",
    "force",
    "timeout",
)
"""What nodes and actions may have beside."""
FEATURES: Final = frozenset({*NODES, *ACTIONS, *TRAITS})
_TARGETS: Final = ("position", "position", "call", "checkpoint", "oldest", "recent", "recent", "again")
"""Where rollbacks and forks go: `again` is where the last one went."""
_ALWAYS: Final = frozenset({"step", "effect", "answer", "tick", "resume"})


def case_of(seed: int, store: str = "memory", without: Collection[str] = (), often: Collection[str] = ()) -> Case:
    """The case of a seed; `without` some features, and with others `often`."""
    rng = random.Random(seed)
    drop = rng.choice((0.0, 0.3, 0.5, 0.7))
    features = {name for name in sorted(FEATURES) if name in _ALWAYS or rng.random() >= drop} - set(without)
    return Generator(rng, features | set(often), often).case(seed, store)


class Generator:
    """Draws a case."""

    def __init__(self, rng: random.Random, features: set[str], often: Collection[str] = ()) -> None:
        self._rng = rng
        self._often = often
        self._features = features
        self._id = 0
        self._events: list[str] = []

    def case(self, seed: int, store: str) -> Case:
        rng = self._rng
        peer: list[Node] = []
        if self._has("peer"):
            peer = [self._wait() for _ in range(rng.randint(1, 2))]
            self._events = [f"v{node['id']}" for node in peer]
        program = self._body(rng.randint(2, 5), depth=2, main=True)
        actions = [self._action(number) for number in range(1, rng.randint(2, 12))]
        crash = self._has("crash") and rng.random() < 0.3
        start = {"crash": [rng.choice((0, 1, 2, 3, 5, 8, 13)), rng.random() < 0.5]} if crash else {}
        parallel = self._has("parallel") and rng.random() < 0.3
        return {
            "seed": seed, "store": store, "kind": rng.choice(("def", "async")), "branches": 3 if parallel else 1,
            "program": program, "peer": peer, "start": start, "actions": actions,
        }  # fmt: skip

    def _has(self, feature: str) -> bool:
        return feature in self._features

    def _pick(self, weights: Mapping[str, float], *but: str) -> str:
        names = [name for name in weights if self._has(name) and name not in but]
        return self._rng.choices(names, [weights[name] * (6 if name in self._often else 1) for name in names])[0]

    # --- programs ----------------------------------------------------------------------------------------------------

    def _body(self, count: int, depth: int, *, main: bool, but: tuple[str, ...] = ()) -> list[Node]:
        return [self._node(depth, main=main, but=but) for _ in range(count)]

    def _node(self, depth: int, *, main: bool, but: tuple[str, ...]) -> Node:
        excluded = [
            *but,
            *([] if main else ["loop", "note", "raise", "forgotten"]),
            *([] if self._events else ["send"]),
        ]
        if depth == 0:
            excluded += ["gather", "loop", "child", "last"]
        op = self._pick(NODES, *excluded)
        make = getattr(self, f"_{op}", None)
        node: Node = make(depth, main) if make is not None else {"op": op}
        node.setdefault("op", op)
        node.setdefault("id", self._new_id())
        if op in ("step", "effect", "ask", "sleep", "send") and self._rng.random() < 0.15:
            node["keyed"] = True
        return node

    def _new_id(self) -> int:
        self._id += 1
        return self._id

    def _small(self, depth: int, *, main: bool) -> list[Node]:
        return self._body(self._rng.randint(1, 3), depth - 1, main=main)

    def _step(self, *_: Any) -> Node:
        fault = self._rng.choice((None, None, None, "raise", "flaky")) if self._has("fault") else None
        return {"fault": fault, "retry": True} if fault == "flaky" else {"fault": fault} if fault else {}

    def _effect(self, *_: Any) -> Node:
        rng = self._rng
        node: Node = {"in_doubt": rng.choice(("ask", "ask", "retry", "fail")) if self._has("in_doubt") else "ask"}
        undo = rng.choice((None, True, True, True, "flaky" if self._has("fault") else True))
        node |= {"undo": undo} if undo else {}
        node |= {"check": rng.choice((True, True, "raises"))} if rng.random() < 0.3 else {}
        if self._has("fault"):
            fault = rng.choice((None, None, None, None, "raise", "flaky", "timeout" if self._has("timeout") else None))
            node |= {"fault": fault} if fault else {}
            node |= {"retry": True} if fault == "flaky" or rng.random() < 0.2 else {}
        if not self._features & {"fork", "copy", "move"} and rng.random() < 0.4:
            node["keyless"] = True
        return node

    def _ask(self, depth: int, main: bool) -> Node:
        node: Node = {}
        if self._has("expiry") and self._rng.random() < 0.3:
            node |= {"expires": 600, "expired": self._rng.choice(("deny", "fail", {"yes": True}))}
        if depth > 0 and self._rng.random() < 0.2:
            node |= {"then": self._small(depth, main=main), "else": self._small(depth, main=main)}
        return node

    def _map(self, *_: Any) -> Node:
        return {"n": self._rng.randint(1, 3)}

    def _sleep(self, *_: Any) -> Node:
        return {"s": self._rng.choice((30, 120, 5000))}

    def _wait(self, *_: Any) -> Node:
        node: Node = {"op": "wait", "id": self._new_id()}
        return node | ({"timeout": 900} if self._has("expiry") and self._rng.random() < 0.3 else {})

    def _send(self, *_: Any) -> Node:
        return {"event": self._rng.choice(self._events)}

    def _gather(self, depth: int, main: bool) -> Node:
        return {"branches": [self._small(depth, main=False) for _ in range(self._rng.randint(2, 3))]}

    def _loop(self, depth: int, main: bool) -> Node:
        return {"turns": self._rng.randint(1, 3), "body": self._small(depth, main=True)}

    def _child(self, depth: int, main: bool) -> Node:
        node: Node = {"kind": self._rng.choice(("def", "async")), "body": self._small(depth, main=True)}
        return node | ({"detached": True} if self._has("detached") and self._rng.random() < 0.25 else {})

    def _last(self, depth: int, main: bool) -> Node:
        last = self._body(1, 0, main=main, but=("ask", "sleep", "wait", "note", "checkpoint", "raise", "forgotten"))
        for node in last:  # behind a call with a key that waits, another one with a key is carried out at once
            node.pop("keyed", None)
        # Without loops: calls after one belong to its last turn, so that the last ones would depend on how far it came.
        body = self._body(self._rng.randint(1, 3), depth - 1, main=main, but=("loop",))
        return {"body": body, "last": last}

    # --- actions -----------------------------------------------------------------------------------------------------

    def _action(self, number: int, *, inner: bool = False) -> Action:
        rng = self._rng
        do = self._pick(ACTIONS, *(("work", "restart") if inner else ()))
        action: Action = {"id": number, "do": do, "run": rng.random(), "by": rng.randrange(2)}
        if do in ("answer", "send", "resume", "pause", "cancel", "rollback", "fork", "retry") and rng.random() < 0.3:
            action["enqueue"] = True
        if do in ("rollback", "fork"):
            action["to"] = [rng.choice(_TARGETS), rng.random()]
        if do == "rollback":
            action |= {"force": True} if self._has("force") and rng.random() < 0.2 else {}
        if do == "fork":
            action["effects"] = rng.choice(("reuse", "reuse", "reuse", "perform", "ask"))
            action["to"] = rng.choice((action["to"], None))
        if do == "prune":
            action |= {"last": rng.choice((1, 1, 1, 2)), "journal": rng.random() < 0.9}
            action |= {"covering": rng.random()} if rng.random() < 0.2 else {}
        if do == "tick":
            action["s"] = rng.choice((1, 20, 100, 700, 6000))
        if do == "move":
            action["elsewhere"] = rng.random() < 0.5
        if do == "answer":
            action["pick"] = rng.random()
        if inner or do in ("restart", "work"):
            return action
        if self._has("crash") and rng.random() < 0.35:
            action["crash"] = [rng.choice((0, 0, 1, 2, 3, 4, 6, 9, 14)), rng.random() < 0.5]
            action |= {"unnoticed": True} if rng.random() < 0.2 else {}
        elif self._has("meanwhile") and rng.random() < 0.15:
            action["meanwhile"] = [rng.choice((0, 1, 2, 4, 7)), self._action(1000 + number, inner=True)]
        return action

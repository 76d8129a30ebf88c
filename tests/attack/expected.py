"""What a completed run must have returned: compared with its program, given the choices the result itself shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.attack.program import all_nodes, answer_of, value_of
from tests.attack.world import Node


class Expected:
    """Compares a result with a program. `disturbed`: effects may be in doubt, and children may have been cancelled."""

    def __init__(self, *, cancels: bool, doubts: bool, kind: str) -> None:
        self._kind = kind
        self._cancels = cancels
        self._doubts = doubts
        self._notes: list[int] = []

    def differences(self, body: list[Node], found: Any, path: str = "") -> Iterator[str]:
        """Where the result of a program is not what it must be."""
        if not isinstance(found, list) or len(found) != len(body):
            yield f"{path or 'the program'} returned {found!r}"
            return
        for node, value in zip(body, found, strict=True):
            yield from getattr(self, f"_{node['op']}", self._nothing)(node, value, f"{path}/{node['id']}")

    def _is(self, path: str, found: Any, *allowed: Any) -> Iterator[str]:
        if not any(type(found) is type(one) and found == one for one in allowed):
            yield f"{path} returned {found!r}, not {' or '.join(map(repr, allowed))}"

    def _nothing(self, node: Node, found: Any, path: str) -> Iterator[str]:
        yield from self._is(path, found, None)

    def _step(self, node: Node, found: Any, path: str) -> Iterator[str]:
        yield from self._is(path, found, "failed" if node.get("fault") == "raise" else node["id"] * 7)

    def _effect(self, node: Node, found: Any, path: str) -> Iterator[str]:
        allowed = ["failed"] if node.get("fault") == "raise" else ["done"]
        if node.get("fault") == "flaky" and (node.get("keyless") or not node.get("retry")):
            allowed.append("failed")  # without a key it is only tried again if it was declared idempotent
        doubtful = node["in_doubt"] == "fail" or node.get("fault") == "raise"
        doubtful = doubtful and (self._doubts or node.get("fault") == "timeout")
        yield from self._is(path, found, *allowed, *(["doubt"] if doubtful else []))

    def _ask(self, node: Node, found: Any, path: str) -> Iterator[str]:
        allowed = [answer_of(node["id"])]
        if "expires" in node:
            expired = node["expired"]
            if expired == "fail" and found == ["expired"]:
                return
            allowed += [] if expired == "fail" else [False if expired == "deny" else expired["yes"]]
        if not isinstance(found, list) or len(found) != 2:
            yield f"{path} returned {found!r}"
            return
        yield from self._is(path, found[0], *allowed)
        yield from self.differences(node.get("then" if found[0] else "else", []), found[1], path)

    def _forgotten(self, node: Node, found: Any, path: str) -> Iterator[str]:
        if self._kind == "async":
            yield f"{path} did not await a call, and the run went on"

    def _map(self, node: Node, found: Any, path: str) -> Iterator[str]:
        yield from self._is(path, found, [number * 2 for number in range(node["n"])])

    def _wait(self, node: Node, found: Any, path: str) -> Iterator[str]:
        yield from self._is(path, found, value_of(f"v{node['id']}"), *(["late"] if "timeout" in node else []))

    def _version(self, node: Node, found: Any, path: str) -> Iterator[str]:
        yield from self._is(path, found, 1)

    def _note(self, node: Node, found: Any, path: str) -> Iterator[str]:
        self._notes = [*self._notes, node["id"]]
        yield from self._is(path, found, self._notes)

    def _gather(self, node: Node, found: Any, path: str) -> Iterator[str]:
        if not isinstance(found, list) or len(found) != len(node["branches"]):
            yield f"{path} returned {found!r}"
            return
        for body, value in zip(node["branches"], found, strict=True):
            yield from self.differences(body, value, path)

    def _loop(self, node: Node, found: Any, path: str) -> Iterator[str]:
        if not isinstance(found, list) or len(found) != node["turns"]:
            yield f"{path} returned {found!r}, not {node['turns']} turns"
            return
        for turn, value in enumerate(found, start=1):
            yield from self.differences(node["body"], value, f"{path}@{turn}")

    def _child(self, node: Node, found: Any, path: str) -> Iterator[str]:
        if node.get("detached"):
            yield from self._is(path, found, ["detached"])
        elif found == ["cancelled"] and self._cancels:
            return
        elif found in (["AttackError"], ["MissingAwait"]) and may_fail(node["body"], found[0]):
            return
        elif not isinstance(found, list) or found[0] != "ended":
            yield f"{path} returned {found!r}"
        else:
            inner = Expected(cancels=self._cancels, doubts=self._doubts, kind=node["kind"])
            yield from inner.differences(node["body"], found[1], path)

    def _last(self, node: Node, found: Any, path: str) -> Iterator[str]:
        if not isinstance(found, dict) or found.keys() != {"body", "last"}:
            yield f"{path} returned {found!r}"
            return
        yield from self.differences(node["body"], found["body"], path)
        yield from self.differences(node["last"], found["last"], path)


def may_fail(body: list[Node], error: str) -> bool:
    """Whether a program may end with an error of this type."""
    op = {"AttackError": "raise", "MissingAwait": "forgotten"}.get(error)
    return any(node["op"] == op for node in all_nodes(body))

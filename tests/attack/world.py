"""The outside world: what effects and undos did to it, recorded apart from any store.

The world learns which intents became durable by watching the commits that a store accepts (`WatchedPort`), so it can
tell an effect that no ledger announced from one that was announced and then interrupted.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final

import holdfast
from holdfast.errors import StorageFailed
from holdfast.model.commit import Commit, Committed, Outcome
from holdfast.operations.views import decode_body
from holdfast.store.port import StorePort
from tests.faulty_port import CAPABILITIES

Node = dict[str, Any]

_COMMITS_MAX: Final = 1000
"""No action makes as many commits, unless it never ends."""


class AttackError(Exception):
    """What functions of the world raise when they are told to fail."""


class World:
    """Effects by the idempotency key they were performed with, and everything that looks wrong at once."""

    def __init__(self, nodes: dict[int, Node]) -> None:
        self._nodes = nodes
        self._lock = threading.Lock()
        self.problems: list[tuple[str, str]] = []
        self.owners: dict[str, list[str]] = defaultdict(list)
        """By idempotency key: the runs that answer for it, first to last. A fork that found an effect of its source in
        doubt, and a copy, use the key of the run they came from."""
        self.paths: dict[str, str] = {}
        """By idempotency key: the place in the program of what was performed under it."""
        self.calls: Counter[str] = Counter()
        self.undone: dict[str, set[str]] = defaultdict(set)
        """By idempotency key of the effect: those of its undos."""
        self.order: list[str] = []
        """Idempotency keys in the order in which they were first performed."""
        self.commits = 0
        """How many commits the action has made that is under way."""
        self._tries: Counter[str] = Counter()
        self.on_intent: Any = None
        """Called with run, path and key when an intent was recorded; gives what is wrong if that is performed."""
        self.keys: dict[str, str] = {}
        """By idempotency key: the key in the ledger."""
        self._suspect: dict[str, str] = {}
        self._intent_of: dict[str, str] = {}

    def problem(self, kind: str, text: str) -> None:
        self.problems.append((kind, text))

    def node(self, path: str) -> Node:
        """The node of the program that a path leads to."""
        return self._nodes[int(path.rpartition("/")[2].partition("@")[0])]

    def net(self, token: str) -> int:
        """How often it is done: performed and not undone."""
        return int(token in self.paths) - len(self.undone[token])

    def net_of_path(self, path: str) -> int:
        """How often what stands at this place of the program is done, by all runs together."""
        return sum(self.net(token) for token in self.order if self.paths[token] == path)

    def note_intent(self, run_id: str, token: str, path: str, key: str) -> None:
        """A ledger has recorded that it is about to perform this."""
        with self._lock:
            self.keys[token] = key
            if run_id in self.owners[token]:
                return
            self.owners[token].append(run_id)
            self._intent_of[path] = token
            wrong = self.on_intent(run_id, path, key) if path and len(self.owners[token]) == 1 else ""
            if wrong:
                self._suspect[token] = wrong

    # --- what workflows call -----------------------------------------------------------------------------------------

    def compute(self, path: str) -> int:
        """A step; it fails as its node says."""
        node = self.node(path)
        with self._lock:
            self._tries[path] += 1
            tries = self._tries[path]
        if node.get("fault") == "raise" or (node.get("fault") == "flaky" and tries == 1):
            raise AttackError(f"step {node['id']} failed")
        return int(node["id"]) * 7

    @staticmethod
    def echo(value: Any) -> Any:
        return value

    @staticmethod
    def double(number: int) -> int:
        return number * 2

    def perform(self, path: str, idempotency_key: str) -> dict[str, str]:
        """An effect."""
        node, token = self.node(path), idempotency_key
        with self._lock:
            self._tries[token] += 1
            first = self._tries[token] == 1
            if token not in self.owners:
                self.problem("unannounced", f"effect {path} was performed and no ledger had announced it")
            fault = node.get("fault")
            if fault == "raise" or (fault == "flaky" and first):
                raise AttackError(f"effect {node['id']} failed")
            if token in self._suspect:
                self.problem("twice", self._suspect[token])
            self.calls[token] += 1
            repeatable = node["in_doubt"] == "retry" or (node.get("retry") and not node.get("keyless"))
            if self.calls[token] > max(1, len(self.owners[token])) and not repeatable:
                self.problem("repeated", f"effect {path} was performed {self.calls[token]} times under one key")
            if token not in self.paths:
                self.paths[token] = path
                self.order.append(token)
            if fault == "timeout" and first:
                raise TimeoutError(f"effect {node['id']} was performed and its reply was lost")
        return {"token": token}

    def perform_keyless(self, path: str) -> dict[str, str]:
        """An effect that does not take an idempotency key: the intent recorded last for its place tells whose it is."""
        return self.perform(path, self._intent_of[path])

    def check(self, path: str, idempotency_key: str = "") -> Any:
        """Whether the effect happened, as far as the world can tell."""
        if self.node(path).get("check") == "raises":
            raise AttackError("the check cannot tell")
        with self._lock:
            found = [token for token in self.order if self.paths[token] == path and self.net(token) > 0]
            found = [token for token in found if token == idempotency_key or not idempotency_key]
        return holdfast.Happened({"token": found[-1]}) if found else holdfast.DidNotHappen

    def undo(self, result: dict[str, str], path: str, idempotency_key: str) -> None:
        """The undo of an effect."""
        token = result["token"]
        with self._lock:
            self._tries[idempotency_key] += 1
            if self.node(path).get("undo") == "flaky" and self._tries[idempotency_key] == 1:
                raise AttackError("the undo failed")
            if token not in self.paths:
                self.problem("undone", f"effect {path} was undone and had never been performed")
            self.undone[token].add(idempotency_key)
            if len(self.undone[token]) > 1 and len(self.owners[token]) < 2:
                self.problem("undone", f"effect {path} was undone {len(self.undone[token])} times")


class WatchedPort:
    """A port that tells the world of every effect whose intent a store has accepted."""

    def __init__(self, port: StorePort, world: World, *, shared: bool) -> None:
        self._port = port
        self._world = world
        self._shared = shared
        for name in CAPABILITIES:
            if hasattr(port, name):  # isinstance does not ask __getattr__
                setattr(self, name, getattr(port, name))

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        self._world.commits += len(commits)
        if self._world.commits > _COMMITS_MAX:
            if self._world.commits == _COMMITS_MAX + 1:
                self._world.problem("hang", f"one action has made more than {_COMMITS_MAX} commits")
            raise StorageFailed("this action makes commits without end")
        outcomes = self._port.commit(commits)
        for commit, outcome in zip(commits, outcomes, strict=True):
            if type(outcome) is Committed:
                self._note(commit)
        return outcomes

    def _note(self, commit: Commit) -> None:
        for effect in commit.effects:
            call = decode_body(effect.call, "an effect") if effect.call else None
            if call and "token" in call and (not call.get("reused") or effect.state == "intent"):
                path = call["args"][0] if call.get("args") else ""
                self._world.note_intent(commit.run_id, call["token"], path, effect.key)

    def close(self) -> None:
        if not self._shared:
            self._port.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

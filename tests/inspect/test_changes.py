"""What differs between two states, as changes and as a JSON Patch."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import holdfast
from holdfast.inspect.refs import changes_between, checkpoint_of
from holdfast.state.json_preview import json_patch, to_jsonable

STATES: list[Any] = [
    {"messages": [{"n": i, "text": f"message {i} " * 60} for i in range(40)], "a/b": 1, "t~": None},
    {"messages": [{"n": i, "text": f"message {i} " * 60} for i in range(44)], "a/b": 2, "new": (1, {2})},
    {"messages": [{"n": i, "text": f"message {i} " * 60} for i in range(1, 44)], "new": (1, {3}), "b": b"\x00"},
    [1, 2, {"x": 1}],
    [2, {"x": {"y": []}}],
    7,
]


def applied(document: Any, patch: list[dict[str, Any]]) -> Any:
    """A JSON Patch carried out, by the letter of RFC 6902."""
    whole = {"": copy.deepcopy(document)}
    for change in patch:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in change["path"].split("/")]
        place: Any = whole
        for part in parts[:-1]:
            place = place[int(part) if isinstance(place, list) else part]
        key: Any = int(parts[-1]) if isinstance(place, list) else parts[-1]
        match change["op"]:
            case "add" if isinstance(place, list):
                place.insert(key, change["value"])
            case "remove":
                del place[key]
            case _:
                place[key] = change["value"]
    return whole[""]


@pytest.fixture
def store() -> Any:
    with holdfast.open("memory:") as opened:
        for state in STATES:
            opened.save("a", state)
        opened.save("another family", STATES[1])
        opened.fork("a", "fork", step=2)
        opened.save("fork", STATES[2])
        yield opened


@pytest.mark.parametrize("texts", [
    ("a~5", "a~4"), ("a~4", "a~3"), ("a~3", "a~5"), ("a~2", "a~1"), ("a~1", "a"), ("a", "a~5"),
    ("a~5", "fork"), ("a~3", "another family"), ("another family", "a~5"), ("another family", "fork"),
])  # fmt: skip
def test_a_patch_makes_one_state_of_the_other(store: holdfast.Store, texts: tuple[str, str]) -> None:
    old, new = (checkpoint_of(store, text) for text in texts)
    states = []
    for found in (old, new):
        assert found.checkpoint is not None
        loaded = store.load(found.run.run_id, checkpoint_id=found.checkpoint.checkpoint_id)
        assert loaded is not None
        states.append(to_jsonable(loaded.state))
    patch = json_patch(changes_between(store, old, new))
    assert patch
    assert applied(states[0], patch) == states[1]


def test_the_same_state_in_two_runs_does_not_differ(store: holdfast.Store) -> None:
    old, new = checkpoint_of(store, "a~4"), checkpoint_of(store, "another family")
    assert changes_between(store, old, new) == []


def test_a_run_without_a_checkpoint_cannot_be_compared(store: holdfast.Store) -> None:
    store.append("empty", [{"kind": "x"}])
    with pytest.raises(holdfast.errors.CheckpointNotFound):
        changes_between(store, checkpoint_of(store, "a"), checkpoint_of(store, "empty"))

"""Tracked states that are interrupted, or changed by other code, in the middle of a change or a save."""

from __future__ import annotations

import enum
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.state import tracked, tracked_encoder
from holdfast.state.tracked import TrackedDict, TrackedList
from holdfast.state.tracked_encoder import encode_tracked
from tests.state.tracked_saves import Saves, message


class Stage(enum.StrEnum):
    DRAFT = "draft"


def interrupt_at(number: int, act: Callable[[], object]) -> bool:
    """Raise KeyboardInterrupt at this line of the tracked states' code. False if `act` has fewer lines."""
    lines = 0

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal lines
        if "change_stamps" not in frame.f_code.co_filename and "tracked.py" not in frame.f_code.co_filename:
            return None
        if frame.f_code.co_name in ("call", "__getitem__"):  # a signal cannot arrive between a lock and its `with`
            return None
        lines += event == "line"
        if event == "line" and lines == number:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("converts", [False, True], ids=["change", "read of a new dict"])
def test_a_change_that_is_interrupted_anywhere_is_saved(converts: bool) -> None:
    number, interrupted = 0, True
    while interrupted:
        number += 1
        saves = Saves({"messages": [message(i) for i in range(20)]})
        one = saves.state["messages"][10]
        if converts:
            one["more"] = {"a": {"b": [1]}}
        act = (lambda one=one: one["more"]) if converts else (lambda one=one: one.update(content="edited"))
        interrupted = interrupt_at(number, act)
        saves.save()
        one.setdefault("more", {"a": {"b": []}})["a"]["b"].append(2)
        saves.save()
    assert number > 10


def test_a_change_by_another_thread_before_a_dict_is_replaced_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    state: Any = TrackedDict()
    state["facts"] = {"a": 1}
    copy = tracked.copy_tracked

    def copy_then_change(value: Any) -> Any:
        made = copy(value)
        for part in state.values():
            part["b"] = 2
        del part
        return made

    monkeypatch.setattr(tracked, "copy_tracked", copy_then_change)
    assert state["facts"] == {"a": 1, "b": 2}
    assert isinstance(state["facts"], TrackedDict)


def test_a_change_in_the_middle_of_a_save_gives_a_whole_state(monkeypatch: pytest.MonkeyPatch) -> None:
    saves = Saves({"messages": [message(i) for i in range(20)]})
    late = ["late"]
    flat = tracked_encoder.TrackedEncoder.flat

    def change(self: Any, value: Any, depth: int) -> bytes:
        if late:
            saves.state["messages"].append(late.pop())  # as a signal handler would
        return flat(self, value, depth)

    monkeypatch.setattr(tracked_encoder.TrackedEncoder, "flat", change)
    saves.state["messages"].append("first")
    encoded = encode_tracked(saves.state, saves.memo)
    assert encoded.root == encode_tracked(saves.state).root
    assert not late


def test_a_generator_runs_without_the_lock() -> None:
    state: Any = TrackedDict()
    numbers: Any = TrackedList([1, 2, 3])

    def change_in_a_thread() -> Iterator[tuple[str, int]]:
        thread = threading.Thread(target=state.__setitem__, args=("x", 1), daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
        yield "y", 2

    numbers.extend(change_in_a_thread())
    numbers[1:2] = change_in_a_thread()
    state.update(change_in_a_thread())
    assert state == {"x": 1, "y": 2}


def test_keys_may_be_any_text() -> None:
    saves = Saves({})
    saves.state[Stage.DRAFT] = {"x": 1}
    saves.state[Stage.DRAFT]["x"] = 2
    saves.state.update(self=1)
    assert saves.load() == {"draft": {"x": 2}, "self": 1}

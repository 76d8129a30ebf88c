"""The contract of `load`, `history` and `diff`."""

from __future__ import annotations

import dataclasses
from typing import Any, TypedDict

import msgspec

from holdfast.errors import CheckpointNotFound, InvalidCursor, InvalidInput, RunNotFound
from holdfast.testing.contract.base import ContractBase, raises


@dataclasses.dataclass
class _Point:
    x: int
    y: tuple[int, ...] = ()


class _Struct(msgspec.Struct):
    x: int
    y: tuple[int, ...] = ()


class _Typed(TypedDict):
    x: int
    y: list[int]


class LoadingContract(ContractBase):
    """What is asked for is found, or it is said that it is not there."""

    def test_what_is_missing_is_none(self) -> None:
        assert self.store.load("run") is None
        assert self.store.load("run", step=1) is None
        self.store.append("run", [{"kind": "a"}])
        assert self.store.load("run") is None
        self.store.save("run", 1, step=4)
        assert self.store.load("run", step=3) is None
        assert self.store.load("run", checkpoint_id="none") is None
        assert self.store.load("run", checkpoint_id="1.0123456789") is None
        assert self.store.load("run", lane="none") is None
        assert self.store.load("run", at=0) is None

    def test_the_newest_of_a_step_is_found(self) -> None:
        for step, state in ((1, "a"), (2, "b"), (1, "c"), (3, "d")):
            self.store.save("run", state, step=step)
        assert self.state("run") == "d"
        assert self.state("run", step=1) == "c"
        assert self.state("run", step=2) == "b"

    def test_the_newest_at_or_before_a_position_is_found(self) -> None:
        for position in range(1, 6):
            self.store.append("run", [{"kind": "a"}])
            if position % 2:
                self.store.save("run", position)
        assert self.state("run", at=5) == 5
        assert self.state("run", at=4) == 3
        assert self.state("run", at="journal.3") == 3
        assert self.state("run", at="journal.2") == 1
        assert self.state("run", at=100) == 5
        assert self.store.load("run", at=0) is None

    def test_a_malformed_cursor_is_an_error_and_not_the_beginning(self) -> None:
        self.store.append("run", [{"kind": "a"}])
        self.store.save("run", 1)
        wrong: list[Any] = ["", "41", "journal", "journal.", "journal.-1", "journal.1.0", "journal.x", "Journal.1", -1,
                            1.0, True, b"journal.1", "journal.٣", 2**40]  # fmt: skip
        for cursor in wrong:
            with raises(InvalidCursor):
                self.store.load("run", at=cursor)
            with raises(InvalidCursor):
                self.store.journal("run", after=cursor)

    def test_one_way_to_choose_at_a_time(self) -> None:
        with raises(InvalidInput):
            self.store.load("run", step=1, at=1)
        with raises(InvalidInput):
            self.store.load("run", damaged="maybe")  # type: ignore[call-overload]

    def test_the_state_comes_back_as_the_type_that_is_asked_for(self) -> None:
        for value in (_Point(1, (2, 3)), _Struct(1, (2, 3))):
            self.store.save("run", value)
            assert self.state("run") == {"x": 1, "y": (2, 3)}
            assert self.state("run", as_type=type(value)) == value
        self.store.save("run", {"x": 1, "y": [2]})
        assert self.state("run", as_type=_Typed) == {"x": 1, "y": [2]}
        with raises(InvalidInput):
            self.store.load("run", as_type=list[int])

    def test_history_is_oldest_first_and_without_states(self) -> None:
        saved = [self.store.save("run", i, lane="side" if i % 3 == 0 else "") for i in range(10)]
        history = list(self.store.history("run"))
        assert [info.checkpoint_id for info in history] == [each.checkpoint_id for each in saved]
        assert not hasattr(history[0], "state")
        assert [info.number for info in self.store.history("run", lane="side")] == [1, 4, 7, 10]
        assert list(self.store.history("none")) == []

    def test_history_is_lazy_and_holds_nothing(self) -> None:
        for i in range(450):
            self.store.save("run", i)
        history = self.store.history("run")
        assert next(history).step == 1
        self.store.save("run", "one more")
        self.store.save("other", 1)
        assert self.store.delete("other")
        assert [info.step for info in history] == list(range(2, 452))

    def test_history_ends_when_the_run_is_replaced_by_another_of_its_id(self) -> None:
        for i in range(450):
            self.store.save("run", i)
        history = self.store.history("run")
        next(history)
        self.store.delete("run")
        for i in range(450):
            self.store.save("run", i)
        assert len(list(history)) == 199

    def test_a_diff_says_what_changed(self) -> None:
        self.store.save("run", {"a": 1, "b": [1, 2, 3], "c": {"d": 1}, "t": (1,)})
        self.store.save("run", {"a": 1.0, "b": [1, 3], "c": {"e": 2}, "t": (2,), "n": None})
        changes = [(c.op, c.pointer, c.old, c.new) for c in self.store.diff("run", 1, 2)]
        assert changes == [
            ("replace", "/a", 1, 1.0), ("remove", "/b/1", 2, None), ("remove", "/c/d", 1, None),
            ("add", "/c/e", None, 2), ("replace", "/t", (1,), (2,)), ("add", "/n", None, None),
        ]  # fmt: skip
        assert self.store.diff("run", 1, 1) == []

    def test_a_diff_of_large_states_finds_the_small_change(self) -> None:
        first = self.store.save("run", self.conversation(300))
        second = self.store.save("run", self.conversation(300, changed=40))
        third = self.store.save("run", self.conversation(301))
        (change,) = self.store.diff("run", first.checkpoint_id, second.checkpoint_id)
        assert change.path == ("messages", 40, "content")
        assert change.new.startswith("changed 40")
        ids = [info.checkpoint_id for info in self.store.history("run")]
        changes = self.store.diff("run", ids[0], ids[2])
        assert [(c.op, c.path) for c in changes] == [("add", ("messages", 300)), ("replace", ("turns",))]
        assert self.store.diff("run", self.loaded("run"), third.checkpoint_id) == []

    def test_a_diff_of_what_is_missing_is_an_error(self) -> None:
        with raises(RunNotFound):
            self.store.diff("run", 1, 2)
        self.store.save("run", 1)
        with raises(CheckpointNotFound):
            self.store.diff("run", 1, 2)
        with raises(CheckpointNotFound):
            self.store.diff("run", "none", 1)

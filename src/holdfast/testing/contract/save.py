"""The contract of `save`."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from typing import Any

from holdfast import errors
from holdfast.operations.store import Store
from holdfast.testing.contract.base import Arguments, ContractBase, Values, each, raises

HOSTILE_IDS = [
    "a/b", "a_b", "A/b", "a\\b", "..", "../../etc/passwd", "/abs", ".", "con", "nul", "aux.txt", "x.", "x ", " ",
    "é", "e\u0301", "K", "\u212a", "ß", "SS", "\u0131", "İ", "%", "_", "*", "a'; DROP TABLE runs;--", '"', "$gt", "{}",
    "\u202eabc", "😀", "x" * 200, "é" * 256, "foo", "foobar", "journal.41", "1", "1.0123456789",
]  # fmt: skip
REFUSED_IDS: Values = [
    "",
    "\x00",
    "a\x00b",
    "a\nb",
    "\x7f",
    "\x85",
    "x" * 513,
    "é" * 257,
    "\ud800",
    b"x",
    7,
    None,
    ["x"],
]


class SaveContract(ContractBase):
    """What is saved comes back; what cannot be saved changes nothing."""

    def test_a_saved_state_comes_back_equal_with_its_types_and_order(self) -> None:
        state = {
            "z": [1, 1.0, True, None, -0.0, 2**63, 2**64, -(2**70), "text", b"bytes"],
            "a": {"tuple": (1, (2, [3])), "set": {1, 2}, "frozen": frozenset({"x"})},
            "when": dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC),
            "plain": dt.datetime(2026, 1, 2),  # noqa: DTZ001 - one without a zone is a value too
            "day": dt.date(2026, 1, 2),
            "gap": dt.timedelta(days=-1, microseconds=5),
            "id": uuid.UUID(int=7),
            "price": decimal.Decimal("1.50"),
            "": {},
        }
        self.store.save("run", state)
        loaded = self.state("run")
        assert loaded == state
        assert repr(loaded) == repr(state)

    def test_a_large_state_comes_back_equal_and_an_edit_adds_little(self) -> None:
        first = self.conversation(300)
        size = self.store.save("run", first).bytes_added
        edited = self.conversation(300, changed=40)
        added = self.store.save("run", edited).bytes_added
        assert self.state("run", step=1) == first
        assert self.state("run", step=2) == edited
        assert added < size / 8

    def test_a_state_changed_in_place_is_saved_as_it_is_now(self) -> None:
        state = self.conversation(200)
        self.store.save("run", state)
        state["messages"][3]["content"] = "changed in place"
        state["messages"][150]["more"] = ("tuple", 1)
        self.store.save("run", state)
        assert self.state("run") == state
        assert self.state("run", step=1) == self.conversation(200)

    def test_appending_turns_costs_what_the_turns_cost(self) -> None:
        state = self.conversation(0)
        added = 0
        for turn in self.conversation(200)["messages"]:
            state["messages"].append(turn)
            added += self.store.save("run", state).bytes_added
        assert self.state("run") == state
        assert added < 200 * 1500

    def test_what_comes_back_is_a_copy(self) -> None:
        self.store.save("run", {"list": [1]})
        self.state("run")["list"].append(2)
        assert self.state("run") == {"list": [1]}

    def test_any_storable_value_can_be_a_state(self) -> None:
        for value in (None, 0, "text", [1, 2], (1,), b"x" * 200_000, "y" * 200_000, {"a": ("b",) * 5000}):
            self.store.save("run", value)
            assert self.state("run") == value
            assert type(self.state("run")) is type(value)

    def test_a_save_says_what_it_did(self) -> None:
        self.store.append("run", [{"kind": "a"}, {"kind": "b"}])
        saved = self.store.save("run", {"x": 1}, status="running")
        assert (saved.run_id, saved.covers, saved.step, saved.terminal, saved.number) == ("run", 2, 1, False, 1)
        assert saved.bytes_added > 0
        assert saved.reference == saved.checkpoint_id == self.loaded("run").checkpoint_id
        assert self.store.save("run", {"x": 2}, status="failed").terminal

    def test_a_checkpoint_has_what_it_was_saved_with(self) -> None:
        self.store.append("run", [{"kind": "a"}] * 3)
        self.store.save(
            "run",
            1,
            workflow="triage",
            step=3,
            next_node="tool",
            status="waiting",
            metadata={"team": "a"},
            covers=2,
            checkpoint_id="mine",
            parent_id="other",
            lane="side",
        )
        found = self.loaded("run", lane="side")
        assert (found.run_id, found.checkpoint_id, found.parent_id, found.lane) == ("run", "mine", "other", "side")
        assert (found.step, found.next_node, found.covers, found.status) == (3, "tool", 2, "waiting")
        assert found.metadata == {"team": "a"}
        assert found.created_at == dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    def test_what_is_omitted_follows_from_the_run(self) -> None:
        first = self.store.save("run", 1)
        assert self.loaded("run").status == "ready"
        self.store.save("run", 2, step=7, status="running")
        self.store.append("run", [{"kind": "a"}])
        self.store.save("run", 3)
        found = self.loaded("run")
        assert (found.step, found.covers, found.status) == (8, 1, "running")
        assert self.loaded("run", step=7).parent_id == first.checkpoint_id

    def test_lanes_count_for_themselves(self) -> None:
        self.store.save("run", "main 1")
        self.store.save("run", "side 1", lane="side")
        self.store.save("run", "side 2", lane="side")
        assert self.state("run") == "main 1"
        assert self.loaded("run", lane="side").step == 2
        assert self.state("run", lane="side", step=1) == "side 1"
        assert self.store.load("run", lane="none") is None
        self.store.save("run", "main 2")
        assert self.loaded("run").step == 2

    def test_the_same_checkpoint_again_is_a_no_op(self) -> None:
        for state in ({"x": 1}, self.conversation(50)):
            first = self.store.save("run", state, checkpoint_id=f"c{len(repr(state))}", step=5)
            again = self.store.save("run", state, checkpoint_id=first.checkpoint_id)
            assert (again.number, again.step, again.bytes_added) == (first.number, 5, 0)
        assert len(list(self.store.history("run"))) == 2

    def test_a_save_that_is_repeated_late_does_not_set_the_run_back(self) -> None:
        self.store.save("run", 1, checkpoint_id="c1", status="running", metadata={"n": 1})
        self.store.save("run", 2, checkpoint_id="c2", status="completed", metadata={"n": 2})
        assert self.store.save("run", 1, checkpoint_id="c1", status="running", metadata={"n": 1}).bytes_added == 0
        (run,) = self.store.runs()
        assert (run.status, run.metadata, run.step) == ("completed", {"n": 2}, 2)

    def test_a_checkpoint_saved_again_by_the_id_the_store_gave_is_a_no_op(self) -> None:
        first = self.store.save("run", {"x": 1})
        self.store.save("run", {"x": 2})
        assert self.store.save("run", {"x": 1}, checkpoint_id=first.checkpoint_id).number == first.number
        with raises(errors.CheckpointConflict):
            self.store.save("run", {"x": 3}, checkpoint_id=first.checkpoint_id)

    def test_a_taken_checkpoint_id_with_other_content_is_refused(self) -> None:
        self.store.save("run", {"x": 1}, checkpoint_id="c", step=1, next_node="n", metadata={"a": 1})
        same: Arguments = {"state": {"x": 1}, "step": 1, "next_node": "n", "metadata": {"a": 1}}
        other: Arguments = {"state": {"x": 2}, "step": 2, "next_node": "m", "metadata": {"a": 2}}
        for name, value in {**other, "status": "failed", "parent_id": "p"}.items():
            arguments = {**same, name: value}
            with raises(errors.CheckpointConflict) as caught:
                self.store.save("run", checkpoint_id="c", **arguments)
            assert caught.error.checkpoint_id == "c"
        assert self.state("run") == {"x": 1}
        assert len(list(self.store.history("run"))) == 1
        assert self.store.runs()[0].metadata == {"a": 1}

    def test_replace_puts_a_checkpoint_in_the_place_of_the_old_one(self) -> None:
        self.store.save("run", "one", checkpoint_id="c1")
        self.store.save("run", "two", checkpoint_id="c2")
        self.store.save("run", self.conversation(50), checkpoint_id="c1", replace=True)
        assert self.state("run") == "two"
        assert self.state("run", checkpoint_id="c1") == self.conversation(50)
        assert [(info.checkpoint_id, info.step) for info in self.store.history("run")] == [("c1", 1), ("c2", 2)]

    def test_checkpoint_ids_are_apart_between_runs_and_lanes(self) -> None:
        for run_id, lane in (("a", ""), ("b", ""), ("a", "side")):
            self.store.save(run_id, [run_id, lane], checkpoint_id="same", lane=lane)
        assert self.state("a", checkpoint_id="same") == ["a", ""]
        assert self.state("b", checkpoint_id="same") == ["b", ""]
        assert self.state("a", checkpoint_id="same", lane="side") == ["a", "side"]

    def test_a_checkpoint_cannot_cover_what_the_journal_does_not_have(self) -> None:
        with raises(errors.InvalidCursor):
            self.store.save("run", 1, covers=1)
        assert self.store.load("run") is None
        assert self.store.runs() == []
        self.store.append("run", [{"kind": "a"}])
        self.store.save("run", 1, covers="journal.1")
        with raises(errors.InvalidCursor):
            self.store.save("run", 2, covers=2)
        assert self.state("run") == 1

    def test_a_run_keeps_to_its_workflow(self) -> None:
        self.store.save("run", 1)
        self.store.save("run", 2, workflow="triage")
        with raises(errors.WorkflowConflict) as caught:
            self.store.save("run", 3, workflow="other")
        assert caught.error.found == "triage"
        assert self.state("run") == 2

    def test_odd_ids_are_kept_apart(self) -> None:
        for i, odd in enumerate(HOSTILE_IDS):
            self.store.save(odd, [i, odd], checkpoint_id=odd, lane=odd, workflow=odd, next_node=odd)
        for i, odd in enumerate(HOSTILE_IDS):
            found = self.loaded(odd, lane=odd)
            assert (found.run_id, found.checkpoint_id, found.state) == (odd, odd, [i, odd])
            assert self.state(odd, lane=odd, checkpoint_id=odd) == [i, odd]
        assert len(self.store.runs(limit=1000)) == len(HOSTILE_IDS)

    def test_what_is_not_an_id_is_refused_everywhere(self) -> None:
        for wrong in REFUSED_IDS:
            for name in ("run_id", "checkpoint_id", "lane", "workflow", "next_node", "parent_id"):
                if (name != "run_id" and wrong is None) or (name in ("lane", "parent_id") and wrong == ""):
                    continue
                with raises(errors.InvalidId):
                    self.store.save(**{"run_id": "run", "state": 1, name: wrong})
        assert self.store.runs() == []

    def test_wrong_arguments_are_refused_before_anything_is_written(self) -> None:
        covers = ["41", "journal.", "journal.x", -1, 1.0]
        metadata = [[], {1: 2}, {"a": float("nan")}, {"\ud800": 1}]
        for arguments in each(status=["done", 1], step=[-1, "1", True, 2**63], covers=covers, metadata=metadata):
            with raises(errors.InvalidInput):
                self.store.save("run", 1, **arguments)
        with raises(errors.LimitExceeded):
            self.store.save("run", 1, metadata={"a": "x" * 20_000})
        assert self.store.runs() == []

    def test_unstorable_values_are_refused_with_their_path(self) -> None:
        deep: Any = []
        for _ in range(2000):
            deep = [deep]
        wrong: list[tuple[Any, str]] = [
            ({"a": [1, float("nan")]}, "state['a'][1]"),
            ({"a": {"b": float("inf")}}, "state['a']['b']"),
            ({"a": "\ud800"}, "state['a']"),
            ({"a": {1: 2}}, "state['a']"),
            ([object()], "state[0]"),
            ({"a": [deep]}, ""),
            ((1, 2, {3: float("-inf")}), "state[2]"),
            ({"a": decimal.Decimal("NaN")}, "state['a']"),
            ({"m": [{"t": "x" * 500}] * 40 + [{"t": float("nan")}]}, "state['m'][40]['t']"),
        ]
        for value, path in wrong:
            with raises(errors.Unstorable) as caught:
                self.store.save("run", value)
            assert caught.error.path.startswith(path), (caught.error.path, path)
        assert self.store.runs() == []

    def test_a_closed_store_says_so(self) -> None:
        self.store.save("run", 1)
        self.store.close()
        self.store.close()
        with raises(errors.StoreClosed):
            self.store.save("run", 2)
        with raises(errors.StoreClosed):
            self.store.load("run")

    def test_a_holder_does_not_rely_on_the_state_of_an_earlier_run_of_its_id(self) -> None:
        other = Store(self.store.port, clock=self.clock)  # stands for another process
        self.store.save("run", self.conversation(30))
        assert other.delete("run")
        other.save("run", {"new": 1})
        claim = self.claimed("run", "w")
        claim.save(self.conversation(30))
        claim.attach("a", "k", self.conversation(30))
        assert self.state("run") == self.conversation(30)
        assert other.attachments("run", "a") == {"k": self.conversation(30)}
        assert other.verify().problems == []

    def test_a_save_that_was_there_already_is_not_taken_for_what_it_would_have_written(self) -> None:
        pad = "".join(map(str, range(1000)))
        small = "".join(map(str, range(7000, 7375)))
        first = {"pad": pad, "field": {"a": "A" * 1500, "b": "B" * 1500}}
        second = {"pad": pad, "field": {"a": small, "b": "small"}}
        third = {"pad": pad, "field": {"a": small, "b": "B" * 1500}}
        other = Store(self.store.port, clock=self.clock)
        self.store.save("run", first, checkpoint_id="c1")
        other.save("run", second, checkpoint_id="c2")
        self.store.save("run", second, checkpoint_id="c2")
        self.store.save("run", third, checkpoint_id="c3")
        assert self.state("run") == third
        assert other.verify().problems == []

    def test_numbers_beyond_all_bounds_are_refused(self) -> None:
        self.store.save("run", 1)
        for odd in (-1, 2**53 + 1, 2**64, 1.0, True):
            with raises(errors.InvalidInput):
                self.store.save("run", 1, step=odd)  # type: ignore[arg-type]
        self.store.save("run", 1, step=2**53)
        assert self.store.save("run", 1).step == 2**53 + 1
        assert self.state("run", step=2**53 + 1) == 1
        with raises(errors.InvalidInput):
            self.store.load("run", step=2**64)
        with raises(errors.InvalidCursor):
            self.store.load("run", at="journal." + "1" * 5000)
        with raises(errors.InvalidCursor):
            self.store.runs(after="runs." + "1" * 5000)
        assert self.store.journal("run", limit=2**70) == []

    def test_metadata_that_cannot_be_stored_is_refused_with_its_path(self) -> None:
        endless: Values = []
        endless.append(endless)
        for odd in ({"a": {1: 2, "b": 3}}, {"a": endless}, {"a": {"x": object()}}):
            with raises(errors.Unstorable) as caught:
                self.store.save("run", 1, metadata=odd)
            assert caught.error.path.startswith("metadata['a']")
        assert self.store.load("run") is None

    def test_the_metadata_of_a_run_has_a_limit(self) -> None:
        with raises(errors.LimitExceeded):
            for i in range(20):
                self.store.save("run", 1, metadata={f"k{i}": "x" * 10_000})
        assert self.store.runs()[0].metadata.keys() < {f"k{i}" for i in range(20)}
        self.store.save("run", 2, metadata={"k0": "shorter"})

"""The contract of `load`, `fork`, `copy`, `export_run` and `import_run`."""

from __future__ import annotations

import dataclasses
from typing import TypedDict

import msgspec

from holdfast import errors
from holdfast.model.views import Keep
from holdfast.testing.contract.base import Arguments, ContractBase, Values, raises


class ForkContract(ContractBase):
    """A new run has what it was made of; its source does not change."""

    def prepare(self) -> None:
        for i in range(1, 5):
            self.store.append("run", [{"kind": "turn", "n": i}])
            self.store.mark_done("run", f"effect-{i}", result=i)
            state = self.conversation(50, changed=i)
            self.store.save("run", state, checkpoint_id=f"c{i}", workflow="triage", metadata={"team": "a"})
            self.store.attach("run", f"c{i}", "note", self.conversation(10, changed=i))
        self.store.mark_intent("run", "doubt")
        self.store.save("run", "side", lane="side")

    def test_a_fork_starts_from_a_checkpoint(self) -> None:
        self.prepare()
        self.store.save("run", "end", status="failed")
        chunks = self.store.stats().chunks
        info = self.store.fork("run", "fork", step=2)
        assert (info.run_id, info.workflow, info.status, info.metadata) == ("fork", "triage", "ready", {"team": "a"})
        assert info.forked_from == "run@c2"
        assert self.state("fork") == self.conversation(50, changed=2)
        assert self.loaded("fork").checkpoint_id == "c2"
        assert [entry["n"] for entry in self.store.journal("fork")] == [1, 2]
        assert [effect.key for effect in self.store.effects("fork")] == ["effect-1", "effect-2"]
        assert self.store.attachments("fork", "c2") == {"note": self.conversation(10, changed=2)}
        assert self.store.stats().chunks == chunks
        self.store.save("fork", "goes on")
        assert self.loaded("fork").step == 3
        assert self.state("run") == "end"
        assert self.store.verify().problems == []

    def test_a_fork_takes_the_selectors_of_load(self) -> None:
        self.prepare()
        choices: list[tuple[Arguments, str]] = [({}, "c4"), ({"at": 3}, "c3"), ({"checkpoint_id": "c1"}, "c1")]
        for choice, wanted in choices:
            self.store.fork("run", f"fork-{wanted}", **choice)
            assert self.loaded(f"fork-{wanted}").checkpoint_id == wanted
        self.store.fork("run", "fork-side", lane="side")
        assert self.state("fork-side", lane="side") == "side"

    def test_a_run_that_ended_can_be_forked_and_goes_on(self) -> None:
        self.store.save("run", 1, status="completed")
        assert self.store.fork("run", "fork").status == "ready"
        assert self.store.claim("fork", owner="w1") is not None

    def test_a_copy_has_everything(self) -> None:
        self.prepare()
        chunks = self.store.stats().chunks
        self.store.copy("run", "copy")
        assert self.store.stats().chunks == chunks
        self.same("run", "copy")
        self.store.save("copy", "other")
        assert self.state("run") == self.conversation(50, changed=4)

    def same(self, one: str, other: str) -> None:
        def shown(run_id: str) -> object:
            history = list(self.store.history(run_id))
            return (
                [
                    (i.checkpoint_id, i.parent_id, i.lane, i.step, i.covers, i.status, i.metadata, i.created_at)
                    for i in history
                ],
                [self.state(run_id, checkpoint_id=i.checkpoint_id, lane=i.lane) for i in history],
                [self.store.attachments(run_id, i.checkpoint_id, lane=i.lane) for i in history],
                [(entry.position, entry.data, entry.created_at) for entry in self.store.journal(run_id)],
                [(e.key, e.state, e.tool, e.target, e.reversible, e.result) for e in self.store.effects(run_id)],
            )

        assert shown(one) == shown(other)

    def test_an_exported_run_can_be_imported_under_its_own_or_another_id(self) -> None:
        self.prepare()
        data = self.store.export_run("run")
        assert self.store.import_run(data, run_id="again").run_id == "again"
        self.same("run", "again")
        with raises(errors.RunExists):
            self.store.import_run(data)
        self.store.delete("run")
        assert self.store.import_run(data).run_id == "run"
        self.same("run", "again")
        assert self.store.verify().problems == []

    def test_a_damaged_archive_is_refused_and_nothing_is_written(self) -> None:
        self.prepare()
        data = self.store.export_run("run")
        self.store.delete("run")
        step = max(1, len(data) // 200)
        for at in range(0, len(data), step):
            with raises(errors.DamagedData):
                self.store.import_run(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
            with raises(errors.DamagedData):
                self.store.import_run(data[:at])
        with raises(errors.UnsupportedFormat):
            self.store.import_run(data.replace(b"run 3", b"run 9", 1))
        with raises(errors.InvalidInput):
            self.store.import_run("text")  # type: ignore[arg-type]
        assert self.store.runs() == []
        assert self.store.stats().chunks == 0

    def test_new_runs_need_an_id_of_their_own(self) -> None:
        self.store.save("run", 1)
        self.store.save("other", 2)
        for make in (self.store.fork, self.store.copy):
            with raises(errors.RunExists):
                make("run", "other")
            with raises(errors.InvalidInput):
                make("run", "run")
            with raises(errors.RunNotFound):
                make("none", "new")
        with raises(errors.CheckpointNotFound):
            self.store.fork("run", "new", step=9)
        with raises(errors.RunNotFound):
            self.store.export_run("none")
        assert {run.run_id for run in self.store.runs()} == {"run", "other"}
        assert self.state("other") == 2

    def test_a_run_that_is_held_can_be_forked_but_its_copy_is_free(self) -> None:
        self.store.save("run", 1)
        assert self.store.claim("run", owner="w1") is not None
        self.store.fork("run", "fork")
        assert self.store.copy("run", "copy").status == "ready"
        assert self.store.claim("copy", owner="w2") is not None

    def test_a_copy_protects_what_an_effect_in_doubt_may_need(self) -> None:
        self.store.save("run", 1)
        self.store.append("run", [{"kind": "a"}])
        self.clock.advance(5)
        self.store.mark_intent("run", "pay")
        self.clock.advance(5)
        for i in range(2, 5):
            self.store.save("run", i)
        self.store.prune("run", Keep(last=2))
        self.store.copy("run", "copied")
        self.store.import_run(self.store.export_run("run"), run_id="imported")
        for name in ("copied", "imported"):
            ours, theirs = self.store.effects(name)[0], self.store.effects("run")[0]
            assert ours.created_at == theirs.created_at
            self.store.prune(name, Keep(last=1))
            assert [self.state(name, checkpoint_id=c.checkpoint_id) for c in self.store.history(name)] == [1, 4]


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


class LoadContract(ContractBase):
    """A checkpoint is found by each of its properties, or reported as missing."""

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
        texts = ["", "41", "journal", "journal.", "journal.-1", "journal.1.0", "journal.x", "Journal.1", "journal.٣"]
        others: Values = [-1, 1.0, True, b"journal.1", 2**40]
        for cursor in [*texts, *others]:
            with raises(errors.InvalidCursor):
                self.store.load("run", at=cursor)
            with raises(errors.InvalidCursor):
                self.store.journal("run", after=cursor)

    def test_one_way_to_choose_at_a_time(self) -> None:
        with raises(errors.InvalidInput):
            self.store.load("run", step=1, at=1)
        with raises(errors.InvalidInput):
            self.store.load("run", damaged="maybe")  # type: ignore[call-overload]

    def test_the_state_comes_back_as_the_type_that_is_asked_for(self) -> None:
        for value in (_Point(1, (2, 3)), _Struct(1, (2, 3))):
            self.store.save("run", value)
            assert self.state("run") == {"x": 1, "y": (2, 3)}
            assert self.state("run", as_type=type(value)) == value
        self.store.save("run", {"x": 1, "y": [2]})
        assert self.state("run", as_type=_Typed) == {"x": 1, "y": [2]}
        with raises(errors.InvalidInput):
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
            ("replace", "/a", 1, 1.0),
            ("remove", "/b/1", 2, None),
            ("remove", "/c/d", 1, None),
            ("add", "/c/e", None, 2),
            ("replace", "/t", (1,), (2,)),
            ("add", "/n", None, None),
        ]
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
        with raises(errors.RunNotFound):
            self.store.diff("run", 1, 2)
        self.store.save("run", 1)
        with raises(errors.CheckpointNotFound):
            self.store.diff("run", 1, 2)
        with raises(errors.CheckpointNotFound):
            self.store.diff("run", "none", 1)

"""The contract of the journal, the ledger of effects, and attachments."""

from __future__ import annotations

import threading
from typing import Any

from holdfast.errors import AttachmentConflict, InvalidId, InvalidInput, RunNotFound, Unstorable, WorkflowConflict
from holdfast.testing.contract.base import ContractBase, raises


class RecordingContract(ContractBase):
    """What happened is recorded once, in order, whole."""

    def test_entries_stand_at_positions_one_two_three(self) -> None:
        assert self.store.append("run", [{"kind": "a", "n": 1}, {"kind": "b", "t": (1,)}]) == 2
        assert self.store.append("run", [{"kind": "c"}]) == 3
        entries = self.store.journal("run")
        assert [(entry.position, entry.kind) for entry in entries] == [(1, "a"), (2, "b"), (3, "c")]
        assert entries[1].data == {"kind": "b", "t": (1,)}
        assert entries[1]["t"] == (1,)
        assert [entry.position for entry in self.store.journal("run", after=1)] == [2, 3]
        assert [entry.position for entry in self.store.journal("run", after="journal.1", limit=1)] == [2]
        assert self.store.journal("run", after=3) == []

    def test_an_append_names_the_workflow_of_the_run(self) -> None:
        self.store.append("run", [{"kind": "a"}], workflow="triage")
        assert self.store.runs(workflow="triage")[0].run_id == "run"
        self.store.append("run", [{"kind": "b"}], workflow="triage")
        with raises(WorkflowConflict):
            self.store.append("run", [{"kind": "c"}], workflow="refund")
        with raises(InvalidInput):
            self.store.append("run", [{"kind": "c"}], workflow="")
        assert [entry.kind for entry in self.store.journal("run")] == ["a", "b"]
        self.store.append("other", [{"kind": "a"}])
        claim = self.store.claim("other", owner="w1")
        assert claim is not None
        with claim:
            claim.append([{"kind": "b"}], workflow="triage")
        assert [run.workflow for run in self.store.runs()] == ["triage", "triage"]

    def test_entries_are_appended_all_or_none(self) -> None:
        wrong: list[Any] = [
            [{"kind": "a"}, {"no": "kind"}], [{"kind": "a"}, {"kind": "b", "x": float("nan")}], [{"kind": ""}], [{}],
            [], {"kind": "a"}, [{"kind": 1}], ["text"], [None],
        ]  # fmt: skip
        for entries in wrong:
            with raises(InvalidInput):
                self.store.append("run", entries)
        assert self.store.runs() == []

    def test_large_entries_come_back(self) -> None:
        data = {"kind": "big", "text": "x" * 300_000}
        self.store.append("run", [data])
        assert self.store.journal("run")[0].data == data

    def test_a_run_that_ended_can_still_be_written_about(self) -> None:
        self.store.append("run", [{"kind": "a"}])
        self.store.save("run", 1, status="completed")
        assert self.store.append("run", [{"kind": "after"}]) == 2
        assert [entry.kind for entry in self.store.journal("run")] == ["a", "after"]
        self.store.save("run", 2)
        assert self.loaded("run").status == "completed"

    def test_the_journal_of_a_missing_run_is_an_error(self) -> None:
        for read in (self.store.journal, self.store.effects):
            with raises(RunNotFound):
                read("none")
        with raises(RunNotFound):
            self.store.attachments("none", "c")

    def test_an_effect_is_marked_done_once_with_its_result(self) -> None:
        assert not self.store.is_done("run", "key")
        assert self.store.mark_done("run", "key", tool="write", target="a.py", reversible=True, result={"n": (1,)})
        assert not self.store.mark_done("run", "key", tool="other", result="other")
        assert self.store.is_done("run", "key")
        (effect,) = self.store.effects("run", key="key")
        assert (effect.key, effect.state, effect.tool, effect.target) == ("key", "done", "write", "a.py")
        assert (effect.reversible, effect.result, effect.done) == (True, {"n": (1,)}, True)
        assert self.store.effects("run", key="none") == []

    def test_an_effect_is_in_doubt_between_intent_and_outcome(self) -> None:
        assert self.store.mark_intent("run", "key", tool="pay", target="A-17", reversible=True)
        assert not self.store.mark_intent("run", "key")
        assert not self.store.is_done("run", "key")
        assert self.store.effects("run")[0].state == "in_doubt"
        assert self.store.mark_done("run", "key", result=5)
        assert not self.store.mark_intent("run", "key")
        (effect,) = self.store.effects("run")
        assert (effect.state, effect.tool, effect.target, effect.result) == ("done", "pay", "A-17", 5)

    def test_effects_are_listed_as_they_were_first_recorded(self) -> None:
        for key in ("c", "a", "b"):
            self.store.mark_intent("run", key)
        self.store.mark_done("run", "a")
        assert [effect.key for effect in self.store.effects("run")] == ["c", "a", "b"]

    def test_of_many_that_mark_one_wins(self) -> None:
        won: list[int] = []
        barrier = threading.Barrier(8)

        def mark(number: int) -> None:
            barrier.wait()
            if self.store.mark_done("run", "key", result=number):
                won.append(number)

        threads = [threading.Thread(target=mark, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert self.store.effects("run")[0].result == won[0]

    def test_wrong_marks_are_refused(self) -> None:
        for wrong in ("", "\n", 1):
            with raises(InvalidId):
                self.store.mark_done("run", wrong)  # type: ignore[arg-type]
        with raises(InvalidId):
            self.store.mark_done("run", "key", target="")
        with raises(Unstorable):
            self.store.mark_done("run", "key", result=object())
        assert self.store.runs() == []

    def test_an_attachment_may_come_before_its_checkpoint(self) -> None:
        self.store.attach("run", "c1", "draft", {"text": "x"})
        self.store.attach("run", "c1", "big", self.conversation(30))
        self.store.attach("run", "c1", "draft", "elsewhere", lane="side")
        self.store.save("run", 1, checkpoint_id="c1")
        assert self.store.attachments("run", "c1") == {"draft": {"text": "x"}, "big": self.conversation(30)}
        assert self.store.attachments("run", "c1", lane="side") == {"draft": "elsewhere"}
        assert self.store.attachments("run", "c2") == {}

    def test_an_attachment_is_written_once_unless_it_is_replaced(self) -> None:
        self.store.attach("run", "c1", "key", {"a": (1,)})
        self.store.attach("run", "c1", "key", {"a": (1,)})
        with raises(AttachmentConflict) as caught:
            self.store.attach("run", "c1", "key", {"a": [1]})
        assert caught.error.key == "key"
        assert self.store.attachments("run", "c1") == {"key": {"a": (1,)}}
        self.store.attach("run", "c1", "key", self.conversation(20), replace=True)
        assert self.store.attachments("run", "c1") == {"key": self.conversation(20)}

"""The contract of attachments and of the journal.

Attachments are kept, replaced or refused, one by one and several at once; entries are recorded once and in order.
"""

from __future__ import annotations

import threading
from typing import Any

from holdfast import errors
from holdfast.model.commit import Guard, NewAttachment, NewRun, Reason
from holdfast.model.rows import AttachmentRow
from holdfast.model.views import Keep
from holdfast.testing.contract.base import Arguments, ContractBase, PortContractBase, Values, raises

ONE, TWO, THREE = b"\x01\x01", b"\x01\x02", b"\x01\x03"
_MADE: Arguments = {"guard": Guard(), "create": NewRun()}


class AttachmentContract(PortContractBase):
    """A value that exists is kept, replaced or refused, as the writer says."""

    def attached(self, run_id: str = "run", checkpoint_id: str = "c") -> dict[str, bytes]:
        """The roots beside a checkpoint."""
        rows = self.store.port.rows(AttachmentRow, self.row(run_id).run, keys=[("", checkpoint_id)])
        return {row.key: row.root for row in rows}

    # --- what a commit says ------------------------------------------------------------------------------------------

    def test_an_attachment_that_is_kept_stays_and_the_rest_of_the_commit_is_applied(self) -> None:
        self.done(**_MADE, attachments=(NewAttachment("c", "a", ONE),))
        before = self.store.port.rows(AttachmentRow, self.row().run)
        self.clock.advance(5)
        new = (NewAttachment("c", "a", TWO, keep=True), NewAttachment("c", "b", TWO, keep=True))
        outcome = self.done(**_MADE, attachments=new, metadata=(("k", b"\x01"),))
        assert outcome.fresh
        assert self.attached() == {"a": ONE, "b": TWO}
        assert self.store.port.rows(AttachmentRow, self.row().run)[:1] == before
        assert self.store.runs(metadata={"k": 1})[0].run_id == "run"

    def test_housekeeping_does_not_count_as_use(self) -> None:
        self.done(**_MADE, attachments=(NewAttachment("c", "a", ONE),))
        before = self.row()
        self.clock.advance(5)
        new = (NewAttachment("c", "b", TWO),)
        self.done(guard=Guard(incarnation=before.incarnation), attachments=new, keep_updated=True)
        after = self.row()
        assert (after.updated_us, after.commit_id != before.commit_id) == (before.updated_us, True)
        assert self.attached() == {"a": ONE, "b": TWO}
        self.done(guard=Guard(), attachments=(NewAttachment("c", "d", TWO),))
        assert self.row().updated_us == before.updated_us + 5_000_000

    def test_a_commit_that_keeps_everything_changes_nothing(self) -> None:
        self.done(**_MADE, attachments=(NewAttachment("c", "a", ONE), NewAttachment("c", "b", ONE)))
        before = self.row()
        self.clock.advance(5)
        kept = tuple(NewAttachment("c", key, TWO, keep=True) for key in ("a", "b"))
        assert not self.done(**_MADE, attachments=kept).fresh
        assert self.row() == before
        assert self.attached() == {"a": ONE, "b": ONE}

    def test_one_to_keep_does_not_excuse_another_that_is_taken(self) -> None:
        self.done(**_MADE, attachments=(NewAttachment("c", "a", ONE), NewAttachment("c", "b", ONE)))
        mixed = (
            NewAttachment("c", "new", TWO, keep=True),
            NewAttachment("c", "a", TWO, keep=True),
            NewAttachment("c", "b", TWO),
        )
        refused = self.refused(**_MADE, attachments=mixed)
        assert (refused.reason, refused.detail) == (Reason.ATTACHMENT_TAKEN, "b")
        assert self.attached() == {"a": ONE, "b": ONE}

    def test_of_two_to_keep_with_one_key_the_first_wins(self) -> None:
        twice = (NewAttachment("c", "a", ONE, keep=True), NewAttachment("c", "a", TWO, keep=True))
        for run_id, made in (("new", False), ("old", True)):
            if made:
                self.done(run_id=run_id, guard=Guard(), create=NewRun())
            self.done(run_id=run_id, guard=Guard(), create=NewRun(), attachments=twice)
            assert self.attached(run_id) == {"a": ONE}

    def test_what_a_commit_says_twice_is_judged_in_its_order(self) -> None:
        self.done(
            **_MADE,
            attachments=(
                NewAttachment("c", "same", ONE),
                NewAttachment("c", "same", ONE),
                NewAttachment("c", "last", ONE),
                NewAttachment("c", "last", TWO, replace=True),
                NewAttachment("c", "first", ONE, replace=True),
                NewAttachment("c", "first", TWO, keep=True),
                NewAttachment("c", "back", ONE),
                NewAttachment("c", "back", TWO, replace=True),
                NewAttachment("c", "back", ONE, replace=True),
            ),
        )
        assert self.attached() == {"back": ONE, "first": ONE, "last": TWO, "same": ONE}
        twice = (NewAttachment("d", "a", ONE), NewAttachment("d", "a", TWO))
        assert self.refused(**_MADE, attachments=twice).reason == Reason.ATTACHMENT_TAKEN
        assert self.attached(checkpoint_id="d") == {}
        back = (NewAttachment("c", "last", THREE, replace=True), NewAttachment("c", "last", TWO, replace=True))
        self.done(**_MADE, attachments=back)
        assert self.attached()["last"] == TWO
        assert self.store.verify().problems == []

    def test_keys_of_other_checkpoints_and_lanes_are_other_keys(self) -> None:
        self.done(**_MADE, attachments=(NewAttachment("c", "a", ONE),))
        others = (NewAttachment("d", "a", TWO, keep=True), NewAttachment("c", "a", THREE, "side", keep=True))
        self.done(**_MADE, attachments=others)
        rows = self.store.port.rows(AttachmentRow, self.row().run)
        assert [(row.lane, row.checkpoint_id, row.root) for row in rows] == [
            ("", "c", ONE),
            ("", "d", TWO),
            ("side", "c", THREE),
        ]

    # --- attach_all --------------------------------------------------------------------------------------------------

    def test_several_values_are_attached_in_one_commit(self) -> None:
        values = {"a": 1, "big": self.conversation(30), "b": None}
        self.store.attach_all("run", "c", values)
        assert self.store.attachments("run", "c") == values
        before = self.row()
        self.store.attach_all("run", "c", values)
        assert self.row() == before, "the same again is nothing new"
        self.store.attach_all("run", "c", {"a": 2}, lane="side")
        assert self.store.attachments("run", "c", lane="side") == {"a": 2}

    def test_what_is_there_already_is_an_error_stays_or_goes(self) -> None:
        self.store.attach("run", "c", "a", "old")
        with raises(errors.AttachmentConflict) as caught:
            self.store.attach_all("run", "c", {"new": 1, "a": 2})
        assert (caught.error.key, caught.error.checkpoint_id) == ("a", "c")
        assert self.store.attachments("run", "c") == {"a": "old"}
        self.store.attach_all("run", "c", {"new": 1, "a": self.conversation(20)}, existing="keep")
        assert self.store.attachments("run", "c") == {"a": "old", "new": 1}
        self.store.attach_all("run", "c", {"more": 3, "a": self.conversation(20)}, existing="replace")
        assert self.store.attachments("run", "c") == {"a": self.conversation(20), "more": 3, "new": 1}
        assert self.store.verify().problems == []

    def test_a_value_that_was_not_taken_and_swept_away_is_written_again(self) -> None:
        late = self.conversation(40, changed=30)
        self.store.attach_all("run", "c", {"a": self.conversation(20)})
        self.store.attach_all("run", "c", {"a": late, "b": 1}, existing="keep")
        self.store.prune("run", Keep(last=1))
        assert self.store.verify().unused_chunks == 0
        self.store.attach_all("run", "c", {"a": late}, existing="keep")
        self.store.attach_all("run", "d", {"a": late, "b": late}, existing="keep")
        assert self.store.attachments("run", "c") == {"a": self.conversation(20), "b": 1}
        assert self.store.attachments("run", "d") == {"a": late, "b": late}
        assert self.store.verify().problems == []

    def test_wrong_values_are_refused_before_anything_is_written(self) -> None:
        wrong: Values = [{}, [], None, [("a", 1)], "a"]
        for values in wrong:
            with raises(errors.InvalidInput):
                self.store.attach_all("run", "c", values)
        odd: Any
        for odd in ("KEEP", "", None, True):
            with raises(errors.InvalidInput):
                self.store.attach_all("run", "c", {"a": 1}, existing=odd)
        for odd in ("", "\n", 1):
            with raises(errors.InvalidId):
                self.store.attach_all("run", "c", {"a": 1, odd: 2})
            with raises(errors.InvalidId):
                self.store.attach_all("run", odd, {"a": 1})
        with raises(errors.Unstorable):
            self.store.attach_all("run", "c", {"a": 1, "b": object()})
        assert self.store.runs() == []

    def test_a_holder_attaches_several_values_until_it_holds_no_more(self) -> None:
        self.store.save("run", 1)
        claim = self.claimed()
        claim.attach_all("c", {"a": 1, "b": 2})
        claim.attach_all("c", {"a": 3, "d": 4}, existing="keep")
        claim.release()
        with raises(errors.ClaimLost):
            claim.attach_all("c", {"e": 5})
        assert self.store.attachments("run", "c") == {"a": 1, "b": 2, "d": 4}


class JournalContract(ContractBase):
    """Entries and effects are recorded once, in order, whole."""

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
        with raises(errors.WorkflowConflict):
            self.store.append("run", [{"kind": "c"}], workflow="refund")
        with raises(errors.InvalidInput):
            self.store.append("run", [{"kind": "c"}], workflow="")
        assert [entry.kind for entry in self.store.journal("run")] == ["a", "b"]
        self.store.append("other", [{"kind": "a"}])
        claim = self.claimed("other")
        with claim:
            claim.append([{"kind": "b"}], workflow="triage")
        assert [run.workflow for run in self.store.runs()] == ["triage", "triage"]

    def test_entries_are_appended_all_or_none(self) -> None:
        wrong: Values = [
            [{"kind": "a"}, {"no": "kind"}],
            [{"kind": "a"}, {"kind": "b", "x": float("nan")}],
            *([{"kind": ""}], [{}], [], {"kind": "a"}, [{"kind": 1}], ["text"], [None]),
        ]
        for entries in wrong:
            with raises(errors.InvalidInput):
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
            with raises(errors.RunNotFound):
                read("none")
        with raises(errors.RunNotFound):
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
            with raises(errors.InvalidId):
                self.store.mark_done("run", wrong)  # type: ignore[arg-type]
        with raises(errors.InvalidId):
            self.store.mark_done("run", "key", target="")
        with raises(errors.Unstorable):
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
        with raises(errors.AttachmentConflict) as caught:
            self.store.attach("run", "c1", "key", {"a": [1]})
        assert caught.error.key == "key"
        assert self.store.attachments("run", "c1") == {"key": {"a": (1,)}}
        self.store.attach("run", "c1", "key", self.conversation(20), replace=True)
        assert self.store.attachments("run", "c1") == {"key": self.conversation(20)}

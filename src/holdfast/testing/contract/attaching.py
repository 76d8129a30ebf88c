"""The contract of attachments that are kept, replaced or refused, one by one and several at once."""

from __future__ import annotations

from typing import Any

from holdfast.errors import AttachmentConflict, ClaimLost, InvalidId, InvalidInput, Unstorable
from holdfast.model.commit import ATTACHMENT_TAKEN, Guard, NewAttachment, NewRun
from holdfast.model.views import Keep
from holdfast.testing.contract.base import PortContractBase, raises

ONE, TWO, THREE = b"\x01\x01", b"\x01\x02", b"\x01\x03"
_MADE: dict[str, Any] = {"guard": Guard(), "create": NewRun()}


class AttachingContract(PortContractBase):
    """What is there stays, goes or stands in the way, as the writer says."""

    def attached(self, run_id: str = "run", checkpoint_id: str = "c") -> dict[str, bytes]:
        """The roots beside a checkpoint."""
        rows = self.store.port.attachments(self.row(run_id).run, "", checkpoint_id)
        return {row.key: row.root for row in rows}

    # --- what a commit says ------------------------------------------------------------------------------------------

    def test_an_attachment_that_is_kept_stays_and_the_rest_of_the_commit_is_applied(self) -> None:
        self.done(**_MADE, attachments=(NewAttachment("c", "a", ONE),))
        before = self.store.port.attachments(self.row().run, None, None)
        self.clock.advance(5)
        new = (NewAttachment("c", "a", TWO, keep=True), NewAttachment("c", "b", TWO, keep=True))
        outcome = self.done(**_MADE, attachments=new, metadata=(("k", b"\x01"),))
        assert outcome.fresh
        assert self.attached() == {"a": ONE, "b": TWO}
        assert self.store.port.attachments(self.row().run, None, None)[:1] == before
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
        assert (refused.why, refused.detail) == (ATTACHMENT_TAKEN, "b")
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
                NewAttachment("c", "same", ONE), NewAttachment("c", "same", ONE),
                NewAttachment("c", "last", ONE), NewAttachment("c", "last", TWO, replace=True),
                NewAttachment("c", "first", ONE, replace=True), NewAttachment("c", "first", TWO, keep=True),
                NewAttachment("c", "back", ONE), NewAttachment("c", "back", TWO, replace=True),
                NewAttachment("c", "back", ONE, replace=True),
            ),
        )  # fmt: skip
        assert self.attached() == {"back": ONE, "first": ONE, "last": TWO, "same": ONE}
        twice = (NewAttachment("d", "a", ONE), NewAttachment("d", "a", TWO))
        assert self.refused(**_MADE, attachments=twice).why == ATTACHMENT_TAKEN
        assert self.attached(checkpoint_id="d") == {}
        back = (NewAttachment("c", "last", THREE, replace=True), NewAttachment("c", "last", TWO, replace=True))
        self.done(**_MADE, attachments=back)
        assert self.attached()["last"] == TWO
        assert self.store.verify().problems == []

    def test_keys_of_other_checkpoints_and_lanes_are_other_keys(self) -> None:
        self.done(**_MADE, attachments=(NewAttachment("c", "a", ONE),))
        others = (NewAttachment("d", "a", TWO, keep=True), NewAttachment("c", "a", THREE, "side", keep=True))
        self.done(**_MADE, attachments=others)
        rows = self.store.port.attachments(self.row().run, None, None)
        assert [(row.lane, row.checkpoint_id, row.root) for row in rows] == [
            ("", "c", ONE), ("", "d", TWO), ("side", "c", THREE),
        ]  # fmt: skip

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
        with raises(AttachmentConflict) as caught:
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
        wrong: list[Any] = [{}, [], None, [("a", 1)], "a"]
        for values in wrong:
            with raises(InvalidInput):
                self.store.attach_all("run", "c", values)
        odd: Any
        for odd in ("KEEP", "", None, True):
            with raises(InvalidInput):
                self.store.attach_all("run", "c", {"a": 1}, existing=odd)
        for odd in ("", "\n", 1):
            with raises(InvalidId):
                self.store.attach_all("run", "c", {"a": 1, odd: 2})
            with raises(InvalidId):
                self.store.attach_all("run", odd, {"a": 1})
        with raises(Unstorable):
            self.store.attach_all("run", "c", {"a": 1, "b": object()})
        assert self.store.runs() == []

    def test_a_holder_attaches_several_values_until_it_holds_no_more(self) -> None:
        self.store.save("run", 1)
        claim = self.store.claim("run", owner="w1")
        assert claim is not None
        claim.attach_all("c", {"a": 1, "b": 2})
        claim.attach_all("c", {"a": 3, "d": 4}, existing="keep")
        claim.release()
        with raises(ClaimLost):
            claim.attach_all("c", {"e": 5})
        assert self.store.attachments("run", "c") == {"a": 1, "b": 2, "d": 4}

"""The contract of commits and of the effect ledger.

A commit is applied whole or not at all; its guard is checked; commits of one batch are independent.
"""

from __future__ import annotations

import threading
from typing import Any

from holdfast.clock import US
from holdfast.errors import DamagedData
from holdfast.model.commit import (
    HOLDER,
    OUTSIDER,
    Commit,
    Committed,
    Guard,
    NewAttachment,
    NewCheckpoint,
    NewEffect,
    NewEntry,
    NewGate,
    NewItem,
    NewMessage,
    NewRun,
    Reason,
    Refused,
    TakeClaim,
    Timer,
)
from holdfast.model.rows import (
    AttachmentRow,
    CheckpointRow,
    ChunkRow,
    EffectRow,
    EntryRow,
    GateRow,
    ItemRow,
    MessageRow,
    TimerRow,
)
from holdfast.store.checksum import verify_checksum
from holdfast.testing.contract.base import Arguments, ContractBase, PortContractBase, Values, raises

_EVERYTHING: Arguments = {
    "status": "waiting",
    "metadata": (("k", b"\x01"),),
    "entries": (NewEntry("a", b"\x00x"),),
    "checkpoints": (NewCheckpoint("new", b"\x01\x01"),),
    "chunks": (ChunkRow(b"h" * 16, b"\x00x"),),
    "attachments": (NewAttachment("c", "new", b"\x01\x01"),),
    "effects": (NewEffect("new", "done"),),
    "gates": (NewGate("new", b"x"),),
    "timers": (Timer("new", 1),),
    "deliver": (NewItem("event", "n", "new", "by", b"x"),),
    "send": (NewMessage("t", "event", "n", "new", b"x"),),
}


class CommitContract(ContractBase):
    """Facts that must be true together are written by one commit."""

    def everything(self) -> Values:
        """All there is, read through the port."""
        port = self.store.port
        rows = {run.run_id: port.run(run.run_id) for run in self.store.runs()}
        return [
            (
                row,
                port.rows(CheckpointRow, row.run),
                port.rows(EntryRow, row.run),
                port.rows(EffectRow, row.run),
                port.rows(AttachmentRow, row.run),
                port.rows(GateRow, row.run),
                port.rows(TimerRow, row.run),
                port.rows(ItemRow, row.run),
                port.chunk_sizes(row.family),
            )
            for row in rows.values()
            if row is not None
        ] + [port.due(MessageRow, 100)]

    def commit(self, **parts: Any) -> Any:
        (outcome,) = self.store.port.commit([Commit(**{"run_id": "run", "commit_id": b"commit00", **parts})])
        return outcome

    def test_a_commit_does_all_it_says(self) -> None:
        outcome = self.commit(create=NewRun(), workflow="w", **_EVERYTHING)
        assert isinstance(outcome, Committed)
        row, checkpoints, entries, effects, attachments, gates, timers, inbox, chunks = self.everything()[0]
        assert (row.workflow, row.status, row.position, row.serial, row.inbox) == ("w", "waiting", 1, 1, 1)
        assert [len(rows) for rows in (checkpoints, entries, effects, attachments, gates, timers, inbox, chunks)] == [
            1
        ] * 8
        assert len(self.store.port.due(MessageRow, 10)) == 1
        assert outcome.run == row

    def test_a_refused_commit_changes_nothing(self) -> None:
        self.store.save("run", self.conversation(30), checkpoint_id="taken", workflow="w")
        self.store.mark_done("run", "done")
        self.store.attach("run", "c", "taken", 1)
        self.commit(gates=(NewGate("taken", b"x"),))
        self.store.save("ended", 1, status="completed")
        self.store.save("held", 1)
        self.claimed("held")
        row, held = self.row(), self.row("held")
        before = self.everything()
        later = Guard(HOLDER, held.incarnation, held.fence + 1, held.nonce)
        refusals: list[tuple[Reason, Arguments]] = [
            (Reason.NO_RUN, {"run_id": "none"}),
            (Reason.RUN_EXISTS, {"create": NewRun(required=True)}),
            (Reason.WORKFLOW, {"workflow": "other"}),
            (Reason.CLAIMED, {"run_id": "held"}),
            (Reason.CLAIM_LOST, {"guard": Guard(HOLDER, row.incarnation, 0, b"")}),
            (Reason.CLAIM_LOST, {"run_id": "held", "guard": Guard(HOLDER, held.incarnation, held.fence, b"n" * 16)}),
            (Reason.CLAIM_LOST, {"run_id": "held", "guard": later}),
            (Reason.CLAIM_LOST, {"run_id": "held", "guard": Guard(HOLDER, row.incarnation, held.fence, held.nonce)}),
            (Reason.INCARNATION, {"guard": Guard(incarnation=b"other")}),
            (Reason.EPOCH, {"guard": Guard(gc_epoch=row.gc_epoch + 1)}),
            (Reason.POSITION, {"guard": Guard(position=5)}),
            (Reason.COVERS, {"checkpoints": (NewCheckpoint("new", b"\x01\x01", covers=9),)}),
            (Reason.CHECKPOINT_TAKEN, {"checkpoints": (NewCheckpoint("taken", b"\x01\x01"),)}),
            (Reason.EFFECT_DONE, {"effects": (NewEffect("new", "done"), NewEffect("done", "done"))}),
            (Reason.ATTACHMENT_TAKEN, {"attachments": (NewAttachment("c", "taken", b"\x01\x02"),)}),
            (Reason.GATE_CLOSED, {"gates": (NewGate("taken", b"x"),)}),
            (Reason.ENDED, {"run_id": "ended"}),
            (Reason.NOT_EXPIRED, {"rearm": 0}),
            (Reason.NOT_EXPIRED, {"deliver": (NewItem("timer", "none", "k", "by", b""),)}),
            (Reason.GATE_CLOSED, {"deliver": (NewItem("answer", "none", "k", "by", b""),)}),
        ]
        for reason, parts in refusals:
            outcome = self.commit(**{**_EVERYTHING, **parts})
            assert isinstance(outcome, Refused), reason
            assert outcome.reason == reason
            assert self.everything() == before, reason

    def test_a_new_run_joins_a_family_only_if_its_source_is_still_the_same(self) -> None:
        self.store.save("run", 1)
        row = self.row()
        wrong = [("none", row.incarnation, row.gc_epoch), ("run", b"other", row.gc_epoch), ("run", row.incarnation, 7)]
        for source, incarnation, epoch in wrong:
            outcome = self.commit(run_id="new", create=NewRun(True, source, incarnation, epoch))
            assert isinstance(outcome, Refused)
            assert outcome.reason == Reason.SOURCE
        outcome = self.commit(run_id="new", create=NewRun(True, "run", row.incarnation, row.gc_epoch))
        assert outcome.run.family == row.family

    def test_of_commits_given_together_each_stands_for_itself(self) -> None:
        self.store.save("run", 1, checkpoint_id="taken")
        outcomes = self.store.port.commit(
            [
                Commit("a", b"commit01", create=NewRun(), checkpoints=(NewCheckpoint("", b"\x01\x01"),)),
                Commit(
                    "run",
                    b"commit02",
                    checkpoints=(NewCheckpoint("taken", b"\x01\x02"),),
                    entries=(NewEntry("x", b"x"),),
                ),
                Commit("a", b"commit03", checkpoints=(NewCheckpoint("", b"\x01\x02"),)),
                Commit("none", b"commit04", entries=(NewEntry("x", b"x"),)),
                Commit("a", b"commit05", guard=Guard(position=0), entries=(NewEntry("x", b"\x00\xc0"),)),
                Commit("a", b"commit06", guard=Guard(position=0), entries=(NewEntry("y", b"\x00\xc0"),)),
            ]
        )
        kinds = [outcome.reason if isinstance(outcome, Refused) else "done" for outcome in outcomes]
        assert kinds == ["done", Reason.CHECKPOINT_TAKEN, "done", Reason.NO_RUN, "done", Reason.POSITION]
        assert self.state("a") == 2
        assert [entry.kind for entry in self.store.journal("a")] == ["x"]
        assert self.store.journal("run") == []

    def test_each_outcome_shows_the_run_as_its_own_commit_left_it(self) -> None:
        row = self.commit(create=NewRun(), take=TakeClaim("w1", b"n" * 16, 60 * US)).run
        guard = Guard(HOLDER, row.incarnation, row.fence, row.nonce, "w1")
        names = iter(range(1, 100))

        def entries(count: int) -> Commit:
            new = tuple(NewEntry("e", b"\x00\xc0") for _ in range(count))
            return Commit("run", b"entries%d" % next(names), guard=guard, entries=new)

        def delivery() -> Commit:
            number = next(names)
            item = NewItem("event", "n", f"k{number}", "by", b"\x00\xc0")
            return Commit("run", b"outside%d" % number, guard=Guard(OUTSIDER), deliver=(item,))

        batches: list[tuple[list[Commit], list[tuple[int, int]]]] = [
            ([entries(1), entries(2), entries(3)], [(1, 0), (3, 0), (6, 0)]),
            ([delivery(), entries(1), delivery(), delivery(), entries(2)], [(6, 1), (7, 1), (7, 2), (7, 3), (9, 3)]),
            ([delivery()], [(9, 4)]),
            ([entries(1)], [(10, 4)]),
            ([entries(1), entries(1)], [(11, 4), (12, 4)]),
        ]
        for commits, expected in batches:
            outcomes = self.store.port.commit(commits)
            rows = [outcome.run for outcome in outcomes if isinstance(outcome, Committed)]
            assert [(run.position, run.inbox) for run in rows] == expected
            assert [run.commit_id for run in rows] == [commit.commit_id for commit in commits]
            stored = {e.position: e.commit_id for e in self.store.port.rows(EntryRow, row.run)}
            for commit, run in zip(commits, rows, strict=True):
                places = range(run.position - len(commit.entries) + 1, run.position + 1)
                assert [stored[position] for position in places] == [commit.commit_id] * len(commit.entries)
        assert self.store.port.run("run") == rows[-1]

    def test_every_change_of_a_run_changes_its_commit_id(self) -> None:
        seen = set()
        self.store.save("run", self.conversation(30))
        for change in (
            lambda: self.store.append("run", [{"kind": "a"}]),
            lambda: self.store.mark_done("run", "k"),
            lambda: self.store.attach("run", "c", "k", 1),
            lambda: self.store.save("run", 1, metadata={"a": 1}),
        ):
            change()
            row = self.row()
            assert row.commit_id not in seen
            seen.add(row.commit_id)

    def test_threads_save_at_once_and_nothing_is_lost(self) -> None:
        errors: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for i in range(20):
                    self.store.save(f"run-{number % 4}", [number, i])
                    self.store.append("shared", [{"kind": "n", "by": number, "i": i}])
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        for run in range(4):
            history = list(self.store.history(f"run-{run}"))
            assert [info.step for info in history] == list(range(1, 41))
        entries = self.store.journal("shared")
        assert [entry.position for entry in entries] == list(range(1, 161))
        assert {(entry["by"], entry["i"]) for entry in entries} == {(n, i) for n in range(8) for i in range(20)}


class LedgerContract(PortContractBase):
    """A rollback finds how an effect was called, and whether another run of the family performed it."""

    def mark(self, *effects: NewEffect, run_id: str = "run") -> None:
        self.done(run_id=run_id, guard=Guard(), create=NewRun(), effects=effects)

    def line(self, key: str = "pay", run_id: str = "run") -> EffectRow:
        """A line of the ledger, which is the same however it is read."""
        run = self.row(run_id)
        (row,) = self.store.port.rows(EffectRow, run.run, keys=[key])
        assert [row] == [other for other in self.store.port.rows(EffectRow, run.run) if other.key == key]
        return verify_checksum(row, run.incarnation, key)

    def test_how_an_effect_was_called_is_kept_until_another_call_is_given(self) -> None:
        steps: list[tuple[Any, bytes, bytes, bytes]] = [
            ("intent", b"", b"\x00\x01", b"\x00\x01"),
            ("failed", b"\x00\xa3bad", b"", b"\x00\x01"),
            ("intent", b"", b"", b"\x00\x01"),
            ("done", b"\x00\xa2ok", b"", b"\x00\x01"),
            ("undone", b"", b"\x00\x02", b"\x00\x02"),
            ("intent", b"", b"\x00\x03", b"\x00\x03"),
            ("done", b"\x00\xa2ok", b"\x00\x04", b"\x00\x04"),
            ("undone", b"", b"", b"\x00\x04"),
            ("done", b"\x00\xa2ok", b"\x00\x05", b"\x00\x05"),
        ]
        for state, result, call, then in steps:
            self.mark(NewEffect("pay", state, body=result, call=call))
            line = self.line()
            assert (line.state, line.body, line.call) == (state, result, then)
        assert self.store.verify().problems == []

    def test_an_effect_that_is_done_anew_comes_after_what_is_there_then(self) -> None:
        self.mark(NewEffect("pay", "done"))
        self.store.save("run", {"n": 1})
        self.store.append("run", [{"kind": "note"}])
        assert (self.line().after_checkpoint, self.line().after_position) == (0, 0)
        self.mark(NewEffect("pay", "undone"))
        assert (self.line().after_checkpoint, self.line().after_position) == (0, 0)
        self.mark(NewEffect("pay", "intent"))
        assert (self.line().after_checkpoint, self.line().after_position) == (1, 1)
        assert self.store.verify().problems == []

    def test_effects_of_one_commit_have_calls_of_their_own(self) -> None:
        large = b"\x00\xc6" + (300_000).to_bytes(4, "big") + b"\xff" * 300_000
        self.mark(
            NewEffect("a", "done", call=large), NewEffect("b", "intent"), NewEffect("c", "done", call=b"\x00\x01")
        )
        self.mark(NewEffect("b", "done", call=b"\x00\x02"), NewEffect("d", "intent", call=b"\x00\x03"))
        calls = {line.key: line.call for line in self.store.port.rows(EffectRow, self.row().run)}
        assert calls == {"a": large, "b": b"\x00\x02", "c": b"\x00\x01", "d": b"\x00\x03"}

    def test_what_users_see_of_an_effect_is_its_result(self) -> None:
        self.mark(NewEffect("pay", "intent", "card", "A-17", call=b"\x00\x01"))
        (seen,) = self.store.effects("run")
        assert (seen.state, seen.tool, seen.target, seen.result) == ("in_doubt", "card", "A-17", None)
        assert self.store.mark_done("run", "pay", result="paid")
        assert (self.store.effects("run")[0].result, self.line().call) == ("paid", b"\x00\x01")

    def test_forks_copies_and_archives_have_the_calls(self) -> None:
        self.mark(NewEffect("pay", "done", body=b"\x00\x05", call=b"\x00\x01"), NewEffect("doubt", "intent"))
        self.store.save("run", 1)
        self.store.fork("run", "forked")
        self.store.copy("run", "copied")
        self.store.import_run(self.store.export_run("run"), run_id="imported")
        self.store.copy("imported", "again")
        for name in ("forked", "copied", "imported", "again"):
            line = self.line("pay", name)
            assert (line.state, line.body, line.call) == ("done", b"\x00\x05", b"\x00\x01")
            assert self.line("doubt", name).call == b""
        self.mark(NewEffect("doubt", "done", call=b"\x00\x02"), run_id="copied")
        assert (self.line("doubt", "copied").call, self.line("doubt").call) == (b"\x00\x02", b"")
        assert self.store.verify().problems == []

    def test_what_was_undone_is_so_in_copies_and_archives(self) -> None:
        self.mark(NewEffect("pay", "done", body=b"\x00\x05", call=b"\x00\x01"))
        self.mark(NewEffect("pay", "undone"))
        self.store.save("run", 1)
        self.store.fork("run", "forked")
        self.store.copy("run", "copied")
        self.store.import_run(self.store.export_run("run"), run_id="imported")
        for name in ("copied", "imported"):
            assert (self.line("pay", name).state, self.line("pay", name).call) == ("undone", b"\x00\x01")
            self.mark(NewEffect("pay", "intent"), run_id=name)
        assert self.store.effects("forked") == []
        assert self.store.verify().problems == []

    def test_an_archive_with_a_call_that_nobody_can_read_is_refused(self) -> None:
        self.mark(NewEffect("pay", "done", call=b"\x00"))
        archive = self.store.export_run("run")
        with raises(DamagedData):
            self.store.import_run(archive, run_id="imported")
        assert [run.run_id for run in self.store.runs()] == ["run"]

    def test_a_family_tells_in_which_of_its_runs_an_effect_was_recorded(self) -> None:
        self.mark(NewEffect("pay", "done", call=b"\x00\x01"), NewEffect("other", "done"))
        self.mark(NewEffect("pay", "intent"), run_id="stranger")
        self.store.save("run", 1)
        self.store.fork("run", "z first")
        self.store.copy("z first", "a second")
        self.mark(NewEffect("mail", "done"), run_id="a second")
        self.mark(NewEffect("pay", "undone"), run_id="z first")
        self.mark(NewEffect("mail", "intent"), run_id="run")
        family = self.row().family

        def found(key: str, of: int = family) -> list[tuple[str, str]]:
            pairs = self.store.port.family_effects(of, key)
            for run, line in pairs:
                assert (run, line) == (self.row(run.run_id), self.line(key, run.run_id))
            return [(run.run_id, line.state) for run, line in pairs]

        assert found("pay") == [("run", "done"), ("z first", "undone"), ("a second", "done")]
        assert found("mail") == [("run", "intent"), ("a second", "done")]
        assert found("pay", self.row("stranger").family) == [("stranger", "intent")]
        assert found("nothing") == []
        assert found("pay", 9999) == []
        self.store.delete("run")
        assert found("pay") == [("z first", "undone"), ("a second", "done")]
        assert found("other") == [("z first", "done"), ("a second", "done")]

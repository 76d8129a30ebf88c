"""The contract of pruned journals: entries go, positions stay.

An entry that is missing for another reason is damage.
"""

from __future__ import annotations

from typing import Any

from holdfast.errors import CheckpointNotFound, DamagedData, InvalidInput
from holdfast.model.rows import CheckpointRow, EntryRow, RunRow
from holdfast.model.views import Keep, Saved
from holdfast.testing.contract.base import ContractBase, Values, raises


class JournalPruningContract(ContractBase):
    """Entries that no checkpoint needs are removed; the others keep their positions."""

    def written(self, count: int, run_id: str = "run") -> None:
        self.store.append(run_id, [{"kind": "n", "n": n} for n in range(1, count + 1)])

    def removed(self, *ranges: tuple[int, int]) -> int | None:
        return self.store.port.prune_entries("run", lambda _run, _checkpoints: ranges)

    def shown(self, run_id: str = "run", **choice: Any) -> Values:
        """The journal: positions of entries, and ranges of what was pruned."""
        entries = self.store.journal(run_id, **choice)
        assert all(entry.data["n"] == entry.position for entry in entries if entry.kind == "n")
        return [e.position if e.kind == "n" else (e.position, e["through"]) for e in entries]

    def turn(self, spans: list[list[int]], needs: tuple[str, ...] = (), **more: Any) -> Saved:
        """Save a checkpoint that names what it needs."""
        metadata = {"holdfast": {"spans": spans, "needs": list(needs)}}
        return self.store.save("run", "state", metadata=metadata, **more)

    # --- what a store does -------------------------------------------------------------------------------------------

    def test_a_range_of_entries_becomes_one_entry_that_says_through_where(self) -> None:
        self.written(9)
        self.clock.advance(5)
        assert self.removed((2, 4), (7, 7)) == 4
        assert self.shown() == [1, (2, 4), 5, 6, (7, 7), 8, 9]
        entry = self.store.journal("run")[1]
        assert (entry.kind, entry.data) == ("pruned", {"kind": "pruned", "through": 4})
        assert entry.created_at > self.store.journal("run")[0].created_at
        assert self.store.runs()[0].position == 9
        assert self.store.append("run", [{"kind": "n", "n": 10}]) == 10
        assert self.shown() == [1, (2, 4), 5, 6, (7, 7), 8, 9, 10]
        assert self.store.verify().problems == []
        assert self.store.stats().entries == 8

    def test_ranges_that_touch_become_one(self) -> None:
        self.written(12)
        assert self.removed((3, 4), (4, 5), (6, 6)) == 4
        assert self.shown() == [1, 2, (3, 6), 7, 8, 9, 10, 11, 12]
        assert self.removed((9, 10)) == 2
        assert self.removed((7, 7)) == 1
        assert self.shown() == [1, 2, (3, 7), 8, (9, 10), 11, 12]
        assert self.removed((2, 2)) == 1
        assert self.shown() == [1, (2, 7), 8, (9, 10), 11, 12]
        assert self.removed((4, 11)) == 2
        assert self.shown() == [1, (2, 11), 12]
        assert self.removed((1, 12)) == 2
        assert self.shown() == [(1, 12)]
        assert self.store.append("run", [{"kind": "n", "n": 13}]) == 13
        assert self.store.verify().problems == []

    def test_what_is_gone_or_never_was_is_not_removed_again(self) -> None:
        self.written(6)
        assert self.removed((2, 4)) == 3
        before = self.store.port.run("run"), self.store.journal("run")
        for ranges in ([(2, 4)], [(3, 3)], [], [(5, 4)], [(7, 99)], [(-5, 0)]):
            assert self.removed(*ranges) == 0
        assert (self.store.port.run("run"), self.store.journal("run")) == before
        assert self.removed((-5, 1), (6, 99)) == 2
        assert self.shown() == [(1, 4), 5, (6, 6)]
        assert self.store.port.prune_entries("none", lambda _run, _checkpoints: [(1, 1)]) is None

    def test_who_chooses_sees_the_run_and_its_checkpoints_as_of_that_moment(self) -> None:
        self.written(3)
        saved = [self.store.save("run", n, lane=lane) for n, lane in enumerate(("", "side", ""))]
        seen: Values = []

        def choose(run: RunRow, checkpoints: list[CheckpointRow]) -> list[tuple[int, int]]:
            seen[:] = [run, *(row.checkpoint_id for row in checkpoints)]
            return []

        assert self.store.port.prune_entries("run", choose) == 0
        assert seen == [self.store.port.run("run"), *(each.checkpoint_id for each in saved)]

    def test_it_works_while_somebody_holds_the_run_who_does_not_notice(self) -> None:
        self.written(5)
        claim = self.claimed()
        claim.save(self.conversation(40))
        before = self.row()
        assert self.removed((2, 3)) == 2
        after = self.row()
        assert (after.fence, after.nonce, after.owner, after.lease_us) == (1, before.nonce, "w1", before.lease_us)
        assert (after.gc_epoch, after.position, after.serial) == (before.gc_epoch, 5, 1)
        assert after.commit_id != before.commit_id, "caches of the run must become stale"
        assert claim.append([{"kind": "n", "n": 6}]) == 6
        claim.save(self.conversation(41))
        claim.complete()
        assert self.shown() == [1, (2, 3), 4, 5, 6]
        assert self.store.verify().problems == []

    def test_a_journal_is_read_from_anywhere(self) -> None:
        self.written(9)
        self.removed((3, 6))
        assert [self.shown(after=n) for n in (1, 2, 3, 5, 6, 8, 9)] == [
            [2, (3, 6), 7, 8, 9],
            [(3, 6), 7, 8, 9],
            [7, 8, 9],
            [7, 8, 9],
            [7, 8, 9],
            [9],
            [],
        ]
        read, after = [], 0
        while page := self.store.journal("run", after=after, limit=1):
            after = page[-1].position
            read.append(after)
        assert read == [1, 2, 3, 7, 8, 9]

    def test_a_gap_that_was_not_pruned_is_damage(self) -> None:
        self.written(9)
        self.removed((3, 5))
        port: Any = self.store.port
        read_rows, run_rows = port.rows, port.run_rows

        def all_but(lost: int, run_id: str) -> Any:
            rows = run_rows(run_id)
            return rows._replace(entries=[row for row in rows.entries if row.position != lost])

        def read(lost: int) -> None:
            port.run_rows = lambda run_id: all_but(lost, run_id)
            port.rows = lambda kind, *about, **keys: [
                row for row in read_rows(kind, *about, **keys) if kind is not EntryRow or row.position != lost
            ]
            for call in (
                lambda: self.store.journal("run"),
                lambda: self.store.copy("run", "copy"),
                lambda: self.store.fork("run", "fork"),
                lambda: self.store.export_run("run"),
            ):
                with raises(DamagedData):
                    call()
            assert self.store.verify().problems != []

        self.store.save("run", 1)
        for lost in (1, 2, 3, 6, 8):
            read(lost)
        read(3)
        with raises(DamagedData):
            self.store.journal("run", after=4)
        read(7)
        with raises(DamagedData):
            self.store.journal("run", after=6)
        port.rows, port.run_rows = read_rows, run_rows
        assert self.store.verify().problems == []
        assert [run.run_id for run in self.store.runs()] == ["run"]

    def test_an_entry_of_a_caller_cannot_have_the_kind_of_pruned_entries(self) -> None:
        with raises(InvalidInput):
            self.store.append("run", [{"kind": "pruned", "through": 5}])
        assert self.store.runs() == []

    def test_a_journal_that_is_pruned_while_it_is_verified_is_not_taken_for_damaged(self) -> None:
        self.written(450)
        port: Any = self.store.port
        rows = port.rows

        def late(kind: Any, *about: Any) -> Any:
            found = rows(kind, *about)
            if kind is EntryRow:
                port.rows = rows
                self.removed((150, 300))
            return found

        port.rows = late
        assert self.store.verify().problems == []
        assert len(self.shown()) == 300

    # --- new runs from pruned ones -----------------------------------------------------------------------------------

    def test_copies_and_archives_keep_positions(self) -> None:
        self.written(9)
        self.store.save("run", 1, covers=8)
        self.store.mark_intent("run", "pay")
        self.removed((1, 3), (5, 7))
        self.store.copy("run", "copied")
        self.store.import_run(self.store.export_run("run"), run_id="imported")
        self.store.fork("run", "forked")
        for name, end in (("copied", 9), ("imported", 9), ("forked", 8)):
            assert self.shown(name) == [(1, 3), 4, (5, 7), 8, 9][: end - 4]
            assert [e.created_at for e in self.store.journal(name)] == [
                e.created_at for e in self.store.journal("run")
            ][: end - 4]
            assert self.store.append(name, [{"kind": "n", "n": end + 1}]) == end + 1
            assert self.loaded(name).covers == 8
            assert self.store.port.prune_entries(name, lambda _run, _checkpoints: [(4, 4)]) == 1
            assert self.shown(name)[0] == (1, 7)
        assert self.store.verify().problems == []

    def test_a_fork_of_what_lies_in_the_middle_of_a_pruned_range_ends_there(self) -> None:
        self.written(9)
        self.store.save("run", 1, covers=4)
        self.removed((2, 6))
        self.store.fork("run", "forked")
        assert self.shown("forked") == [1, (2, 4)]
        assert self.store.append("forked", [{"kind": "n", "n": 5}]) == 5
        assert self.shown("forked") == [1, (2, 4), 5]
        assert self.store.verify().problems == []

    def test_a_fork_has_the_checkpoints_its_own_one_needs(self) -> None:
        self.written(3)
        self.turn([], checkpoint_id="outer")
        self.turn([], checkpoint_id="other")
        self.turn([], ("outer",), checkpoint_id="middle", lane="side")
        self.store.attach("run", "outer", "note", "kept")
        self.turn([], ("middle",), checkpoint_id="inner")
        self.store.fork("run", "forked")
        assert [info.checkpoint_id for info in self.store.history("forked")] == ["outer", "middle", "inner"]
        assert self.loaded("forked").checkpoint_id == "inner"
        assert self.store.attachments("forked", "outer") == {"note": "kept"}
        assert self.store.runs()[0].forked_from == "run@inner"

    def test_a_fork_of_what_is_pruned_meanwhile_has_its_entries_or_is_not_made(self) -> None:
        self.written(8)
        self.turn([[2, 3]], checkpoint_id="old", covers=4)
        self.turn([[6, 6]], checkpoint_id="new", covers=8)
        self.removed((4, 4))
        self.before_next("rows", lambda: self.store.prune("run", Keep(last=1, journal=True)), of=EntryRow)
        with raises(CheckpointNotFound):
            self.store.fork("run", "forked", checkpoint_id="old")
        assert self.shown() == [1, (2, 5), 6, (7, 8)]

    # --- what prune does ---------------------------------------------------------------------------------------------

    def test_entries_that_no_kept_checkpoint_needs_are_removed(self) -> None:
        self.written(6)
        self.turn([[1, 2]])
        self.store.append("run", [{"kind": "n", "n": n} for n in range(7, 13)])
        self.turn([[2, 2], [5, 5]], covers=10)
        self.store.append("run", [{"kind": "n", "n": 13}])
        self.turn([[2, 2], [9, 9]])
        keep = Keep(last=2, journal=True)
        plan = self.store.prune("run", keep, dry_run=True)
        assert self.shown() == list(range(1, 14))
        done = self.store.prune("run", keep)
        assert (plan.entries, done.entries, len(done.removed)) == (6, 6, 1)
        assert self.shown() == [1, 2, (3, 4), 5, (6, 8), 9, (10, 10), 11, 12, 13]
        assert self.store.prune("run", keep, dry_run=True).entries == self.store.prune("run", keep).entries == 0
        keep = Keep(last=1, journal=True)
        assert self.store.prune("run", keep, dry_run=True).entries == self.store.prune("run", keep).entries == 4
        assert self.shown() == [1, 2, (3, 8), 9, (10, 13)]
        assert self.store.verify().problems == []

    def test_without_being_asked_prune_leaves_the_journal_alone(self) -> None:
        self.written(6)
        for _ in range(3):
            self.turn([])
        assert self.store.prune("run", Keep(last=1)).entries == 0
        assert self.shown() == [1, 2, 3, 4, 5, 6]

    def test_checkpoints_that_a_kept_one_needs_are_kept(self) -> None:
        self.written(2)
        self.turn([], checkpoint_id="a")
        self.turn([], ("a", "unknown"), checkpoint_id="b", lane="side")
        self.turn([], checkpoint_id="c")
        self.store.save("run", 1, checkpoint_id="d", metadata={"holdfast": {"needs": ["b"]}})
        self.turn([], checkpoint_id="e", lane="side")
        assert self.store.prune("run", Keep(last=1), dry_run=True).removed == ("c",)
        assert self.store.prune("run", Keep(last=1)).removed == ("c",)
        assert [info.checkpoint_id for info in self.store.history("run")] == ["a", "b", "d", "e"]

    def test_entries_that_a_needed_checkpoint_or_another_lane_needs_are_kept(self) -> None:
        self.written(9)
        self.turn([[3, 3]], checkpoint_id="a")
        self.turn([[5, 5]], lane="side")
        self.turn([[7, 7]], ("a",))
        assert self.store.prune("run", Keep(last=1, journal=True)).entries == 5
        assert self.shown() == [1, (2, 2), 3, (4, 4), 5, (6, 6), 7, (8, 9)]

    def test_where_checkpoints_do_not_tell_nothing_is_removed(self) -> None:
        self.written(6)
        self.store.save("run", "names nothing")
        self.turn([])
        assert self.store.prune("run", Keep(last=2, journal=True)).entries == 0
        not_understood: Values = ["text", {"spans": 7}, {"spans": [[1]]}, {"needs": []}, {}, []]
        for wrong in not_understood:
            self.store.save("run", 1, lane="side", metadata={"holdfast": wrong})
            assert self.store.prune("run", Keep(last=1, journal=True)).entries == 0
        assert self.shown() == [1, 2, 3, 4, 5, 6]
        self.turn([], lane="side")
        assert self.store.prune("run", Keep(last=1, journal=True)).entries == 5
        self.store.append("new", [{"kind": "n", "n": 1}, {"kind": "n", "n": 2}])
        assert self.store.prune("new", Keep(journal=True)).entries == 0

    def test_what_a_newer_checkpoint_does_not_cover_stays(self) -> None:
        self.written(6)
        self.turn([])
        self.turn([], covers=3)
        assert self.store.prune("run", Keep(last=2, journal=True)).entries == 2
        assert self.shown() == [1, (2, 3), 4, 5, 6]

    def test_what_is_saved_while_entries_are_pruned_has_what_it_needs(self) -> None:
        self.written(6)
        self.turn([[2, 3]])
        self.turn([[3, 3]])

        def add() -> None:
            self.store.append("run", [{"kind": "n", "n": 7}])
            self.turn([[3, 3], [5, 5]])

        self.before_next("prune_entries", add)
        report = self.store.prune("run", Keep(last=1, journal=True))
        assert (report.entries, len(report.removed)) == (3, 1)
        assert self.shown() == [1, (2, 2), 3, (4, 4), 5, (6, 6), 7]

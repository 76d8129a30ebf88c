"""The contract of the commit itself: whole or not at all, guarded, together but each for itself."""

from __future__ import annotations

import threading
from typing import Any

from holdfast.clock import US
from holdfast.model import commit as why
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
    Refused,
    Take,
    Timer,
)
from holdfast.model.rows import ChunkRow
from holdfast.testing.contract.base import ContractBase

_EVERYTHING: dict[str, Any] = {
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


class CommittingContract(ContractBase):
    """Two facts that must be true together travel in one commit."""

    def everything(self) -> Any:
        """All there is, read through the port."""
        port = self.store.port
        rows = {run.run_id: port.run(run.run_id) for run in self.store.runs()}
        return [
            (row, port.checkpoints(row.run, 0, -1), port.entries(row.run, 0, -1), port.effects(row.run),
             port.attachments(row.run, None, None), port.gates(row.run, None, -1), port.timers(row.run),
             port.inbox(row.run, 0, -1), port.chunk_sizes(row.family))
            for row in rows.values() if row is not None
        ] + [port.outbox(100)]  # fmt: skip

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
        assert len(self.store.port.outbox(10)) == 1
        assert outcome.run == row

    def test_a_refused_commit_changes_nothing(self) -> None:
        self.store.save("run", self.conversation(30), checkpoint_id="taken", workflow="w")
        self.store.mark_done("run", "done")
        self.store.attach("run", "c", "taken", 1)
        self.commit(gates=(NewGate("taken", b"x"),))
        self.store.save("ended", 1, status="completed")
        self.store.save("held", 1)
        claim = self.store.claim("held", owner="w1")
        assert claim is not None
        row, held = self.store.port.run("run"), self.store.port.run("held")
        assert row is not None
        assert held is not None
        before = self.everything()
        refusals: list[tuple[str, dict[str, Any]]] = [
            (why.NO_RUN, {"run_id": "none"}),
            (why.RUN_EXISTS, {"create": NewRun(required=True)}),
            (why.WORKFLOW, {"workflow": "other"}),
            (why.CLAIMED, {"run_id": "held"}),
            (why.CLAIM_LOST, {"guard": Guard(HOLDER, row.incarnation, 0, b"")}),
            (why.CLAIM_LOST, {"run_id": "held", "guard": Guard(HOLDER, held.incarnation, held.fence, b"n" * 16)}),
            (why.CLAIM_LOST, {"run_id": "held", "guard": Guard(HOLDER, held.incarnation, held.fence + 1, held.nonce)}),
            (why.CLAIM_LOST, {"run_id": "held", "guard": Guard(HOLDER, row.incarnation, held.fence, held.nonce)}),
            (why.INCARNATION, {"guard": Guard(incarnation=b"other")}),
            (why.EPOCH, {"guard": Guard(gc_epoch=row.gc_epoch + 1)}),
            (why.POSITION, {"guard": Guard(position=5)}),
            (why.COVERS, {"checkpoints": (NewCheckpoint("new", b"\x01\x01", covers=9),)}),
            (why.CHECKPOINT_TAKEN, {"checkpoints": (NewCheckpoint("taken", b"\x01\x01"),)}),
            (why.EFFECT_DONE, {"effects": (NewEffect("new", "done"), NewEffect("done", "done"))}),
            (why.ATTACHMENT_TAKEN, {"attachments": (NewAttachment("c", "taken", b"\x01\x02"),)}),
            (why.GATE_CLOSED, {"gates": (NewGate("taken", b"x"),)}),
            (why.ENDED, {"run_id": "ended"}),
            (why.NOT_EXPIRED, {"rearm": 0}),
            (why.NOT_EXPIRED, {"deliver": (NewItem("timer", "none", "k", "by", b""),)}),
            (why.GATE_CLOSED, {"deliver": (NewItem("answer", "none", "k", "by", b""),)}),
        ]  # fmt: skip
        for reason, parts in refusals:
            outcome = self.commit(**{**_EVERYTHING, **parts})
            assert isinstance(outcome, Refused), reason
            assert outcome.why == reason
            assert self.everything() == before, reason

    def test_a_new_run_joins_a_family_only_if_its_source_is_still_the_same(self) -> None:
        self.store.save("run", 1)
        row = self.store.port.run("run")
        assert row is not None
        wrong = [("none", row.incarnation, row.gc_epoch), ("run", b"other", row.gc_epoch), ("run", row.incarnation, 7)]
        for source, incarnation, epoch in wrong:
            outcome = self.commit(run_id="new", create=NewRun(True, source, incarnation, epoch))
            assert isinstance(outcome, Refused)
            assert outcome.why == why.SOURCE
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
        kinds = [outcome.why if isinstance(outcome, Refused) else "done" for outcome in outcomes]
        assert kinds == ["done", why.CHECKPOINT_TAKEN, "done", why.NO_RUN, "done", why.POSITION]
        assert self.state("a") == 2
        assert [entry.kind for entry in self.store.journal("a")] == ["x"]
        assert self.store.journal("run") == []

    def test_each_outcome_shows_the_run_as_its_own_commit_left_it(self) -> None:
        row = self.commit(create=NewRun(), take=Take("w1", b"n" * 16, 60 * US)).run
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
            stored = {e.position: e.commit_id for e in self.store.port.entries(row.run, 0, -1)}
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
            row = self.store.port.run("run")
            assert row is not None
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

"""Random sequences of operations, on a store and on a plain model. Needs hypothesis.

    class MyMachine(StoreMachine):
        def open_port(self, clock):
            return MyStore(clock)

        def reopened(self):
            return MyStore(self.clock)  # the same data, opened again; without it durability is not tested

    TestMyStore = MyMachine.TestCase

After every step both sides must hold the same. The model (`holdfast.testing.reference_model`) is written to be read.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from holdfast.errors import AttachmentConflict, CheckpointConflict, ClaimLost, RunClaimed, RunExists
from holdfast.model.rows import AT_WORK, READY, RUNNING, TERMINAL
from holdfast.model.views import Keep
from holdfast.operations.packs import pack_loose
from holdfast.operations.store import Claim, Store
from holdfast.store.port import RunQuery, StorePort
from holdfast.testing.contract.base import Arguments, Values
from holdfast.testing.fakes import ManualClock
from holdfast.testing.reference_model import (
    CALLS,
    CHECKPOINT_IDS,
    KEYS,
    LANES,
    RUN_IDS,
    STATES,
    STATUSES,
    Checkpoint,
    GuardRules,
    Run,
    shown_journal,
)


class StoreMachine(GuardRules):
    """The operations as rules, and with `GuardRules` what only the port offers."""

    def open_port(self, clock: ManualClock) -> StorePort:
        """An empty store that takes its time from `clock`."""
        raise NotImplementedError("a test of a store says how to open it")

    def reopened(self) -> StorePort | None:
        """The same store opened again; None if it forgets."""
        return None

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.store = Store(self.open_port(self.clock), clock=self.clock)
        self.model: dict[str, Run] = {}
        self.claims: list[tuple[str, Run, Claim]] = []
        self.time = 0.0

    def teardown(self) -> None:
        self.store.close()

    # --- what the model says -----------------------------------------------------------------------------------------

    def held(self, run: Run | None) -> bool:
        return run is not None and run.claim is not None and run.claim[1] > self.time

    def expect_write(self, run_id: str) -> Run | None:
        """The run a plain write goes to, created if it is not there; None if the write must be refused."""
        run = self.model.get(run_id)
        if self.held(run):
            return None
        if run is None:
            run = self.model[run_id] = Run()
        if run.claim is not None:
            run.let_go()
        return run

    # --- rules -------------------------------------------------------------------------------------------------------

    @rule(
        run_id=RUN_IDS,
        state=STATES,
        lane=LANES,
        name=CHECKPOINT_IDS,
        status=STATUSES,
        replace=st.booleans(),
        parent_id=st.sampled_from([None, None, ""]),
    )
    def save(
        self,
        run_id: str,
        state: object,
        lane: str,
        name: str | None,
        status: str | None,
        replace: bool,
        parent_id: str | None,
    ) -> None:
        run = self.model.get(run_id)
        old = next((c for c in run.checkpoints if c.id == name and c.lane == lane), None) if run else None
        arguments: Arguments = {"lane": lane, "checkpoint_id": name, "status": status}
        arguments |= {"replace": replace, "parent_id": parent_id}
        if self.held(run):
            self.refused(RunClaimed, lambda: self.store.save(run_id, state, **arguments))
            return
        is_root = parent_id is not None
        changed = old is not None and (old.facts()[-1] != state or status not in (None, old.facts()[-2]))
        changed = changed or (old is not None and is_root and old.__dict__["parent"] is not None)
        if changed and not replace:
            self.refused(CheckpointConflict, lambda: self.store.save(run_id, state, **arguments))
            return
        saved = self.store.save(run_id, state, **arguments)
        if old is not None and not changed:
            assert (saved.number, saved.bytes_added) == (old.number, 0)
            return
        run = self.expect_write(run_id)
        assert run is not None
        run.status = status or run.status
        self.model_save(run, saved.checkpoint_id, state, lane, old)
        if is_root:
            (old or run.checkpoints[-1]).__dict__["parent"] = None
        assert saved.number == (old.number if old else run.serial)

    def model_save(self, run: Run, name: str, state: object, lane: str, old: Checkpoint | None) -> None:
        facts: Arguments = {"covers": len(run.journal), "status": run.status, "state": copy.deepcopy(state)}
        if old is not None:
            old.__dict__.update(facts)
            return
        run.serial += 1
        head = run.head(lane)
        parent, step = (head.id, head.__dict__["step"]) if head else (None, 0)
        run.checkpoints.append(Checkpoint(number=run.serial, id=name, lane=lane, parent=parent, step=step + 1, **facts))

    @rule(run_id=RUN_IDS, count=st.integers(1, 3))
    def append(self, run_id: str, count: int) -> None:
        entries = [{"kind": "note", "n": i} for i in range(count)]
        run = self.expect_write(run_id)
        if run is None:
            self.refused(RunClaimed, lambda: self.store.append(run_id, entries))
            return
        run.journal += entries
        assert self.store.append(run_id, entries) == len(run.journal)

    @rule(run_id=RUN_IDS, key=KEYS, intent=st.booleans(), call=CALLS)
    def mark(self, run_id: str, key: str, intent: bool, call: bytes) -> None:
        mark = self.marking(call, intent=intent)
        run = self.model.get(run_id)
        state = run.effects.get(key, [None])[0] if run else None
        if self.held(run):
            self.refused(RunClaimed, lambda: mark(run_id, key))
        elif state == "done" or (state == "in_doubt" and intent):
            assert not mark(run_id, key)
        else:
            assert mark(run_id, key)
            run = self.expect_write(run_id)
            assert run is not None
            _, after, called = run.effects.get(key, [None, run.serial, b""])
            run.effects[key] = ["in_doubt" if intent else "done", after, call or called]

    @rule(run_id=RUN_IDS, lane=LANES, name=st.sampled_from(["c1", "c2"]), value=STATES, replace=st.booleans())
    def attach(self, run_id: str, lane: str, name: str, value: object, replace: bool) -> None:
        run = self.model.get(run_id)
        old = run.attachments.get((lane, name, "key")) if run else None
        if self.held(run):
            self.refused(RunClaimed, lambda: self.store.attach(run_id, name, "key", value, lane=lane, replace=replace))
        elif old is not None and old != value and not replace:
            self.refused(AttachmentConflict, lambda: self.store.attach(run_id, name, "key", value, lane=lane))
        else:
            self.store.attach(run_id, name, "key", value, lane=lane, replace=replace)
            run = self.expect_write(run_id)
            assert run is not None
            run.attachments[lane, name, "key"] = copy.deepcopy(value)

    @rule(run_id=RUN_IDS, lane=LANES, name=st.sampled_from(["c1", "c2"]), values=st.tuples(STATES, STATES))
    def attach_what_is_missing(self, run_id: str, lane: str, name: str, values: tuple[object, object]) -> None:
        given = dict(zip(("key", "more"), values, strict=True))
        if self.held(self.model.get(run_id)):
            self.refused(RunClaimed, lambda: self.store.attach_all(run_id, name, given, lane=lane, existing="keep"))
            return
        self.store.attach_all(run_id, name, given, lane=lane, existing="keep")
        run = self.expect_write(run_id)
        assert run is not None
        for key, value in given.items():
            run.attachments.setdefault((lane, name, key), copy.deepcopy(value))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), owner=st.sampled_from(["w1", "w2"]), lease=st.sampled_from([5, 50]))
    def claim(self, data: st.DataObject, owner: str, lease: int) -> None:
        run_id = data.draw(st.sampled_from(sorted(self.model)))
        run = self.model[run_id]
        claim = self.store.claim(run_id, owner=owner, lease=lease)
        if self.held(run) or run.status in TERMINAL:
            assert claim is None
            return
        assert claim is not None
        run.fence += 1
        assert claim.fence == run.fence
        run.claim, run.status = (owner, self.time + lease), RUNNING
        self.claims.append((run_id, run, claim))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), what=st.sampled_from(["save", "append", "renew", "release", "complete"]), state=STATES)
    def use_claim(self, data: st.DataObject, what: str, state: object) -> None:
        run_id, claimed, claim = data.draw(st.sampled_from(self.claims))
        run = self.model.get(run_id)
        given: dict[str, Values] = {"save": [state], "append": [[{"kind": "held"}]]}
        arguments = given.get(what, [])
        if run is not claimed or run.claim is None or run.fence != claim.fence:
            self.refused(ClaimLost, lambda: getattr(claim, what)(*arguments))
            return
        result = getattr(claim, what)(*arguments)
        if what == "save":
            self.model_save(run, result.checkpoint_id, state, "", None)
        elif what == "append":
            run.journal.append({"kind": "held"})
        elif what == "renew":
            run.claim = (run.claim[0], self.time + claim.lease)
        else:
            run.let_go()
            run.status = "completed" if what == "complete" else run.status

    @rule(seconds=st.sampled_from([1, 10, 100]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.time += seconds

    @precondition(lambda self: self.model)
    @rule(at=st.integers(0, 5))
    def pack(self, at: int) -> None:
        row = self.store.port.runs(RunQuery())[at % len(self.model)]
        pack_loose(self.store.access.core, row.family, 2, chunks_min=1)

    @rule()
    def recover(self) -> None:
        gone = [run for run in self.model.values() if run.claim is not None and not self.held(run)]
        assert self.store.recover_expired() == len(gone)
        for run in gone:
            run.let_go()

    @precondition(lambda self: self.model)
    @rule(data=st.data(), last=st.integers(1, 3), terminal=st.booleans(), pending=st.booleans(), dry=st.booleans())
    def prune(self, data: st.DataObject, last: int, terminal: bool, pending: bool, dry: bool) -> None:
        run_id = data.draw(st.sampled_from(sorted(self.model)))
        run = self.model[run_id]
        keep: set[int] = set()
        for lane in ("", "side"):
            numbers = [c.number for c in run.checkpoints if c.lane == lane]
            keep.update(numbers[-last:])
            ended = [c.number for c in run.checkpoints if c.lane == lane and c.facts()[-2] in TERMINAL]
            keep.update(ended[-1:] if terminal else [])
            for state, after, _ in run.effects.values():
                if pending and state == "in_doubt":
                    keep.update([n for n in numbers if n <= after][-1:])
        gone = [c for c in run.checkpoints if c.number not in keep]
        rules = Keep(last=last, latest_terminal=terminal, before_pending_effects=pending)
        report = self.store.prune(run_id, rules, dry_run=dry)
        assert report.removed == tuple(c.id for c in gone)
        if not dry:
            self.model_prune(run, gone)

    def model_prune(self, run: Run, gone: list[Checkpoint]) -> None:
        run.checkpoints = [c for c in run.checkpoints if c not in gone]
        lost = {(c.lane, c.id) for c in gone}
        run.attachments = {key: v for key, v in run.attachments.items() if key[:2] not in lost}

    @precondition(lambda self: self.model)
    @rule(data=st.data(), behind=st.sets(st.integers(0, 5), min_size=1))
    def prune_from_the_end(self, data: st.DataObject, behind: set[int]) -> None:
        """Any checkpoints, counted from the newest: heads go back."""
        run_id = data.draw(st.sampled_from(sorted(self.model)))
        run = self.model[run_id]
        gone = [c for place, c in enumerate(reversed(run.checkpoints)) if place in behind]
        found = self.store.port.prune(run_id, lambda _rows, _effects: [c.number for c in gone])
        assert [row.checkpoint_id for row in found or []] == [c.id for c in gone]
        self.model_prune(run, gone)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), ranges=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=3))
    def prune_entries(self, data: st.DataObject, ranges: list[tuple[int, int]]) -> None:
        run_id = data.draw(st.sampled_from(sorted(self.model)))
        journal = self.model[run_id].journal
        gone = {n for first, last in ranges for n in range(first, last + 1) if 0 < n <= len(journal) and journal[n - 1]}
        assert self.store.port.prune_entries(run_id, lambda _run, _checkpoints: ranges) == len(gone)
        for position in gone:
            journal[position - 1] = None

    @precondition(lambda self: self.model)
    @rule(data=st.data(), new_id=RUN_IDS, whole=st.booleans())
    def make_another(self, data: st.DataObject, new_id: str, whole: bool) -> None:
        run_id = data.draw(st.sampled_from(sorted(self.model)))
        run, head = self.model[run_id], self.model[run_id].head("")
        if run_id == new_id or (head is None and not whole):
            return
        make = self.store.copy if whole else self.store.fork
        if new_id in self.model:
            self.refused(RunExists, lambda: make(run_id, new_id))
            return
        make(run_id, new_id)
        new = self.model[new_id] = self.model_copy(run)
        if not whole:
            assert head is not None
            self.model_fork(new, run, head)

    def model_copy(self, run: Run) -> Run:
        """The run as a new one: its checkpoints are numbered again, and its effects still come after the same ones."""
        new = copy.deepcopy(run)
        new.claim, new.fence = None, 0
        new.status = READY if run.status in AT_WORK else run.status
        for number, checkpoint in enumerate(new.checkpoints, start=1):
            checkpoint.number = checkpoint.__dict__["number"] = number
        new.serial = len(new.checkpoints)
        for effect in new.effects.values():
            effect[1] = sum(checkpoint.number <= effect[1] for checkpoint in run.checkpoints)
        return new

    def model_fork(self, new: Run, run: Run, head: Checkpoint) -> None:
        kept = next(c for c in new.checkpoints if c.id == head.id and c.lane == head.lane)
        kept.number = kept.__dict__["number"] = 1
        new.checkpoints, new.serial, new.status = [kept], 1, READY
        new.journal = new.journal[: head.__dict__["covers"]]
        new.effects = {k: [state, 0, call] for k, (state, after, call) in run.effects.items() if after < head.number}
        new.attachments = {key: v for key, v in run.attachments.items() if key[:2] == ("", head.id)}

    @rule(run_id=RUN_IDS)
    def delete(self, run_id: str) -> None:
        run = self.model.get(run_id)
        if self.held(run):
            self.refused(RunClaimed, lambda: self.store.delete(run_id))
            return
        assert self.store.delete(run_id) == (run is not None)
        self.model.pop(run_id, None)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def pass_through_an_archive(self, data: st.DataObject) -> None:
        run_id = data.draw(st.sampled_from(sorted(self.model)))
        run = self.model[run_id]
        archive = self.store.export_run(run_id)
        if self.held(run):
            return
        self.store.delete(run_id)
        self.store.import_run(archive)
        del self.model[run_id]  # it is the newest now, and a family of its own
        self.model[run_id] = self.model_copy(run)
        self.model[run_id].family = Run().family

    @rule()
    def reopen(self) -> None:
        port = self.reopened()
        if port is not None:
            self.store.close()
            self.store = Store(port, clock=self.clock)
            self.claims = []  # they belong to the store that was closed

    # --- what must always be true ------------------------------------------------------------------------------------

    @invariant()
    def the_same_on_both_sides(self) -> None:
        listed = {run.run_id: run for run in self.store.runs(limit=1000)}
        assert listed.keys() == self.model.keys()
        for run_id, run in self.model.items():
            info = listed[run_id]
            assert (info.status, info.position) == (run.status, len(run.journal))
            assert info.owner == (run.claim[0] if run.claim else None)
            self.same_run(run_id, run)

    def same_run(self, run_id: str, run: Run) -> None:
        shown = []
        for info in self.store.history(run_id):
            found = self.store.load(run_id, checkpoint_id=info.checkpoint_id, lane=info.lane)
            assert found is not None
            place = (found.number, found.checkpoint_id, found.parent_id, found.lane)
            shown.append((*place, found.step, found.covers, found.status, found.state))
        assert shown == [checkpoint.facts() for checkpoint in run.checkpoints]
        for lane in ("", "side"):
            head, latest = run.head(lane), self.store.load(run_id, lane=lane)
            assert (latest.number if latest else None) == (head.number if head else None)
        assert [entry.data for entry in self.store.journal(run_id)] == shown_journal(run.journal)
        assert {e.key: e.state for e in self.store.effects(run_id)} == {k: v[0] for k, v in run.effects.items()}
        for lane in ("", "side"):
            for name in ("c1", "c2"):
                expected = {k[2]: v for k, v in run.attachments.items() if k[:2] == (lane, name)}
                assert self.store.attachments(run_id, name, lane=lane) == expected

    @invariant()
    def nothing_is_wrong(self) -> None:
        assert self.store.verify().problems == []

    def refused(self, kind: type[Exception], call: Callable[[], object]) -> None:  # the invariants: nothing changed
        try:
            call()
        except kind:
            return
        raise AssertionError(f"{kind.__name__} was not raised")

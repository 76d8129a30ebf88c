"""The contract of packs: chunks move into them, keep their names, and nothing else can be noticed."""

from __future__ import annotations

from holdfast.model.views import Keep
from holdfast.operations.packs import StoredChunks, pack_loose
from holdfast.store.packs import NewPack
from holdfast.testing.contract.base import Arguments, ContractBase

_TURNS = 24


class PackContract(ContractBase):
    """A store may keep chunks in packs. One that does not refuses every pack; then there is nothing to test."""

    def pack_all(self, run_id: str = "run") -> int:
        """Move all small chunks into packs; the number of packs."""
        return pack_loose(self.store.access.core, self.row(run_id).family, 100, chunks_min=1)

    def stored(self, run_id: str = "run") -> StoredChunks:
        return StoredChunks(self.store.port, self.row(run_id).family)

    def packed_run(self) -> list[Arguments]:
        """The states of a run whose chunks are in packs."""
        states = [self.conversation(turns + 1) for turns in range(_TURNS)]
        for state in states:
            self.store.save("run", state)
        self.pack_all()
        return states

    def check(self, states: list[Arguments], run_id: str = "run") -> None:
        """All states can be read, and nothing is wrong or unused."""
        for info, state in zip(self.store.history(run_id), states, strict=True):
            assert self.state(run_id, checkpoint_id=info.checkpoint_id) == state
        report = self.store.verify()
        assert (report.problems, report.unused_chunks) == ([], 0)

    def test_packed_states_are_read_and_take_less(self) -> None:
        states = [self.conversation(turns + 1) for turns in range(_TURNS)]
        for state in states:
            self.store.save("run", state)
        before, row, names = self.store.stats(), self.row(), self.stored().names
        if self.pack_all():
            assert self.stored().places
            assert self.store.stats().state_bytes < before.state_bytes
        assert self.row() == row  # writers may go on, and link to what they know
        assert self.stored().names == names
        assert self.store.stats().chunks == before.chunks
        self.check(states)

    def test_a_chunk_in_a_pack_is_not_stored_again(self) -> None:
        states = self.packed_run()
        loose = self.stored().loose
        self.store.access.core.memory.forget("run")
        states.append({**states[-1], "turns": 0})
        self.store.save("run", states[-1])
        assert sum(self.stored().loose.values()) < sum(loose.values()) + 4_000
        self.check(states)

    def test_a_pack_with_a_chunk_that_does_not_exist_is_refused_and_nothing_changes(self) -> None:
        states = self.packed_run()
        before = self.stored()
        names = [*before.names, b"missing" + bytes(9)]
        new = NewPack(tuple((name, 1) for name in names), b"\x00" + bytes(len(names)))
        assert not self.store.port.pack(self.row().family, new)
        after = self.stored()
        assert (after.loose, after.places, after.packs) == (before.loose, before.places, before.packs)
        assert not self.store.port.pack(self.row().family + 1000, new)
        self.check(states)

    def test_a_sweep_before_the_commit_of_a_pack_wins(self) -> None:
        for turns in range(_TURNS):
            self.store.save("run", self.conversation(turns + 1))
        kept = self.conversation(3, changed=1)
        self.store.save("run", kept)
        self.before_next("pack", lambda: self.store.prune("run", Keep(last=1)))
        self.pack_all()
        self.check([kept])

    def test_a_chunk_that_moves_between_two_reads_is_found(self) -> None:
        states = [self.conversation(turns + 1) for turns in range(_TURNS)]
        for state in states:
            self.store.save("run", state)
        for method in ("chunks", "packed"):
            self.before_next(method, self.pack_all)
            self.check(states)
        self.before_next("packed", lambda: self.store.prune("run", Keep(last=1)))
        assert self.state("run") == states[-1]  # its chunks moved to another pack before the pack was read

    def test_what_a_prune_frees_is_what_a_dry_run_says(self) -> None:
        states = self.packed_run()
        for last in (_TURNS - 4, 6, 1):
            plan = self.store.prune("run", Keep(last=last), dry_run=True)
            before = self.store.stats().state_bytes
            done = self.store.prune("run", Keep(last=last))
            assert before - self.store.stats().state_bytes == done.bytes_freed == plan.bytes_freed
            assert plan.chunks == done.chunks
            self.check(states[-last:])

    def test_a_pack_that_lost_more_than_half_is_written_again(self) -> None:
        self.packed_run()
        self.store.prune("run", Keep(last=1))
        left = self.stored()
        for number, pack in left.packs.items():
            assert sum(place.size for place in left.places.values() if place.pack == number) * 2 >= pack.size

    def test_relatives_share_packs_and_the_last_one_takes_them_along(self) -> None:
        states = self.packed_run()
        self.store.fork("run", "fork")
        self.store.copy("run", "copy")
        data = self.store.export_run("run")
        self.store.delete("run")
        self.check(states[-1:], "fork")
        self.store.import_run(data)
        self.pack_all("copy")
        for run_id in ("copy", "run"):
            self.check(states, run_id)
        for run_id in ("fork", "copy", "run"):
            self.store.delete(run_id)
        assert self.store.stats().state_bytes == 0

    def test_every_hundredth_save_or_so_packs(self) -> None:
        state: Arguments = {"messages": []}
        for turn in range(100):
            state["messages"].append({"content": f"{turn} " * 40, "more": "words that repeat " * 20})
            self.store.save("run", state)
        stored = self.stored()
        assert len(stored.loose) < len(stored.places) or not self.pack_all()

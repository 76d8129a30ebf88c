"""The directory store: readable files, safe with several processes and power cuts.

    runs/
      holdfast.json                      format and version
      lock                               see holdfast/files/lock.py
      last-run.json                      the last number given to a run
      tmp/                               unfinished files
      owners/                            owner locks, see holdfast/store/liveness.py
      catalog/                           published workflows: the name as JSON, a line break, the description
      families/
        00000001-order-4711/             a run and its forks
          order-4711-….journal           the history of a run, one line for each commit
          order-4711-….newest.json       its newest checkpoint, for people
          chunks/                        pieces of state, named by their content

A commit is durable once its line is synced; its chunks, and the names of all files, are synced before. A writer names
the family that it changes in the lock file until everything is synced, or undone.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence

from holdfast.errors import DamagedData, HoldfastError, StorageError, StorageFailed
from holdfast.files.durable import AppendOutcomeUnknown, DurableDirectory, make_directory
from holdfast.files.os_files import translate_os_errors
from holdfast.model.commit import Commit, Outcome, Reason, Refused
from holdfast.model.rows import CheckpointRow, EffectRow, RunRow
from holdfast.store.checksum import next_epoch, verify_run
from holdfast.store.decide import Decision, decide, is_live
from holdfast.store.directory import paths
from holdfast.store.directory.change_codec import FetchChunks, Renderer, date_of
from holdfast.store.directory.directory_reads import DirectoryReads
from holdfast.store.directory.index import Family
from holdfast.store.directory.run_journal import RunJournal
from holdfast.store.folded_run import Change, FoldedRun, FoldedTransactionReads, change_of
from holdfast.store.journal_prune import ChooseEntries
from holdfast.store.packs import NewPack
from holdfast.store.port import Choose, Mark, ScanMark, Select, SweepResult


class _Reads(FoldedTransactionReads):
    """The reads of a decision about one run."""

    def __init__(self, store: DirectoryStore, folded: FoldedRun | None) -> None:
        self._store = store
        self._folded = folded

    def source(self, run_id: str) -> RunRow | None:
        return self._store.source(run_id)

    def new_run(self) -> int:
        return self._store.next_run()

    def _of(self, run: int) -> FoldedRun:
        assert self._folded is not None
        assert run == self._folded.row.run, "a commit is about one run"
        return self._folded


class DirectoryStore(DirectoryReads):
    """Runs in one directory."""

    # --- commits -----------------------------------------------------------------------------------------------------

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        if self._reserve is not None:
            self._reserve.check(commits)
        with self._exclusive("nothing was saved"):
            return [self._outcome(commit, alone=len(commits) == 1) for commit in commits]

    def _outcome(self, commit: Commit, *, alone: bool) -> Outcome:
        """Apply a commit or refuse it. A disk error in one of several commits is the outcome of that one."""
        try:
            with translate_os_errors(f"{self.path}: nothing was saved"):
                self._recover()
                return self._apply(commit)
        except Exception as error:
            if alone:
                raise
            # Other commits of the batch may be durable already, so this error must not apply to them.
            if isinstance(error, DamagedData):
                return Refused(Reason.DAMAGED, error=error)
            if not isinstance(error, HoldfastError):
                error = StorageFailed(f"{self.path}: nothing was saved ({error!r})")
            return Refused(Reason.FAILED, error=error)

    def _apply(self, commit: Commit) -> Outcome:
        file = self._index.find(commit.run_id)
        row = None
        if file is not None:
            try:
                row = verify_run(file.require_intact().row)
            except DamagedData as damage:
                return Refused(Reason.DAMAGED, file.visible_row(), error=damage)
        reads = _Reads(self, file.folded if file else None)
        made = decide(row, commit, self._clock.now_us(), self._clock.lease_time, reads)
        if isinstance(made, Refused):
            return made
        added = self._write(file, made, commit) if made.fresh else 0
        return made.outcome(added)

    def _write(self, file: RunJournal | None, made: Decision, commit: Commit) -> int:
        row = made.run
        family = self._index.family(row.family) or self._index.new_family(row.family, row.run_id)
        change = change_of(made, commit)
        with self._mark_changing(family):
            self._make_directories(family, chunks=bool(commit.chunks))
            added = paths.add_chunks(self._disk, family.chunks, commit.chunks, family.packs.names())
            if file is None:
                file = RunJournal(self._disk, family.number, family.path, paths.run_stem(row.run_id))
                file.create(change, self._renderer)
                self._index.add(family, file)
                if len(family.runs) == 1:
                    with contextlib.suppress(OSError):  # beside a journal it has no meaning
                        self._index.remove_leftovers(family)
            else:
                file.append(change, self._renderer)
        if any(not checkpoint.lane for checkpoint in change.checkpoints):
            self._write_preview(family, file)
        roots = [c.root for c in change.checkpoints] + [a.root for a in change.attachments]
        return added + sum(map(len, roots))

    def _make_directories(self, family: Family, *, chunks: bool) -> None:
        """Make the directories that a commit needs."""
        if not family.runs:
            make_directory(self._files, family.path)
            self._disk.touch(os.path.join(family.path, paths.PASSING))
        if chunks and self._files.identity(family.chunks) is None:
            make_directory(self._files, family.chunks)

    def _write_preview(self, family: Family, file: RunJournal) -> None:
        disk = self._disk
        write_preview(disk, file, self._renderer, lambda hashes: self._read_bodies(family, hashes))

    def _read_bodies(self, family: Family, hashes: list[bytes]) -> Mapping[bytes, bytes]:
        """The bodies of chunks, also of those in packs."""
        assert self._renderer is not None
        found = paths.read_chunks(self._disk, family.chunks, hashes)
        places, packs = family.packs.find([name for name in hashes if name not in found], ())
        ends = {n: max(place.start + place.size for place in places.values() if place.pack == n) for n in packs}
        plain = {number: self._renderer.beginning(body, ends[number]) for number, body in packs.items()}
        for name, (number, start, size) in places.items():
            found[name] = b"\x00" + plain[number][start : start + size]
        return found

    @contextlib.contextmanager
    def _mark_changing(self, family: Family) -> Iterator[None]:
        """Name the family in the lock file while it is changed; if the outcome is unknown, also after that."""
        self._lock.mark_writing(family.name)
        self._index.begin_generation(self._lock.note.generation)
        try:
            yield
        except OSError:  # the failed write was undone
            self._lock.clear_writing()
            raise
        except BaseException:
            self._index.forget()
            raise
        self._lock.clear_writing()

    def source(self, run_id: str) -> RunRow | None:
        """The row of a run that is to be forked."""
        file = self._index.find(run_id)
        return verify_run(file.require_intact().row) if file else None

    def next_run(self) -> int:
        """A number that no run ever had. It is stored before it is used."""
        path = os.path.join(self.path, paths.COUNTER)
        last = 0
        if self._files.identity(path) is not None:
            try:
                last = int(json.loads(self._files.read(path))["last_run"])
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise DamagedData(self._disk.relative(path), f"it cannot be read ({error!r})") from error
        self._index.runs()
        number = max(last, self._index.last_run()) + 1
        self._disk.put(path, json.dumps({"last_run": number}).encode() + b"\n")
        self._files.sync_directory(self.path)
        return number

    # --- the catalog -------------------------------------------------------------------------------------------------

    def publish(self, entries: Mapping[str, bytes]) -> None:
        with self._exclusive("not all workflows were published"):
            folder = os.path.join(self.path, paths.CATALOG)
            if self._files.identity(folder) is None:
                make_directory(self._files, folder)
            for name, body in entries.items():
                path = paths.catalog_path(self.path, name)
                if body:
                    self._disk.put(path, json.dumps(name).encode() + b"\n" + body)
                elif self._files.identity(path) is not None:
                    self._files.unlink(path)
            self._files.sync_directory(folder)

    # --- prune, sweep, delete ----------------------------------------------------------------------------------------

    def prune(self, run_id: str, choose: Choose, *, reopen: bool = False) -> list[CheckpointRow] | None:
        with self._exclusive("nothing was pruned"):
            file = self._index.find(run_id)
            if file is None:
                return None
            folded = file.require_intact()
            rows = folded.checkpoints
            gone = [rows[number] for number in choose(folded.rows(CheckpointRow), folded.rows(EffectRow))]
            if gone:
                family = self._index.family(folded.row.family)
                assert family is not None
                change, head = folded.without_checkpoints(gone, reopen=reopen), folded.row.head
                with self._mark_changing(family):
                    file.append(change, self._renderer)
                if change.run.head != head:
                    self._write_preview(family, file)
                self._compact(family, file)
            return gone

    def prune_entries(self, run_id: str, choose: ChooseEntries) -> int | None:
        with self._exclusive("nothing was pruned"):
            file = self._index.find(run_id)
            if file is None:
                return None
            folded = file.require_intact()
            verify_run(folded.row)
            change, removed = folded.without_entries(choose, self._clock.now_us())
            if change is not None:
                family = self._index.family(folded.row.family)
                assert family is not None
                with self._mark_changing(family):
                    file.append(change, self._renderer)
                self._compact(family, file)
            return removed

    def _compact(self, family: Family, file: RunJournal) -> None:
        """Write the file again without the pruned rows. If the disk is too full for that, the old file stays."""
        try:
            with self._mark_changing(family):
                file.rewrite(self._renderer)
                try:
                    self._files.sync_directory(family.path)
                except OSError as error:
                    raise AppendOutcomeUnknown(
                        f"{file.path}: the directory was not synced ({error}); a power cut may restore the old file"
                    ) from error
        except (OSError, StorageError):
            file.forget()

    def sweep(self, family: int, dead: set[bytes], seen: dict[int, ScanMark], mark: Mark) -> SweepResult:
        with self._exclusive("not all unreachable chunks were removed; prune again"):
            found = self._index.family(family)
            if found is None:
                return SweepResult(0, 0)
            found.packs.check()
            runs = [file.require_intact() for file in found.runs.values()]
            late = [root for run in runs for root in run.roots(seen.get(run.row.run, ScanMark()))]
            left = dead - mark(late)
            sizes = {name: size for name, size in paths.chunk_sizes(self._disk, found.chunks).items() if name in left}
            packed = left & found.packs.names()
            freed = 0
            if sizes or packed:
                with self._mark_changing(found):
                    for file in found.runs.values():
                        file.append(Change(next_epoch(file.require_intact().row)), self._renderer)
                    paths.remove_chunks(self._disk, found.chunks, sizes)
                    freed = found.packs.remove(packed)
            return SweepResult(len(sizes.keys() | packed), sum(sizes.values()) + freed)

    def pack(self, family: int, pack: NewPack) -> bool:
        with self._exclusive("nothing was packed"):
            found = self._index.family(family)
            names = {name for name, _ in pack.chunks}
            loose = names & paths.chunk_sizes(self._disk, found.chunks).keys() if found else set()
            if found is None or not found.runs or names - loose - found.packs.names():
                return False
            found.packs.check()
            with self._mark_changing(found):
                found.packs.add(pack)
                if loose:
                    paths.remove_chunks(self._disk, found.chunks, loose)
            return True

    def delete_run(
        self, run_id: str, seen: bytes | None = None, family: frozenset[int] | None = None
    ) -> RunRow | Refused | None:
        with self._exclusive("nothing was deleted"):
            file = self._index.find(run_id)
            if file is None:
                return None
            row = file.folded.row if file.folded is not None else file.require_intact().row
            if is_live(row, self._clock.lease_time):
                return Refused(Reason.CLAIMED, row)
            if seen is not None and row.commit_id != seen:
                return Refused(Reason.CHANGED, row)
            home = self._index.family(row.family)
            assert home is not None
            rows = [each.visible_row() for each in home.runs.values()]
            if family is not None and {each.run for each in rows if each is not None} - family:
                return Refused(Reason.CHANGED, row)
            with self._mark_changing(home):
                if len(home.runs) == 1:
                    self._disk.touch(os.path.join(home.path, paths.PASSING))
                    self._files.sync_directory(home.path)
                self._files.unlink(file.path)
                try:
                    self._files.sync_directory(home.path)
                except OSError as error:
                    raise AppendOutcomeUnknown(
                        f"{file.path}: the disk failed while deleting ({error}); "
                        "it is unknown whether the file was removed"
                    ) from error
                self._index.remove(home, file)
                with contextlib.suppress(OSError):  # the next process that opens the store removes what is left
                    self._index.remove_leftovers(home)
            return row


def write_preview(disk: DurableDirectory, file: RunJournal, renderer: Renderer | None, fetch: FetchChunks) -> None:
    """Write the newest checkpoint of the default lane; remove the file if there is none."""
    newest = file.require_intact().select(Select())
    if renderer is None:
        return
    if newest is None:
        with contextlib.suppress(OSError):  # it may not exist
            disk.files.unlink(file.newest_path)
        return
    with contextlib.suppress(Exception):  # a preview that cannot be written does not affect the checkpoint
        state = renderer.state(newest.root, fetch)
        content = {
            "run_id": file.require_intact().row.run_id,
            "checkpoint_id": newest.checkpoint_id,
            "number": newest.number,
            "step": newest.step,
            "status": newest.status,
            "next_node": newest.next_node,
            "covers": newest.covers,
            "saved_at": date_of(newest.created_us),
            "metadata": renderer.metadata(newest.metadata) or {},
            "state": "too large to be shown here" if state is None else state,
        }
        disk.put(file.newest_path, json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")

"""The directory store: runs as files that people can read, safe between processes and over power cuts.

    runs/
      holdfast.json                      what it is, and its version
      lock                               see lock.py
      last-run.json                      the last number given to a run
      tmp/                               what is being written
      owners/                            signs of life, see holdfast/store/owners.py
      families/
        00000001-order-4711/             a run and its forks
          order-4711-….journal           all that happened to a run, one line for each commit
          order-4711-….newest.json       its newest checkpoint, for people
          chunks/                        pieces of state, named by their content

A commit is durable once its line is synced; before that its chunks, and the names of all of them, are. Whoever changes
a family says so in the lock file first, and takes it back when everything is synced, or undone.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence

from holdfast.errors import DamagedData, HoldfastError, StorageError, StorageFailed
from holdfast.model import commit as why
from holdfast.model.commit import Commit, Committed, Outcome, Refused, Take
from holdfast.model.rows import CheckpointRow, RunRow
from holdfast.model.status import READY
from holdfast.store.decide import Decision, decide, is_live
from holdfast.store.directory.chunks import add_chunks, read_chunks, remove_chunks, sizes_of_chunks
from holdfast.store.directory.disk import Unclear
from holdfast.store.directory.files import translating
from holdfast.store.directory.names import COUNTER, PASSING, stem
from holdfast.store.directory.newest import show_newest
from holdfast.store.directory.reads import DirectoryReads
from holdfast.store.directory.runfile import RunFile
from holdfast.store.directory.tree import Family
from holdfast.store.folding import Change, FoldedLook, FoldedRun, change_of
from holdfast.store.port import Choose, Mark, Seen, Swept
from holdfast.store.pruning import ChooseEntries
from holdfast.store.seal import check_run, next_epoch


class _Look(FoldedLook):
    """Reads inside a commit, on the one run it is about."""

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
        if self._room is not None:
            self._room.check(commits)
        with self._inside("nothing was saved"):
            return [self._outcome(commit, alone=len(commits) == 1) for commit in commits]

    def _outcome(self, commit: Commit, *, alone: bool) -> Outcome:
        """Apply a commit or refuse it. What the disk does to one of several is told to that one."""
        try:
            with translating(f"{self.path}: nothing was saved"):
                self._settle()
                return self._one(commit)
        except Exception as error:
            if alone:
                raise
            # The others of the batch may be durable already, so this must not look as if none of them were.
            known = isinstance(error, HoldfastError)
            return Refused(
                why.DAMAGED, extra=error if known else StorageFailed(f"{self.path}: nothing was saved ({error!r})")
            )

    def _one(self, commit: Commit) -> Outcome:
        file = self._tree.find(commit.run_id)
        row = None
        if file is not None:
            try:
                row = check_run(file.checked().row)
            except DamagedData as damage:
                return Refused(why.DAMAGED, file.shown_row(), extra=damage)
        look = _Look(self, file.folded if file else None)
        made = decide(row, commit, self._clock.now_us(), self._clock.lease_time, look)
        if isinstance(made, Refused):
            return made
        added = self._write(file, made, commit) if made.fresh else 0
        return Committed(made.run, made.numbers, added, made.checkpoint_id, made.covers, made.step, made.fresh)

    def _write(self, file: RunFile | None, made: Decision, commit: Commit) -> int:
        row = made.run
        family = self._tree.family(row.family) or self._tree.new_family(row.family, row.run_id)
        change = change_of(made, commit)
        with self._changing(family):
            self._make(family, chunks=bool(commit.chunks))
            added = add_chunks(self._disk, family.chunks, commit.chunks)
            if file is None:
                file = RunFile(self._disk, family.number, family.path, stem(row.run_id))
                file.create(change, self._renderer)
                self._tree.add(family, file)
                if len(family.runs) == 1:
                    with contextlib.suppress(OSError):  # beside a journal it means nothing
                        self._tree.remove_leftovers(family)
            else:
                file.append(change, self._renderer)
        if any(not checkpoint.lane for checkpoint in change.checkpoints):
            self._show(family, file)
        roots = [c.root for c in change.checkpoints] + [a.root for a in change.attachments]
        return added + sum(map(len, roots))

    def _make(self, family: Family, *, chunks: bool) -> None:
        """Make the directories that a commit needs."""
        if not family.runs:
            self._disk.make_directory(family.path)
            self._disk.touch(os.path.join(family.path, PASSING))
        if chunks and self._files.identity(family.chunks) is None:
            self._disk.make_directory(family.chunks)

    def _show(self, family: Family, file: RunFile) -> None:
        show_newest(
            self._disk, file, self._renderer, lambda hashes: read_chunks(self._disk, family.chunks, hashes)
        )  # fmt: skip

    @contextlib.contextmanager
    def _changing(self, family: Family) -> Iterator[None]:
        """While it lasts, the lock file says that the family is being changed; if the end is unclear, also after it."""
        self._lock.mark(family.name)
        self._tree.changing(self._lock.note.generation)
        try:
            yield
        except OSError:  # whatever it was about has been taken back
            self._lock.clear()
            raise
        except BaseException:
            self._tree.forget()
            raise
        self._lock.clear()

    def source(self, run_id: str) -> RunRow | None:
        """The row of a run that is to be forked."""
        file = self._tree.find(run_id)
        return check_run(file.checked().row) if file else None

    def next_run(self) -> int:
        """A number that no run ever had. It is written down before it is used."""
        path = os.path.join(self.path, COUNTER)
        last = 0
        if self._files.identity(path) is not None:
            try:
                last = int(json.loads(self._files.read(path))["last_run"])
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise DamagedData(self._disk.relative(path), f"it cannot be read ({error!r})") from error
        self._tree.runs()
        number = max(last, self._tree.last_run()) + 1
        self._disk.put(path, json.dumps({"last_run": number}).encode() + b"\n")
        self._files.sync_directory(self.path)
        return number

    def claim_ready(self, takes: Sequence[Take], workflows: tuple[str, ...], commit_id: bytes) -> list[RunRow]:
        with self._inside():
            lease = self._clock.lease_time
            ready = [r.row for r in self._sound() if r.row.status == READY and not is_live(r.row, lease)]
            ready = [row for row in ready if not workflows or row.workflow in workflows]
            ready.sort(key=lambda row: (row.ready_us, row.run))
            taken: list[RunRow] = []
            for row, take in zip(ready, takes, strict=False):
                try:
                    outcome = self._outcome(Commit(row.run_id, commit_id, take=take), alone=True)
                except StorageError:
                    if not taken:
                        raise
                    break  # those that were taken must be told
                if isinstance(outcome, Committed):
                    taken.append(outcome.run)
            return taken

    # --- letting go --------------------------------------------------------------------------------------------------

    def prune(self, run_id: str, choose: Choose, *, reopen: bool = False) -> list[CheckpointRow] | None:
        with self._inside("nothing was pruned"):
            file = self._tree.find(run_id)
            if file is None:
                return None
            folded = file.checked()
            rows = folded.checkpoints
            effects = sorted(folded.effects.values(), key=lambda effect: effect.number)
            gone = [rows[number] for number in choose([rows[number] for number in sorted(rows)], effects)]
            if gone:
                family = self._tree.family(folded.row.family)
                assert family is not None
                change, head = folded.without_checkpoints(gone, reopen=reopen), folded.row.head
                with self._changing(family):
                    file.append(change, self._renderer)
                if change.run.head != head:
                    self._show(family, file)
                self._compact(family, file)
            return gone

    def prune_entries(self, run_id: str, choose: ChooseEntries) -> int | None:
        with self._inside("nothing was pruned"):
            file = self._tree.find(run_id)
            if file is None:
                return None
            folded = file.checked()
            check_run(folded.row)
            change, removed = folded.without_entries(choose, self._clock.now_us())
            if change is not None:
                family = self._tree.family(folded.row.family)
                assert family is not None
                with self._changing(family):
                    file.append(change, self._renderer)
                self._compact(family, file)
            return removed

    def _compact(self, family: Family, file: RunFile) -> None:
        """Write the file anew without what was pruned. If there is no room for that, it only stays longer."""
        try:
            with self._changing(family):
                file.rewrite(self._renderer)
                try:
                    self._files.sync_directory(family.path)
                except OSError as error:
                    raise Unclear(f"{file.path}: the new file may not be the one that is found ({error})") from error
        except (OSError, StorageError):
            file.forget()

    def sweep(self, family: int, dead: set[bytes], seen: dict[int, Seen], mark: Mark) -> Swept:
        with self._inside("not all that nobody needs was removed; prune again"):
            found = self._tree.family(family)
            if found is None:
                return Swept(0, 0)
            runs = [file.checked() for file in found.runs.values()]
            late = [root for run in runs for root in run.roots(seen.get(run.row.run, Seen()))]
            left = dead - mark(late)
            sizes = {name: size for name, size in sizes_of_chunks(self._disk, found.chunks).items() if name in left}
            if sizes:
                with self._changing(found):
                    for file in found.runs.values():
                        file.append(Change(next_epoch(file.checked().row)), self._renderer)
                    remove_chunks(self._disk, found.chunks, sizes)
            return Swept(len(sizes), sum(sizes.values()))

    def delete_run(
        self, run_id: str, seen: bytes | None = None, family: frozenset[int] | None = None
    ) -> RunRow | Refused | None:
        with self._inside("nothing was deleted"):
            file = self._tree.find(run_id)
            if file is None:
                return None
            row = file.folded.row if file.folded is not None else file.checked().row
            if is_live(row, self._clock.lease_time):
                return Refused(why.CLAIMED, row)
            if seen is not None and row.commit_id != seen:
                return Refused(why.CHANGED, row)
            home = self._tree.family(row.family)
            assert home is not None
            rows = [each.shown_row() for each in home.runs.values()]
            if family is not None and {each.run for each in rows if each is not None} - family:
                return Refused(why.CHANGED, row)
            with self._changing(home):
                if len(home.runs) == 1:
                    self._disk.touch(os.path.join(home.path, PASSING))
                    self._files.sync_directory(home.path)
                self._files.unlink(file.path)
                try:
                    self._files.sync_directory(home.path)
                except OSError as error:
                    raise Unclear(
                        f"{file.path}: the disk failed while deleting ({error}); whether it is gone is not known"
                    ) from error
                self._tree.remove(home, file)
                with contextlib.suppress(OSError):  # whoever opens the store next removes what is left
                    self._tree.remove_leftovers(home)
            return row

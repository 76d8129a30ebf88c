"""The port: the interface of every store. `holdfast.testing.contract` tests it.

A store keeps rows and bytes. Every method of the port blocks and is one atomic change or one read; none of them holds a
lock or a transaction when it returns. Only `commit` adds anything to a run. Everything that users call (save, claim,
answer, fork, …) is composed of these methods, once, in `holdfast.operations`.

What every store promises:

1. A commit is applied completely or not at all, and `Committed` is only returned once it is durable.
2. `decide` sees the run's row as of the commit; no other commit of that run is applied in between.
3. Commits given together may become durable together, but are independent: a refused one does not affect the others.
4. Reads see what was committed before they began. Numbers (positions, checkpoints, items) only grow and are not reused.
5. Leases are measured on one clock for all users of the store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal, NamedTuple, TypeVar

from holdfast.errors import StorageError
from holdfast.model.commit import Commit, Committed, Guard, Outcome, Refused, TakeClaim
from holdfast.model.rows import (
    READY,
    AttachmentRow,
    CheckpointRow,
    EffectRow,
    EntryRow,
    GateRow,
    ItemRow,
    MessageRow,
    Row,
    RunRow,
    TimerRow,
)
from holdfast.store.journal_prune import ChooseEntries
from holdfast.store.packs import NewPack, PackedChunks, Packs


class Select(NamedTuple):
    """Which checkpoint of a lane: the newest, or the newest that has what is given."""

    lane: str = ""
    checkpoint_id: str | None = None
    step: int | None = None
    at: int | None = None
    """Covers no more than this position."""
    before: int | None = None
    """Has a smaller number than this."""


class RunQuery(NamedTuple):
    """Which runs: newest first, those created before the run numbered `before`."""

    statuses: tuple[str, ...] = ()
    workflow: str | None = None
    tags: tuple[tuple[str, bytes], ...] = ()
    before: int | None = None
    limit: int = 50
    """-1 means all."""
    prefix: str = ""
    """How their ids begin, compared byte by byte."""
    family: int | None = None
    claimed: Literal["any", "expired"] | None = None
    """Only runs that have an owner, or only those whose lease has expired."""


class CheckpointQuery(NamedTuple):
    """Which checkpoints: newest first."""

    run_id: str | None = None
    """None: of all runs."""
    workflow: str | None = None
    lane: str | None = None
    """None: of all lanes."""
    checkpoint_id: str | None = None
    tags: tuple[tuple[str, bytes], ...] = ()
    """Metadata of the checkpoint: key and encoded value. All must match exactly."""
    before: tuple[int, int] | None = None
    """Only those after this place: (0, number) in one run, (created_us, run << 32 | number) in all."""
    by_id: tuple[str, int] | None = None
    """Largest id first, compared byte by byte, and of equal ids the newest; only those after this place:
    (id, number) in one run, (id, run << 32 | number) in all. (id, 0) means all smaller ids."""
    limit: int = 100
    """-1 means all."""


class Selected(NamedTuple):
    """A run and one of its checkpoints, with its attachments if they were asked for."""

    run: RunRow
    checkpoint: CheckpointRow | None
    attachments: list[AttachmentRow] = []  # noqa: RUF012 - read only


class RunRows(NamedTuple):
    """All rows of a run, in the order of their numbers or names. Its chunks are not among them."""

    run: RunRow
    checkpoints: list[CheckpointRow]
    entries: list[EntryRow]
    effects: list[EffectRow]
    attachments: list[AttachmentRow]
    gates: list[GateRow] = []  # noqa: RUF012 - read only
    items: list[ItemRow] = []  # noqa: RUF012 - read only
    """Including those that were taken."""
    timers: list[TimerRow] = []  # noqa: RUF012 - read only
    messages: list[MessageRow] = []  # noqa: RUF012 - read only
    """Those that are not known to be delivered."""


class ScanMark(NamedTuple):
    """How far the roots of a run were read."""

    serial: int = 0
    attached: int = 0
    rewrites: int = 0


class SweepResult(NamedTuple):
    """What a sweep removed."""

    chunks: int
    bytes: int


class RunCounts(NamedTuple):
    """How many runs there are of each status."""

    runs: dict[str, int]
    estimated: frozenset[str] = frozenset()
    """The terminal statuses whose numbers are estimates. All other numbers are exact."""


class Usage(NamedTuple):
    """What a store holds."""

    runs: RunCounts
    checkpoints: int
    entries: int
    effects: int
    attachments: int
    chunks: int
    chunk_bytes: int
    root_bytes: int
    file_bytes: int
    """On disk, with everything the store keeps besides its data; 0 where there is no disk."""
    is_estimated: bool = False
    """Whether the numbers between `runs` and `file_bytes` are estimates."""


Kind = TypeVar("Kind", bound=Row)
Key = int | str | tuple[str, str]

Choose = Callable[[list[CheckpointRow], list[EffectRow]], Iterable[int]]
"""Selects the checkpoints to remove, by number."""

Mark = Callable[[list[bytes]], set[bytes]]
"""Returns the hashes of all chunks that are reachable from these roots."""


class StorePort(ABC):
    """A store of runs: 18 methods to implement, and seven with defaults.

    `holdfast.store.capabilities` has what only some stores can do.
    """

    url: str
    """The URL it was opened with, for messages."""
    writers = 1
    """How many batches of commits the store applies at the same time, each with other runs (`group_commit.part_of`)."""

    # --- writes ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Apply each commit or refuse it; one outcome for each, in order. Durable together."""

    def claim_ready(self, takes: Sequence[TakeClaim], workflows: tuple[str, ...], commit_id: bytes) -> list[RunRow]:
        """Take ready runs, one for each take; only of these workflows, if any are given.

        Those of the highest priority are taken first, and of these the longest ready.

        This default reads all ready runs and takes each in a commit of its own; a large store has a better way.
        """
        ready = self.runs(RunQuery((READY,), limit=-1))
        claimed: list[RunRow] = []
        for row in sorted(ready, key=lambda row: (-row.priority, row.ready_us, row.run)):
            if len(claimed) == len(takes):
                break
            if workflows and row.workflow not in workflows:
                continue
            take = Commit(row.run_id, commit_id, Guard(commit_id=row.commit_id), take=takes[len(claimed)])
            try:
                [outcome] = self.commit([take])
            except StorageError:
                if not claimed:
                    raise
                break  # report the claims that were taken
            if isinstance(outcome, Committed):
                claimed.append(outcome.run)
        return claimed

    @abstractmethod
    def prune(self, run_id: str, choose: Choose, *, reopen: bool = False) -> list[CheckpointRow] | None:
        """Remove the checkpoints that `choose` picks, with their attachments; None if the run does not exist.

        `choose` gets all checkpoints (oldest first) and all effects inside the transaction, so a checkpoint that became
        needed in the meantime is not removed. A lane that loses its newest checkpoint goes back, in the same
        transaction, to the newest that remains on it, or to none; the run's row then gets a new commit id and keeps its
        `serial`. With `reopen`, a completed run whose default lane goes back becomes waiting, because its newest
        checkpoint may no longer be its end. The claim is not checked. `store.journal_prune` computes the heads.
        """

    @abstractmethod
    def prune_entries(self, run_id: str, choose: ChooseEntries) -> int | None:
        """Replace each range of journal entries that `choose` picks by one row; None if the run does not exist.

        `choose` gets the run's row and its checkpoints (oldest first) inside the transaction. Ranges that touch each
        other, or a range pruned earlier, become one. The claim is not checked; of the run's row only the commit id
        changes. Returns the number of entries removed. `holdfast.store.journal_prune` defines the rows.
        """

    @abstractmethod
    def sweep(self, family: int, dead: set[bytes], seen: dict[int, ScanMark], mark: Mark) -> SweepResult:
        """Remove the chunks `dead` of a family, except those that newer roots need.

        `seen` is what `roots` returned when the caller computed `dead`. Roots written since are given to `mark`, and
        the chunks it returns are kept. Every run of the family gets a new `gc_epoch`, so a writer that relies on a
        chunk it has not just written is refused and sends the chunk again. A pack keeps its bytes until it has no
        chunks left; only then, and for other chunks, bytes count as removed.
        """

    @abstractmethod
    def delete_run(
        self, run_id: str, seen: bytes | None = None, family: frozenset[int] | None = None
    ) -> RunRow | Refused | None:
        """Remove the run with all its rows, and the chunks of its family if it was the last member.

        Refused while the run is claimed, if `seen` is not the id of its last commit, and if a run whose number is not
        in `family` has joined the family. None: the run does not exist.
        """

    # --- runs --------------------------------------------------------------------------------------------------------

    def run(self, run_id: str) -> RunRow | None:
        """The run's row, as stored; the caller verifies its checksum."""
        found = self.checkpoint(run_id, Select())
        return found.run if found is not None else None

    @abstractmethod
    def runs(self, query: RunQuery) -> list[RunRow]:
        """Runs, newest first."""

    @abstractmethod
    def run_rows(self, run_id: str) -> RunRows | None:
        """The run with all its rows, of one moment, as stored; None if it does not exist."""

    # --- rows of one run ---------------------------------------------------------------------------------------------

    @abstractmethod
    def rows(
        self, kind: type[Kind], run: int, after: int = 0, limit: int = -1, keys: Collection[Key] | None = None
    ) -> list[Kind]:
        """Rows of one kind of one run, as stored, in their order; at most `limit`, -1 means all.

        | kind | order | selected by `keys` |
        |---|---|---|
        | CheckpointRow, MessageRow | number | |
        | ItemRow | number; only items that were not taken | |
        | EntryRow | position | position; a pruned entry is found by every position it covers |
        | EffectRow | number | key |
        | AttachmentRow | lane, checkpoint id, key | (lane, checkpoint id) |
        | GateRow | time of opening, name | name |
        | TimerRow | due time, name | |

        Of kinds that are ordered by a number or a position only those above `after` are returned.
        """

    @abstractmethod
    def checkpoint(self, run_id: str, select: Select, *, attachments: bool = False) -> Selected | None:
        """The run and one of its checkpoints, of one moment; None if the run does not exist."""

    # --- rows of several runs, each with its run ----------------------------------------------------------------------

    @abstractmethod
    def find_checkpoints(self, query: CheckpointQuery) -> list[tuple[RunRow, CheckpointRow]]:
        """Checkpoints with their runs, as stored, newest first: by number in one run, by date and number in all.

        With `by_id` they are in the order of ids. A search of one run reads only that run; a search of all runs may
        read all checkpoints.
        """

    @abstractmethod
    def family_effects(self, family: int, key: str) -> list[tuple[RunRow, EffectRow]]:
        """The effects with this key in the ledgers of all runs of a family, oldest run first."""

    @abstractmethod
    def gates(
        self, state: str | None, limit: int, after: tuple[int, int, str] | None = None
    ) -> list[tuple[RunRow, GateRow]]:
        """Gates of all runs in this state, or in any, the longest open first; a limit of -1 means all.

        They are ordered by time of opening, number of the run and name; only those above `after` are returned.
        """

    @abstractmethod
    def due(self, kind: type[Kind], limit: int) -> list[tuple[RunRow, Kind]]:
        """What needs action now, the longest overdue first; a limit of -1 means all.

        GateRow: open gates that have expired. TimerRow: timers whose time has come. MessageRow: outbox messages that
        are not known to be delivered, oldest first.
        """

    # --- chunks ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def chunks(self, family: int, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """The bodies of these chunks, without those that do not exist or are in packs.

        A chunk may move to a pack at any time, but never back: look for those that are missing with `packed`.
        """

    @abstractmethod
    def chunk_sizes(self, family: int) -> dict[bytes, int]:
        """The chunks of a family that are not in packs, with the sizes of their bodies; oldest first, if that is known.

        A chunk that was stored again while it moved to a pack may be in both.
        """

    def packed(self, family: int, hashes: Sequence[bytes], held: Collection[int] = ()) -> PackedChunks:  # noqa: ARG002
        """The places of these chunks in packs, and the bodies of the packs but for those `held`; of one moment.

        A number always means the same pack. This default is that of a store without packs.
        """
        return PackedChunks({}, {})

    def packs(self, family: int) -> Packs:  # noqa: ARG002
        """All packs of a family and their chunks, of one moment. This default is that of a store without packs."""
        return Packs({}, {})

    def pack(self, family: int, pack: NewPack) -> bool:  # noqa: ARG002
        """Store a pack, to which its chunks move from where they are, and remove packs that have no chunks left.

        The chunks keep their names, so writers may go on linking to them. False if one of the chunks does not exist:
        it was removed by a sweep, and nothing is changed. This default is that of a store without packs.
        """
        return False

    @abstractmethod
    def roots(self, family: int) -> tuple[list[bytes], dict[int, ScanMark]]:
        """All roots of a family, of checkpoints and attachments, and how far each run was read; of one moment."""

    # --- counts ------------------------------------------------------------------------------------------------------

    def count_runs(self, can_see: Callable[[str], bool] | None = None) -> RunCounts:
        """How many runs there are of each status, only of the workflows that `can_see` allows.

        Statuses that are not terminal are counted exactly. A store with many terminal runs may estimate their numbers.
        This default reads all runs.
        """
        rows = self.runs(RunQuery(limit=-1))
        return RunCounts(dict(Counter(row.status for row in rows if can_see is None or can_see(row.workflow))))

    def open_gates(self) -> int:
        """How many gates of all runs are open."""
        return len(self.gates("open", -1))

    # --- the store itself ---------------------------------------------------------------------------------------------

    @abstractmethod
    def usage(self) -> Usage:
        """What the store holds."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources. A second call does nothing."""

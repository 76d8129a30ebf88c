"""The port: what a store must be able to do. `holdfast.testing.contract` says the same as tests.

A store keeps rows and bytes. Every verb blocks and is one atomic change or one read; none of them holds a lock or a
transaction when it returns. `commit` is the only way anything is written to a run. Everything users call (save, claim,
answer, fork, …) is composed of these verbs, once, in `holdfast.verbs`.

What every store promises:

1. A commit is applied whole or not at all, and `Committed` is only returned once it is durable as the store names it.
2. `decide` sees the run's row as of the moment of the commit; no other commit of that run comes in between.
3. Commits given together may become durable together, but each stands for itself: one refused leaves the others be.
4. Reads see what was committed before they began. Numbers (positions, checkpoints, items) only grow and are not reused.
5. Leases are measured on one clock for all users of the store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from holdfast.model.commit import Commit, Outcome, Refused, Take
from holdfast.model.rows import (
    AttachmentRow,
    CheckpointRow,
    EffectRow,
    EntryRow,
    GateRow,
    ItemRow,
    MessageRow,
    RunRow,
    TimerRow,
)
from holdfast.store.pruning import ChooseEntries


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
    """Which runs: newest first, those made before the run numbered `before`."""

    statuses: tuple[str, ...] = ()
    workflow: str | None = None
    tags: tuple[tuple[str, bytes], ...] = ()
    before: int | None = None
    limit: int = 50
    prefix: str = ""
    """How their ids begin, compared byte by byte."""
    family: int | None = None


class CheckpointQuery(NamedTuple):
    """Which checkpoints: newest first."""

    run_id: str | None = None
    """None: of all runs."""
    workflow: str | None = None
    lane: str | None = None
    """None: of all lanes."""
    checkpoint_id: str | None = None
    tags: tuple[tuple[str, bytes], ...] = ()
    """Metadata of the checkpoint: key and encoded value. All must be there, compared exactly."""
    before: tuple[int, int] | None = None
    """Only those that come behind this place: (0, number) in one run, (created_us, run << 32 | number) in all."""
    by_id: tuple[str, int] | None = None
    """Largest id first, compared byte by byte, and of equal ids the newest; only those that come behind this place:
    (id, number) in one run, (id, run << 32 | number) in all. (id, 0) stands for all smaller ids."""
    limit: int = 100
    """-1 means all."""


class RunRows(NamedTuple):
    """All rows of a run, in the order of their numbers or names. Its chunks are not among them."""

    run: RunRow
    checkpoints: list[CheckpointRow]
    entries: list[EntryRow]
    effects: list[EffectRow]
    attachments: list[AttachmentRow]
    gates: list[GateRow] = []  # noqa: RUF012 - read only
    items: list[ItemRow] = []  # noqa: RUF012 - read only
    """Also those that were taken."""
    timers: list[TimerRow] = []  # noqa: RUF012 - read only
    messages: list[MessageRow] = []  # noqa: RUF012 - read only
    """Those that are not known to be delivered."""


class Seen(NamedTuple):
    """How much of a run somebody has looked at."""

    serial: int = 0
    attached: int = 0
    rewrites: int = 0


class Swept(NamedTuple):
    """What a sweep removed."""

    chunks: int
    bytes: int


class Usage(NamedTuple):
    """What a store holds."""

    runs: dict[str, int]
    """How many runs there are of each status."""
    checkpoints: int
    entries: int
    effects: int
    attachments: int
    chunks: int
    chunk_bytes: int
    root_bytes: int
    file_bytes: int
    """On disk, with everything the store keeps beside its data; 0 where there is no disk."""


class About(NamedTuple):
    """What a store stands on, found out without reading what it holds."""

    facts: dict[str, str]
    """Versions and settings by name, for people."""
    path: str | None = None
    """Where on this machine's disk it is; None if it is not."""
    bytes: int | None = None
    """How large it is, if that is quickly told."""
    clock_us: int | None = None
    """The time of the machine it is on, if that is another."""
    risks: tuple[str, ...] = ()
    """Settings with which something acknowledged can be lost."""


class Presence(Enum):
    """What an owner knows about itself: whether other processes may have declared it dead."""

    SURE = "sure"
    """Not yet, and not in this moment: it may begin an effect."""
    UNSURE = "unsure"
    """It may be about to happen: its connection was lost, or did not answer for a while."""
    LOST = "lost"
    """It was declared dead: its claims are forfeited, and it needs another name."""


_HELD_BATCH: Final = 1000

Choose = Callable[[list[CheckpointRow], list[EffectRow]], Iterable[int]]
"""Says which checkpoints, by number, are to go."""

Mark = Callable[[list[bytes]], set[bytes]]
"""Gives the hashes of all chunks these roots lead to."""


class StorePort(ABC):
    """A place where runs live."""

    url: str
    """What it was opened as, for messages."""

    # --- writing -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Apply each commit or refuse it; one outcome for each, in order. Durable together."""

    @abstractmethod
    def claim_ready(self, takes: Sequence[Take], workflows: tuple[str, ...], commit_id: bytes) -> list[RunRow]:
        """Take ready runs, longest ready first, one for each take; only of these workflows, if any are given."""

    @abstractmethod
    def prune(self, run_id: str, choose: Choose, *, reopen: bool = False) -> list[CheckpointRow] | None:
        """Remove the checkpoints that `choose` picks, with their attachments; None if the run is not there.

        `choose` sees all checkpoints (oldest first) and all effects as of this very change, so nothing that became
        worth keeping in the meantime is removed. A lane that loses its newest checkpoint goes back, in this change, to
        the newest that remains on it, or to none; then the run's row has another commit id, and its `serial` stays.
        With `reopen`, a completed run whose default lane goes back is waiting, in this change: what is the newest now
        may not be the end. Works while somebody holds the run. `holdfast.store.heads` says where heads go.
        """

    @abstractmethod
    def prune_entries(self, run_id: str, choose: ChooseEntries) -> int | None:
        """Remove the journal entries that `choose` picks and put one row in the place of each range of them.

        `choose` sees the run's row and its checkpoints (oldest first) as of this very change. Ranges that touch each
        other, or what was removed before, become one. Works while somebody holds the run: of its row only the commit
        id changes. Returns how many entries were removed; None if the run is not there. `holdfast.store.pruning` says
        what the rows are.
        """

    @abstractmethod
    def sweep(self, family: int, dead: set[bytes], seen: dict[int, Seen], mark: Mark) -> Swept:
        """Remove chunks nobody needs.

        `dead` are the family's chunks that no root led to when the caller looked, and `seen` is what it had looked at.
        Roots that came in since are given to `mark`, and what they lead to is spared. Every run of the family gets a
        new `gc_epoch`, so a writer that relies on a chunk it has not just written is refused and sends it again.
        """

    @abstractmethod
    def delete_run(
        self, run_id: str, seen: bytes | None = None, family: frozenset[int] | None = None
    ) -> RunRow | Refused | None:
        """Remove the run and all that is its own, and the family's chunks if it was the last of its family.

        Refused while somebody holds the run, if `seen` is not the id of its last commit (it was changed since the
        caller looked at it), and if a run that is not in `family` (their numbers) has joined. None: it is not there.
        """

    # --- reading -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def run(self, run_id: str) -> RunRow | None:
        """The run's row, as stored; whoever uses it checks its seal."""

    @abstractmethod
    def run_rows(self, run_id: str) -> RunRows | None:
        """The run with all its rows, of one moment, as stored; None if it is not there."""

    @abstractmethod
    def runs(self, query: RunQuery) -> list[RunRow]:
        """Runs, newest first."""

    @abstractmethod
    def checkpoint(self, run_id: str, select: Select) -> tuple[RunRow, CheckpointRow | None] | None:
        """The run and one of its checkpoints, of one moment; None if the run is not there."""

    def whole_checkpoint(
        self, run_id: str, select: Select
    ) -> tuple[RunRow, CheckpointRow | None, list[AttachmentRow]] | None:
        """Like `checkpoint`, with the checkpoint's attachments, all of one moment."""
        while True:
            found = self.checkpoint(run_id, select)
            if found is None or found[1] is None:
                return None if found is None else (found[0], None, [])
            attached = self.attachments_of(found[0].run, [(found[1].lane, found[1].checkpoint_id)])
            # A checkpoint goes together with its attachments: if it is still there, they were.
            if self.checkpoint(run_id, select) == found:
                return found[0], found[1], attached

    @abstractmethod
    def checkpoints(self, run: int, after: int, limit: int) -> list[CheckpointRow]:
        """Checkpoints numbered above `after`, oldest first; a limit of -1 means all."""

    @abstractmethod
    def find_checkpoints(self, query: CheckpointQuery) -> list[tuple[RunRow, CheckpointRow]]:
        """Checkpoints with their runs, as stored, newest first: by number in one run, by date and number in all.

        With `by_id` they come in the order of ids. The search of one run reads no other; a search of all runs may read
        through all checkpoints.
        """

    @abstractmethod
    def entries(self, run: int, after: int, limit: int) -> list[EntryRow]:
        """Journal entries behind position `after`, in order; a limit of -1 means all."""

    @abstractmethod
    def entry_at(self, run: int, position: int) -> EntryRow | None:
        """The journal entry that stands at `position` or, if it was pruned, for it: the last one up to there."""

    @abstractmethod
    def effects(self, run: int) -> list[EffectRow]:
        """The ledger, in the order in which the effects were first recorded."""

    @abstractmethod
    def effect(self, run: int, key: str) -> EffectRow | None:
        """One line of the ledger."""

    @abstractmethod
    def family_effects(self, family: int, key: str) -> list[tuple[RunRow, EffectRow]]:
        """The lines with this key in the ledgers of all runs of a family, oldest run first."""

    @abstractmethod
    def attachments(self, run: int, lane: str | None, checkpoint_id: str | None) -> list[AttachmentRow]:
        """Attachments by key; of one checkpoint, or with None all there are."""

    @abstractmethod
    def attachments_of(self, run: int, places: Sequence[tuple[str, str]]) -> list[AttachmentRow]:
        """The attachments of several checkpoints, given as lane and id, ordered by lane, checkpoint and key."""

    @abstractmethod
    def gates(self, run: int | None, state: str | None, limit: int) -> list[tuple[RunRow, GateRow]]:
        """Gates, longest open first, of one run or of all."""

    @abstractmethod
    def expired_gates(self, limit: int) -> list[tuple[RunRow, GateRow]]:
        """Open gates whose time has come, the longest overdue first."""

    @abstractmethod
    def timers(self, run: int) -> list[TimerRow]:
        """The run's timers, the next first."""

    @abstractmethod
    def due_timers(self, limit: int) -> list[tuple[RunRow, TimerRow]]:
        """Timers whose time has come, the longest overdue first."""

    @abstractmethod
    def expired_claims(self, limit: int) -> list[RunRow]:
        """Runs that have an owner who is gone."""

    @abstractmethod
    def held(self, limit: int, after: int = 0) -> list[RunRow]:
        """Runs that have an owner, gone or not, by number; those numbered above `after`."""

    @abstractmethod
    def inbox(self, run: int, after: int, limit: int) -> list[ItemRow]:
        """Items numbered above `after` that were not taken, oldest first."""

    @abstractmethod
    def outbox(self, limit: int) -> list[tuple[RunRow, MessageRow]]:
        """Messages that are not known to be delivered, of all runs, oldest first."""

    @abstractmethod
    def chunks(self, family: int, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """The bodies of these chunks, as far as they are there."""

    @abstractmethod
    def chunk_sizes(self, family: int) -> dict[bytes, int]:
        """The hashes of all chunks of a family, and how large their bodies are."""

    @abstractmethod
    def roots(self, family: int) -> tuple[list[bytes], dict[int, Seen]]:
        """All roots of a family, of checkpoints and attachments, and how much of each run they are; of one moment."""

    @abstractmethod
    def usage(self) -> Usage:
        """What the store holds."""

    @abstractmethod
    def check(self) -> list[str]:
        """What the machinery below (a database's own check) finds wrong."""

    def about(self) -> About:
        """Versions and settings of what is below. Quick, however much the store holds."""
        return About({})

    # --- life --------------------------------------------------------------------------------------------------------

    def announce(self, owner: str) -> None:  # noqa: B027 - a store that cannot do better does nothing
        """Give a sign of life as `owner`, which ends with this process, or with `close`. Nothing, if a store cannot."""

    def is_gone(self, owner: str) -> bool:  # noqa: ARG002
        """True: whoever announced itself as `owner` is certainly dead. False: it lives, or that is not known."""
        return False

    def gone_owners(self, owners: Collection[str]) -> set[str]:
        """Those of `owners` for which `is_gone` is true."""
        return {owner for owner in sorted(owners) if self.is_gone(owner)}

    def claims_of_dead(self) -> list[RunRow]:
        """All runs held by owners that are known to be dead. What other dead owners have left is removed.

        The rows are read before the owners are judged: a claim taken later, by a new process of the same name, has
        another fence.
        """
        held = self.all_held()
        owners = {row.owner for row in held}
        dead = self.gone_owners(owners)
        self.bury(owners)
        return [row for row in held if row.owner in dead]

    def all_held(self) -> list[RunRow]:
        """All runs that have an owner, by number."""
        held: list[RunRow] = []
        while rows := self.held(_HELD_BATCH, held[-1].run if held else 0):
            held += rows
        return held

    def presence(self, owner: str) -> Presence:  # noqa: ARG002
        """What is known here about an owner announced here, without I/O."""
        return Presence.SURE

    def confirm(self, owner: str) -> Presence:
        """Make sure that `owner` is not declared dead: SURE or LOST, or a StorageError if that cannot be found out."""
        return self.presence(owner)

    def register_worker(self, owner: str, workflows: Sequence[str], lease_us: int) -> None:  # noqa: B027
        """Let others know which workflows the announced `owner` executes, for `lease_us` at least. None: it stopped."""

    def workers(self) -> dict[str, tuple[str, ...]] | None:
        """The workflows of each living worker; None if the store cannot tell."""
        return None

    def bury(self, holding: Collection[str]) -> None:  # noqa: B027
        """Remove what owners who are gone have left, except of those who still are `holding` something."""

    @abstractmethod
    def close(self) -> None:
        """Give back what the store holds. Closing twice is no mistake."""

"""The rows that stores keep, and the statuses of runs. Only `operations` decodes them.

Every row with user data has a `seal`: a checksum over all its other fields and the run's incarnation, so that damage
anywhere in it is detected. `store/checksum.py` computes it; docs/formats.md describes where it is stored.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.errors import InvalidInput


class Row(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Base of all rows: immutable, compared by value, encoded as an array of its fields."""


class RunRow(Row, frozen=True):
    """A run: its identity, progress and claim."""

    run: int
    """The number that the store gave the run; never used twice."""
    run_id: str
    family: int
    incarnation: bytes
    workflow: str
    status: str
    metadata: bytes
    origin: bytes
    """The source of a fork, encoded; empty for other runs."""
    created_us: int
    updated_us: int
    position: int
    """The last journal position."""
    serial: int
    """The number of the newest checkpoint ever saved."""
    head: int
    """The number of the newest checkpoint on the default lane, 0 if none."""
    head_id: str
    step: int
    """The step of `head`."""
    effects: int
    """How many effects the ledger has ever had."""
    attached: int
    """The number of the newest attachment; an attachment that is replaced gets a new number."""
    rewrites: int
    """How often a checkpoint was replaced."""
    inbox: int
    """The number of the newest inbox item."""
    outbox: int
    """The number of the newest outbox item."""
    fence: int
    owner: str
    """Empty if the run is not claimed."""
    nonce: bytes
    lease_us: int
    boot: str
    gc_epoch: int
    ready_us: int
    """When the run became ready, which orders the queue of workers; 0 if it is not ready."""
    commit_id: bytes
    """The id of the last commit; every change of the row changes it."""
    seal: int = 0
    limit_key: str = ""
    """Claimed runs with the same key are limited together; empty if the run is not limited."""
    thread: str = ""
    """The thread to which the run belongs; empty if none."""
    priority: int = 0
    """Ready runs of a higher priority are claimed first."""
    crashes: int = 0
    """How many processes have died while they executed the run."""


def column_types(row: type[Row]) -> dict[str, type]:
    """The type of each field of a row, in their order; that of an optional field without None.

    The annotations are text: to evaluate them takes longer than to open a store.
    """
    texts = _annotations(row)
    return {name: _TYPES[texts[name].removesuffix(" | None")] for name in row.__struct_fields__}


def empty_fields(row: type[Row]) -> dict[str, object]:
    """The empty value of each field of a row: None if it is optional, else that of its type."""
    texts = _annotations(row)
    return {name: None if texts[name].endswith(" | None") else kind() for name, kind in column_types(row).items()}


def _annotations(row: type[Row]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for kind in reversed(row.__mro__):
        texts |= vars(kind).get("__annotations__", {})
    return texts


_TYPES: Final = {"int": int, "str": str, "bytes": bytes, "bool": bool}

NO_RUN: Final = RunRow(*(kind() for kind in column_types(RunRow).values()))
"""A row whose fields are all empty."""


class CheckpointRow(Row, frozen=True):
    """A checkpoint. `root` is the state, or the root of its tree of chunks."""

    number: int
    lane: str
    checkpoint_id: str
    named: bool
    """Whether a caller chose the id. A store's own ids start with the number, so they are found without an index."""
    parent_id: str | None
    step: int
    next_node: str | None
    covers: int
    status: str
    metadata: bytes
    created_us: int
    root: bytes
    seal: int = 0


class LaneRow(Row, frozen=True):
    """The head of a lane other than the default one."""

    lane: str
    head: int
    head_id: str
    step: int


class EntryRow(Row, frozen=True):
    """A journal entry."""

    position: int
    kind: str
    created_us: int
    commit_id: bytes
    body: bytes
    seal: int = 0


class EffectRow(Row, frozen=True):
    """A line of the ledger of side effects."""

    number: int
    key: str
    state: str
    """`intent` (in doubt), `done`, `failed` or `undone`."""
    tool: str
    target: str | None
    reversible: bool
    after_checkpoint: int
    """The newest checkpoint when the effect was first recorded."""
    after_position: int
    created_us: int
    updated_us: int
    commit_id: bytes
    """The commit that last changed the row."""
    body: bytes
    """The result, encoded; empty if there is none yet."""
    call: bytes
    """The arguments and the compensation, encoded; empty if they were not given. Stores do not decode it."""
    seal: int = 0


class AttachmentRow(Row, frozen=True):
    """A value attached to a checkpoint, which may not be saved yet."""

    number: int
    lane: str
    checkpoint_id: str
    key: str
    created_us: int
    root: bytes
    seal: int = 0


class GateRow(Row, frozen=True):
    """A point at which the run waits for an answer."""

    gate: str
    state: str
    """`open`, `answered`, `expired` or `closed`."""
    opened_us: int
    expires_us: int | None
    answered_us: int | None
    answered_by: str | None
    body: bytes
    seal: int = 0


class ItemRow(Row, frozen=True):
    """An inbox item. A taken item stays, without its body, so that its key is not accepted again."""

    number: int
    kind: str
    name: str
    key: str
    by: str
    created_us: int
    taken: bool
    body: bytes
    seal: int = 0


class MessageRow(Row, frozen=True):
    """An outbox message, which is delivered to another run's inbox at least once."""

    number: int
    target: str
    kind: str
    name: str
    key: str
    created_us: int
    body: bytes
    seal: int = 0


BEGIN: Final = "begin"
"""The timer of a run that begins at a later time."""


class TimerRow(Row, frozen=True):
    """A time at which the run is woken."""

    timer: str
    due_us: int


class ChunkRow(Row, frozen=True):
    """A piece of state, shared within a family; `hash` is that of its uncompressed content."""

    hash: bytes
    body: bytes


# The statuses of a run.

READY: Final = "ready"
RUNNING: Final = "running"
WAITING: Final = "waiting"
PAUSED: Final = "paused"
ROLLING_BACK: Final = "rolling_back"
COMPLETED: Final = "completed"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"

TERMINAL: Final = frozenset({COMPLETED, FAILED, CANCELLED})
AT_WORK: Final = frozenset({RUNNING, ROLLING_BACK})
"""A process executes the run. When its claim ends, the run becomes ready, so that a worker takes it over."""
STATUSES: Final = frozenset({READY, RUNNING, WAITING, PAUSED, ROLLING_BACK}) | TERMINAL


def check_status(value: object) -> str:
    """Return `value` if it is a status, else raise InvalidInput listing them."""
    if type(value) is str and value in STATUSES:
        return value
    raise InvalidInput(f"status {value!r} is not one of {', '.join(sorted(STATUSES))}")

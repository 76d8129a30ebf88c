"""Threads of LangGraph, read without LangGraph: channel values, next nodes, open interrupts.

`adapters.langgraph.record_codec` describes the stored format. No class is imported and nothing stored is executed.

A value is stored as MessagePack bytes, whole or in pieces, in which objects are extensions with a module, a name and
arguments. Objects are shown as `{"$type": name, field: value, …}`, common types of Python's library as
`holdfast.state.json_preview` shows them, and unreadable or too deeply nested parts as `{"$unreadable": description}`.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import ormsgpack

from holdfast.errors import CheckpointNotFound, DamagedData
from holdfast.forms.form import Form
from holdfast.limits import DEPTH_MAX, RUNS_PAGE_MAX
from holdfast.model.rows import STATUSES, TERMINAL, AttachmentRow, CheckpointRow, RunRow
from holdfast.model.views import CheckpointInfo, GateInfo
from holdfast.operations.context import StoreContext
from holdfast.operations.read import find_checkpoint, retry_if_changed
from holdfast.operations.store_reads import StoreReads
from holdfast.operations.views import checked_checkpoint, checkpoint_place, metadata_dict, moment
from holdfast.state.json_preview import to_jsonable
from holdfast.state.rope import decode
from holdfast.store.checksum import verify_checksum, verify_run
from holdfast.store.port import RunQuery, Select

PIECES_DEPTH_MAX: Final = 64
"""How deep pieces and extensions may be nested."""
_POSITIONAL, _NUMPY, _SNAPSHOT = 1, 6, 7
"""Codes of LangGraph's extensions; those below 6 contain a module, a name and arguments."""
_OWN: Final = ("langchain_core.", "langgraph.")
"""Modules whose types are shown without the module."""
_MESSAGES: Final = "langchain_core.messages"

Data = dict[str, Any]


def readable_value(value: object) -> object:
    """Convert a stored value to plain data."""
    try:
        return _plain(_piece(value, 0), 0)
    except RecursionError:
        return _unreadable("too deeply nested")


def _piece(value: object, depth: int) -> object:
    if depth > PIECES_DEPTH_MAX:
        return _unreadable("too deeply nested")
    if isinstance(value, bytes):
        return _unpack(value, depth)
    if isinstance(value, list):
        return [_piece(part, depth + 1) for part in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("m"), dict):
        return {str(key): _piece(part, depth + 1) for key, part in value["m"].items()}
    if type(value.get("x")) is int:
        return _extension(value["x"], _piece(value.get("d"), depth + 1))
    return _other_format(value.get("t"), value.get("d"))


def _other_format(kind: object, body: object) -> object:
    """Convert a value that a serializer wrote in another format than MessagePack."""
    size = len(body) if isinstance(body, bytes) else 0
    if kind == "json" and isinstance(body, bytes):
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            return _unreadable(f"damaged JSON of {size} bytes")
    return body if kind in ("bytes", "bytearray") else _unreadable(f"{kind} of {size} bytes")


def _unpack(body: bytes, depth: int) -> object:
    def hook(code: int, data: bytes) -> object:
        return _extension(code, _unpack(bytes(data), depth + 1))

    if depth > PIECES_DEPTH_MAX:
        return _unreadable("too deeply nested")
    try:
        return ormsgpack.unpackb(body, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)
    except ValueError:
        return _unreadable(f"damaged MessagePack of {len(body)} bytes")


def _plain(value: object, depth: int) -> object:
    """Convert to JSON data and bytes: text is valid Unicode, keys are text, floats finite, depth is bounded."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return to_jsonable(value)
    if not isinstance(value, (dict, list, tuple)):
        return value
    if depth >= DEPTH_MAX:
        return _unreadable("too deeply nested")
    if isinstance(value, dict):
        return {_text(str(key)): _plain(part, depth + 1) for key, part in value.items()}
    return [_plain(part, depth + 1) for part in value]


def _text(value: str) -> str:
    """Escape unpaired surrogates, which JSON can express and UTF-8 cannot."""
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()


def _unreadable(what: str) -> dict[str, str]:
    return {"$unreadable": what}


def _extension(code: int, inside: object) -> object:
    if code == _SNAPSHOT:
        return inside
    if not isinstance(inside, list) or len(inside) < 3 or not 0 <= code <= _NUMPY:
        return _unreadable(f"an extension of code {code}")
    module, name, given = inside[:3]
    if code == _NUMPY:
        return {"$ndarray": {"dtype": module, "shape": name}}
    if not isinstance(module, str) or not isinstance(name, str):
        return _unreadable(f"an extension of code {code}")
    known = _KNOWN.get(f"{module}.{name}")
    if known is not None:
        try:
            return {f"${name.lower()}": known(given)}
        except (TypeError, ValueError, OverflowError):
            return _unreadable(f"{module}.{name}")
    return _object(module, name, given, is_call=code == _POSITIONAL)


def _object(module: str, name: str, given: object, *, is_call: bool) -> object:
    type_name = name if module.startswith(_OWN) else f"{module}.{name}"
    if isinstance(given, dict):
        return {"$type": type_name, **(_describe_message(given) if module.startswith(_MESSAGES) else given)}
    if module == "pydantic.types" and name.startswith("Secret"):
        return {"$type": type_name}
    if module == "langgraph.types" and name == "Send" and isinstance(given, list) and len(given) > 1:
        return {"$type": type_name, "node": given[0], "arg": given[1]}
    if module.startswith("pathlib") and isinstance(given, list):
        return {"$path": "/".join(map(str, given)).replace("//", "/", 1)}
    return {"$type": type_name, "args" if is_call else "value": given}


def _describe_message(message: Data) -> Data:
    """Return the fields of a message without its type, which is shown already, and without empty ones."""
    empty: tuple[object, ...] = (None, False, "", [], {})
    return {key: part for key, part in message.items() if key == "content" or (key != "type" and part not in empty)}


def _timedelta(given: Any) -> str:
    days, seconds, microseconds = given
    return str(dt.timedelta(days, seconds, microseconds))


def _same(given: object) -> object:
    return given


def _date(given: Any) -> str:
    return dt.date(*given).isoformat()


def _uuid(given: Any) -> str:
    return "-".join((given[:8], given[8:12], given[12:16], given[16:20], given[20:]))


_KNOWN: Final[dict[str, Callable[[Any], object]]] = {
    "builtins.set": _same,
    "builtins.frozenset": _same,
    "collections.deque": _same,
    "decimal.Decimal": _same,
    "datetime.datetime": _same,
    "datetime.date": _date,
    "datetime.timedelta": _timedelta,
    "uuid.UUID": _uuid,
}
"""Types of Python's library, with the conversion of their arguments."""

# --- delta channels --------------------------------------------------------------------------------------------------

ANCESTORS_MAX: Final = 2_000
_FOLD: Final = "delta"
Read = Callable[[bytes, str], object]
"""Decodes the value of a root; the text names its place for errors."""


def delta_values(core: StoreContext, run: RunRow, row: CheckpointRow, channels: list[str], read: Read) -> Data:
    """Return the channels, each as `{"$delta": {"from": value, "writes": [value, …]}}`, oldest write first."""
    found: dict[str, Data] = {channel: {"from": None, "writes": []} for channel in channels}
    left, at, missing = set(channels), row, ""
    for _ in range(ANCESTORS_MAX):
        fold = _fold(core, run, at, read)
        if fold is not None:
            for channel in left:
                _prepend(found[channel], fold.get(channel))
            left = set()
        if not left or not at.parent_id:
            break
        parent = core.port.checkpoint(run.run_id, Select(at.lane, at.parent_id))
        if parent is None or parent[1] is None:
            missing = at.parent_id
            break
        at = parent[1]
        _add_writes(core, run, at, found, left, read)
        values = _values(read(at.root, f"checkpoint {at.checkpoint_id!r} of thread {run.run_id!r}"))
        for channel in left & values.keys():
            found[channel]["from"] = readable_value(values[channel])
        left -= values.keys()
    for channel in left if missing else ():
        found[channel]["missing"] = missing
    return {channel: {"$delta": facts} for channel, facts in found.items()}


def _add_writes(
    core: StoreContext, run: RunRow, row: CheckpointRow, found: dict[str, Data], left: set[str], read: Read
) -> None:
    """Insert the writes attached to a checkpoint before later ones."""
    writes: dict[str, list[tuple[str, str, int, object]]] = {channel: [] for channel in left}
    for attached in core.port.rows(AttachmentRow, run.run, keys=[(row.lane, row.checkpoint_id)]):
        value = read(attached.root, _place(run, attached)) if attached.key.startswith("w") else None
        listed = value.get("w") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(listed, list):
            continue
        for one in listed[1:]:
            idx, channel = one if isinstance(one, list) and len(one) == 2 else (None, None)
            if type(idx) is int and isinstance(channel, str) and channel in writes:
                writes[channel].append((str(listed[0]), attached.key, idx, value.get(str(idx))))
    for channel, written in writes.items():
        written.sort(key=lambda write: write[:3])
        found[channel]["writes"][:0] = [readable_value(write[3]) for write in written]


def _fold(core: StoreContext, run: RunRow, row: CheckpointRow, read: Read) -> Data | None:
    """Return the fold of a checkpoint, which replaces its removed ancestors."""
    for attached in core.port.rows(AttachmentRow, run.run, keys=[(row.lane, row.checkpoint_id)]):
        if attached.key == _FOLD:
            value = read(attached.root, _place(run, attached))
            return value if isinstance(value, dict) else {}
    return None


def _prepend(facts: Data, folded: object) -> None:
    if isinstance(folded, dict):
        writes = folded.get("writes")
        pairs = [one for one in writes if isinstance(one, list) and len(one) == 2] if isinstance(writes, list) else []
        facts["writes"][:0] = [readable_value(value) for _, value in pairs]
        facts["from"] = readable_value(folded.get("seed"))


def _values(record: object) -> Data:
    found = record.get("values") if isinstance(record, dict) else None
    return found if isinstance(found, dict) else {}


def _place(run: RunRow, row: AttachmentRow) -> str:
    return f"attachment {row.key!r} of checkpoint {row.checkpoint_id!r} in thread {run.run_id!r}"


# --- states and interrupts -------------------------------------------------------------------------------------------

THREADS: Final = "langgraph"
"""The workflow of the runs that are threads."""
INTERRUPT: Final = "interrupt"
"""The purpose of a gate that is an interrupt of a thread."""
DRIVEN_BY: Final = "holdfast_run"
"""The metadata of a thread that a run executes. Its interrupts are gates of that run."""
_INTERRUPT_KEY: Final = "s3:"
_TRIGGER: Final = "branch:to:"
_START: Final = "__start__"
_SENDS: Final = "__pregel_tasks"


def _is_internal(channel: str) -> bool:
    return channel in (_START, _SENDS) or channel.startswith((_TRIGGER, "join:"))


def thread_state(store: StoreReads, run_id: str, info: CheckpointInfo) -> object:
    """Return the state of a checkpoint of a thread, as plain data.

    Example:
        thread_state(store, "thread-1", store.history("thread-1")[0])
    """
    core = store.access.core

    def read() -> object:
        found = find_checkpoint(core, run_id, Select(info.lane, info.checkpoint_id))
        if found is None:
            raise CheckpointNotFound(run_id, repr(info.checkpoint_id))
        return stored_state(core, *found)

    return retry_if_changed(core, run_id, read)


def stored_state(core: StoreContext, run: RunRow, row: CheckpointRow) -> object:
    """Return the values of the channels, as plain data, without those that only trigger nodes."""
    record = _decode(core, run, row.root, checkpoint_place(run.run_id, row))
    if not isinstance(record, dict) or not isinstance(record.get("values"), dict):
        return record
    found = {channel: readable_value(value) for channel, value in record["values"].items() if not _is_internal(channel)}
    delta = [channel for channel in record.get("delta") or () if isinstance(channel, str) and channel not in found]
    if delta:
        found |= delta_values(core, run, row, delta, lambda root, place: _decode(core, run, root, place))
    return found


def next_nodes(core: StoreContext, run: RunRow) -> list[str]:
    """Return the nodes that the newest root checkpoint of a thread triggers, as far as its channels name them."""
    found = core.port.checkpoint(run.run_id, Select())
    if found is None or found[1] is None:
        return []
    row = checked_checkpoint(run, found[1])
    record = _decode(core, run, row.root, checkpoint_place(run.run_id, row))
    values = record.get("values") if isinstance(record, dict) else None
    if not isinstance(values, dict):
        return []
    sends = readable_value(values[_SENDS]) if _SENDS in values else []
    sent = [send.get("node") for send in sends if isinstance(send, dict)] if isinstance(sends, list) else []
    nodes = [channel.removeprefix(_TRIGGER) for channel in values if channel.startswith(_TRIGGER)]
    return list(dict.fromkeys([*nodes, *(node for node in sent if isinstance(node, str))]))


def waiting_threads(store: StoreReads) -> Iterator[RunRow]:
    """Iterate over the threads that have not ended."""
    query = RunQuery(statuses=tuple(STATUSES - TERMINAL), workflow=THREADS, limit=RUNS_PAGE_MAX)
    while True:
        rows = store.access.core.port.runs(query)
        yield from rows
        if len(rows) < RUNS_PAGE_MAX:
            return
        query = query._replace(before=rows[-1].run)


def open_interrupts(core: StoreContext, run: RunRow) -> list[GateInfo]:
    """Return the open interrupts of a thread as gates: those attached to its newest root checkpoint."""
    return retry_if_changed(core, run.run_id, lambda: _open_interrupts(core, run.run_id))


def readable_interrupts(core: StoreContext, run: RunRow) -> list[GateInfo]:
    """Like `open_interrupts`; a damaged thread has one interrupt that reports the damage."""
    try:
        return open_interrupts(core, run)
    except DamagedData as error:
        return [_interrupt(run, "unreadable", f"damaged: {error}", run.updated_us)]


def _open_interrupts(core: StoreContext, thread_id: str) -> list[GateInfo]:
    whole = core.port.checkpoint(thread_id, Select(), attachments=True)
    if whole is None or whole[1] is None or whole[0].status in TERMINAL:
        return []
    current, row, attached = whole[0], whole[1], whole[2]
    if row.metadata and DRIVEN_BY in metadata_dict(row.metadata, checkpoint_place(thread_id, row)):
        return []
    done = {row.key.partition(":")[2] for row in attached if row.key.startswith("w")}
    return [
        gate
        for row in sorted(attached, key=lambda row: row.number)
        if row.key.startswith(_INTERRUPT_KEY) and row.key.partition(":")[2] not in done
        for gate in _interrupts(core, verify_run(current), row)
    ]


def _interrupts(core: StoreContext, run: RunRow, row: AttachmentRow) -> Iterator[GateInfo]:
    """The interrupts in the write of one task."""
    verify_checksum(row, run.incarnation, _place(run, row))
    write = _decode(core, run, row.root, _place(run, row))
    value = readable_value(write.get("-3")) if isinstance(write, dict) else None
    for number, one in enumerate(value if isinstance(value, list) else [value]):
        facts = one if isinstance(one, dict) and one.get("$type") == "Interrupt" else {"value": one}
        name = str(facts.get("id") or f"{row.key.partition(':')[2]}.{number}")
        yield _interrupt(run, name, facts.get("value"), row.created_us)


def _interrupt(run: RunRow, name: str, value: object, opened_us: int) -> GateInfo:
    return GateInfo(
        run_id=run.run_id,
        workflow=run.workflow,
        gate=name,
        state="open",
        prompt=_prompt(value),
        form=Form(()),
        show=None if isinstance(value, str) else value,
        who=(),
        purpose=INTERRUPT,
        opened_at=moment(opened_us),
        expires_at=None,
        answered_at=None,
        answered_by=None,
    )


def _prompt(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _decode(core: StoreContext, run: RunRow, root: bytes, place: str) -> object:
    return decode(root, core.fetch(run.family), place)[0]

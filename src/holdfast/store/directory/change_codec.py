"""The codec of changes: one journal line as rows and as JSON.

    {"sum": …, "n": 12, "at": "2026-01-01T00:00:00+00:00", "run": {the fields of the run's row that changed},
     "checkpoints": [{row}, …], "entries": […], "effects": […], …, "drop_timers": ["name", …], "pruned": [3, 4]}

The first line of a file also has `"format"` and `"version"`, and all fields of the run's row. A row is an object with
the fields of docs/formats.md under their names, without those that are empty; bytes are base64. The bytes of a small
value are accompanied by `"shows"`, the same value for people, and an effect's `call` by `"shows_call"`; like `"at"`
they are never read back.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from holdfast.errors import DamagedData, UnsupportedFormat
from holdfast.model.rows import (
    NO_RUN,
    AttachmentRow,
    CheckpointRow,
    EffectRow,
    EntryRow,
    GateRow,
    ItemRow,
    LaneRow,
    MessageRow,
    Row,
    RunRow,
    TimerRow,
    empty_fields,
)
from holdfast.store.folded_run import Change
from holdfast.store.port import Kind

FORMAT: Final = "holdfast journal"
VERSION: Final = 1
_DEPTH_MAX: Final = 50
_BITS_MAX: Final = 4096


FetchChunks = Callable[[list[bytes]], Mapping[bytes, bytes]]
Line = dict[str, Any]
"""The content of a journal line, or of one of its rows."""


class Renderer(Protocol):
    """Renders stored bytes as values that JSON can express; None if it cannot."""

    def body(self, body: bytes) -> object | None:
        """A small value: a journal entry, a result, an item."""
        ...

    def root(self, root: bytes) -> object | None:
        """A state that is small enough to be stored in its root."""
        ...

    def metadata(self, data: bytes) -> object | None:
        """Metadata."""
        ...

    def beginning(self, body: bytes, size: int) -> bytes:
        """The first plain bytes of a pack."""
        ...

    def state(self, root: bytes, fetch: FetchChunks) -> object | None:
        """A state of any size; `fetch` returns the bodies of chunks by hash."""
        ...


ROWS: Final[dict[str, type[Row]]] = {
    "checkpoints": CheckpointRow,
    "lanes": LaneRow,
    "entries": EntryRow,
    "effects": EffectRow,
    "attachments": AttachmentRow,
    "gates": GateRow,
    "items": ItemRow,
    "messages": MessageRow,
    "timers": TimerRow,
}
_EMPTY: Final = {kind: empty_fields(kind) for kind in ROWS.values()}
_LATER: Final = frozenset({"limit_key", "thread", "priority", "crashes"})
"""Fields of a run that journals of earlier versions do not have."""
_LISTS: Final = {"drop_timers": list[str], "sent": list[int], "pruned": list[int]}


def write_change(change: Change, before: RunRow | None, renderer: Renderer | None) -> Line:
    """The content of a line for a change; `before` is the run's row according to the lines so far."""
    content: Line = {"format": FORMAT, "version": VERSION} if before is None else {}
    content["at"] = date_of(change.run.updated_us)
    content["run"] = {
        name: getattr(change.run, name)
        for name in RunRow.__struct_fields__
        if before is None or getattr(before, name) != getattr(change.run, name)
    }
    if renderer is not None and "metadata" in content["run"]:
        _show(content["run"], renderer.metadata(change.run.metadata))
    for key in ROWS:
        rows = getattr(change, key)
        if rows:
            content[key] = [_write_row(row, renderer) for row in rows]
    for key in _LISTS:
        values = getattr(change, key)
        if values:
            content[key] = list(values)
    return content


def date_of(time_us: int) -> str:
    """A time for people; empty if it is not a valid date."""
    try:
        return dt.datetime.fromtimestamp(time_us // 1_000_000, dt.UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return ""


def _write_row(row: Row, renderer: Renderer | None) -> Line:
    written: Line = {name: value for name, empty in _EMPTY[type(row)].items() if (value := getattr(row, name)) != empty}
    if renderer is not None:
        if isinstance(row, (CheckpointRow, AttachmentRow)):
            _show(written, renderer.root(row.root))
        elif isinstance(row, (EntryRow, EffectRow, GateRow, ItemRow, MessageRow)):
            _show(written, renderer.body(row.body))
        if isinstance(row, EffectRow):
            _show(written, renderer.body(row.call), "shows_call")
    return written


def _show(written: Line, shown: object | None, name: str = "shows") -> None:
    if shown is not None and _is_plain(shown):
        written[name] = shown


def _is_plain(shown: object) -> bool:
    """Whether every JSON reader accepts it: not nested too deeply, and without huge numbers."""
    level = [shown]
    for _ in range(_DEPTH_MAX):
        if any(isinstance(part, int) and part.bit_length() > _BITS_MAX for part in level):
            return False
        dicts = [part.values() for part in level if isinstance(part, dict)]
        lists = [part for part in level if isinstance(part, list)]
        level = [part for parts in (*dicts, *lists) for part in parts]
        if not level:
            return True
    return False


def read_change(content: Line, before: RunRow | None, place: str) -> Change:
    """The change in a line. Raises DamagedData with `place`."""
    if before is None and content.get("format") != FORMAT:
        raise DamagedData(place, "its first line is not that of a journal")
    if before is None and content.get("version") != VERSION:
        raise UnsupportedFormat(place, f"it has version {content.get('version')}, this Holdfast supports {VERSION}")
    try:
        rows: Line = {key: [_read_row(kind, row) for row in content.get(key, ())] for key, kind in ROWS.items()}
        lists = {key: msgspec.convert(content.get(key, []), kind) for key, kind in _LISTS.items()}
        return Change(run=_read_run(content["run"], before), **rows, **lists)
    except (msgspec.ValidationError, KeyError, TypeError, AttributeError) as error:
        raise DamagedData(place, f"it cannot be read ({error!r})") from error


def _read_row(kind: type[Kind], written: Line) -> Kind:
    return msgspec.convert([written.get(name, empty) for name, empty in _EMPTY[kind].items()], kind)


def _read_run(written: Line, before: RunRow | None) -> RunRow:
    since = NO_RUN if before is None else before
    values = [
        written[name] if name in written or (before is None and name not in _LATER) else getattr(since, name)
        for name in RunRow.__struct_fields__
    ]
    return msgspec.convert(values, RunRow)

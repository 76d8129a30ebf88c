"""Export and import: a run as one piece of bytes that needs nothing else.

    archive := "holdfast run 2\n" content hash

`content` is the MessagePack encoding of `Archive` below, compressed with zstd; `hash` is the BLAKE3 hash, 32 bytes, of
everything before it. Chunks are kept as they are stored, under their hashes, and are checked one by one. An importer
makes a new run of it: numbers and seals are made anew; ids, contents, and the dates of its parts stay. Version 1 ends
with the chunks.
"""

from __future__ import annotations

from typing import Final

import msgspec
from blake3 import blake3

from holdfast.errors import DamagedData, InvalidInput, LimitExceeded, UnsupportedFormat
from holdfast.ids import check_id
from holdfast.limits import ARCHIVE_BYTES_MAX
from holdfast.model.commit import NewRun
from holdfast.model.rows import (
    AttachmentRow,
    CheckpointRow,
    ChunkRow,
    EffectRow,
    EntryRow,
    GateRow,
    ItemRow,
    MessageRow,
    RunRow,
    TimerRow,
)
from holdfast.model.views import RunInfo
from holdfast.state import body
from holdfast.store.port import RunRows
from holdfast.verbs.archive_check import check_archived
from holdfast.verbs.core import Core, Place
from holdfast.verbs.keeping import marked
from holdfast.verbs.moving import NewCopy, create_runs
from holdfast.verbs.plans import Plan
from holdfast.verbs.reading import in_peace
from holdfast.verbs.run_tree import RunTree, is_child_of, read_journal, read_tree, rename, waited_for
from holdfast.verbs.shown import run_info

_START: Final = b"holdfast run 2\n"
_STARTS: Final = (b"holdfast run 1\n", _START)
_ANY: Final = b"holdfast run "
_HASH: Final = 32


class Archive(msgspec.Struct, frozen=True, array_like=True):
    """The content of an archive."""

    run: RunRow
    checkpoints: list[CheckpointRow]
    entries: list[EntryRow]
    effects: list[EffectRow]
    attachments: list[AttachmentRow]
    chunks: list[ChunkRow]
    gates: list[GateRow] = []
    items: list[ItemRow] = []
    timers: list[TimerRow] = []
    messages: list[MessageRow] = []
    children: list[Archive] = []
    """The children that the run waits for."""

    def rows(self) -> RunRows:
        return RunRows(
            self.run, self.checkpoints, self.entries, self.effects, self.attachments, self.gates, self.items,
            self.timers, self.messages,
        )  # fmt: skip


def export_run(place: Place, run_id: str) -> Plan[bytes]:
    """The run as bytes that any store can import, so that it goes on there where it stands.

    Everything is in it but the claim: checkpoints and their state, journal, effects, attachments, gates, timers, inbox
    and outbox, and the children it waits for.

    Example:
        data = store.export_run("run-1")
    """
    check_id("run_id", run_id)
    core = place.core
    data: bytes = yield lambda: in_peace(core, run_id, lambda: _exported(core, run_id))
    return data


def _exported(core: Core, run_id: str) -> bytes:
    content = msgspec.msgpack.encode(_archived(core, read_tree(core, run_id)))
    if len(content) > ARCHIVE_BYTES_MAX:
        raise LimitExceeded(
            f"the archive of run {run_id!r} would have {len(content)} bytes, and importers expand at most "
            f"{ARCHIVE_BYTES_MAX}; prune the run first"
        )
    data = _START + core.body(content)
    return data + blake3(data).digest()


def _archived(core: Core, tree: RunTree) -> Archive:
    rows = tree.rows
    family = rows.run.family
    roots = [row.root for row in rows.checkpoints] + [row.root for row in rows.attachments]
    names = sorted(marked(core, family, roots))
    found = core.port.chunks(family, names)
    for name in names:
        if name not in found:
            raise DamagedData(f"run {tree.run_id!r}", f"the chunk {name.hex()} it needs is missing")
    chunks = [ChunkRow(name, found[name]) for name in names]
    children = [_archived(core, child) for child in tree.children]
    return Archive(
        rows.run, rows.checkpoints, rows.entries, rows.effects, rows.attachments, chunks, rows.gates, rows.items,
        rows.timers, rows.messages, children,
    )  # fmt: skip


def import_run(place: Place, data: bytes, *, run_id: str | None = None) -> Plan[RunInfo]:
    """Make a run of what `export_run` gave, under its old id or a new one. Everything is checked before it is written.

    Under its own id the run has moved: it still has its parent, and its effects are its own to undo. Under another id
    it is a copy, as `copy` makes one. Children that are there already, from an import that was killed, are kept.

    Example:
        store.import_run(data, run_id="run-3")
    """
    archive = _decoded(data)
    tree = _tree(archive)
    name = check_id("run_id", tree.run_id if run_id is None else run_id)
    chunks = _chunks(archive)
    plan = [
        NewCopy(new_id, rows, NewRun(True, origin=rows.run.origin), tuple(chunks[rows.run.run_id]))
        for new_id, rows in rename(place.core, tree, name)
    ]
    made = yield from create_runs(place, plan)
    assert made is not None, "it has no source in the store that could change"
    return run_info(made)


def _decoded(data: object) -> Archive:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InvalidInput(f"import_run takes the bytes that export_run gave, not {type(data).__name__}")
    data = bytes(data)
    if not data.startswith(_STARTS):
        if data.startswith(_ANY):
            raise UnsupportedFormat("the archive", "it has another version")
        raise DamagedData("the archive", "it does not start like one")
    if blake3(data[:-_HASH]).digest() != data[-_HASH:]:
        raise DamagedData("the archive", "it is cut off or altered")
    content = body.plain(data[len(_START) : -_HASH], ARCHIVE_BYTES_MAX, "the archive")
    try:
        return msgspec.msgpack.decode(content, type=Archive)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise DamagedData("the archive", f"its content cannot be read ({error})") from error


def _tree(archive: Archive, depth: int = 0) -> RunTree:
    """The runs of the archive, checked: its hash proves that it arrived whole, not that it makes sense."""
    rows = archive.rows()
    check_archived(rows, archive.chunks, depth)
    journal = read_journal(rows)
    children = [_tree(child, depth + 1) for child in archive.children]
    expected = waited_for(rows, journal)
    for child in children:
        if child.run_id not in expected or not is_child_of(child.journal, rows.run.run_id):
            raise DamagedData("the archive", f"run {rows.run.run_id!r} does not wait for a child {child.run_id!r}")
    return RunTree(rows, journal, children)


def _chunks(archive: Archive) -> dict[str, list[ChunkRow]]:
    """The chunks of each run."""
    found = {archive.run.run_id: archive.chunks}
    for child in archive.children:
        found |= _chunks(child)
    return found

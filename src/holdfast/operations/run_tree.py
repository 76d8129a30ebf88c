"""A run with the children it waits for, read consistently and renamed for a copy.

A copy must not act on its source. So it gets its own children, its journal names those, it does not report its end to
the source's parent, and it does not undo effects of the source. A run that keeps its id has only moved, and nothing in
it changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from blake3 import blake3

from holdfast.errors import Conflict, DamagedData, HoldfastError, LimitExceeded, RunNotFound
from holdfast.ids import check_id
from holdfast.limits import CHILDREN_DEPTH_MAX
from holdfast.model.rows import READY, TERMINAL, WAITING, EffectRow, EntryRow, MessageRow, RunRow
from holdfast.operations.checkpoint_needs import needed
from holdfast.operations.context import StoreContext
from holdfast.operations.views import checked_checkpoint, decode_body, encode_body, next_position
from holdfast.store.checksum import verify_checksum, verify_run
from holdfast.store.journal_prune import PRUNED, last_of
from holdfast.store.port import RunRows

if TYPE_CHECKING:  # the engine is only loaded when the run of a workflow is copied
    from holdfast.engine.commands import EntryData
    from holdfast.engine.record import Positioned

_replace = msgspec.structs.replace

_STARTED: Final = {"workflow", "version", "args", "kwargs"}
_ID_BYTES: Final = 400
"""A longer id of a child is shortened, so that the ids of its own children fit, too."""
_TRIES: Final = 20


class Journal(NamedTuple):
    """The journal of a workflow's run, decoded."""

    entries: dict[int, EntryData]
    """By position, without rows for pruned entries."""
    live: list[Positioned]
    """The entries that no rollback removed."""
    rollback: EntryData
    """The first entry of an unfinished rollback; empty if there is none."""
    children: dict[str, EntryData]
    """The attached children without a recorded end, and those that this rollback rolls back."""


class RunTree(NamedTuple):
    """A run, and those of its unfinished children that exist."""

    rows: RunRows
    journal: Journal | None
    """None if the run does not belong to a workflow."""
    children: list[RunTree]

    @property
    def run_id(self) -> str:
        return self.rows.run.run_id

    def children_first(self) -> Iterator[RunTree]:
        """All runs of the tree, each after its children."""
        for child in self.children:
            yield from child.children_first()
        yield self


# --- reading ---------------------------------------------------------------------------------------------------------


def read_tree(core: StoreContext, run_id: str) -> RunTree:
    """The run and its unfinished children, checked. None of the parents changed while they were read."""
    for _ in range(_TRIES):
        tree = _read(core, run_id, 0)
        parents = [node.rows.run for node in tree.children_first() if node.children]
        if all(core.port.run(row.run_id) == row for row in parents):
            return tree
    raise Conflict(
        f"run {run_id!r} changed {_TRIES} times while it and its children were read; pause it, or try again later"
    )


def _read(core: StoreContext, run_id: str, depth: int) -> RunTree:
    if depth > CHILDREN_DEPTH_MAX:
        raise LimitExceeded(f"run {run_id!r} is a child {depth} levels deep, at most {CHILDREN_DEPTH_MAX} are allowed")
    rows = core.port.run_rows(run_id)
    if rows is None:
        raise RunNotFound(run_id)
    check_rows(rows)
    journal = read_journal(rows)
    found = [_read(core, child, depth + 1) for child in waited_for(rows, journal) if core.port.run(child) is not None]
    return RunTree(rows, journal, [child for child in found if is_child_of(child.journal, run_id)])


def check_rows(rows: RunRows) -> None:
    """Raise DamagedData if a row does not match its checksum, or an entry is missing."""
    run, end = verify_run(rows.run), 0
    for checkpoint in rows.checkpoints:
        checked_checkpoint(run, checkpoint)
    for entry in rows.entries:
        verify_checksum(entry, run.incarnation, f"entry {entry.position} of run {run.run_id!r}")
        end = next_position(run.run_id, end, entry)
    if end != run.position:
        raise DamagedData(f"the journal of run {run.run_id!r}", f"it ends at {end}, not at {run.position}")
    for row in (*rows.effects, *rows.attachments, *rows.gates, *rows.items, *rows.messages):
        verify_checksum(row, run.incarnation, f"a row of run {run.run_id!r} ({type(row).__name__})")


def waited_for(rows: RunRows, journal: Journal | None) -> list[str]:
    """The children that a copy of the run needs."""
    return [] if journal is None or rows.run.status in TERMINAL else list(journal.children)


def is_child_of(journal: Journal | None, run_id: str) -> bool:
    """Whether the run was started by this parent, and is not another run with the same id."""
    parent = journal.entries[1].get("parent") if journal is not None else None
    return isinstance(parent, dict) and parent.get("run") == run_id


def read_journal(rows: RunRows) -> Journal | None:
    """The decoded journal; None if the run does not belong to a workflow."""
    if not rows.entries or rows.entries[0].kind != "started":
        return None
    place = f"the journal of run {rows.run.run_id!r}"
    entries = {row.position: decode_body(row.body, place) for row in rows.entries if row.kind != PRUNED}
    first = entries[1]
    if not isinstance(first, dict) or not first.keys() >= _STARTED:
        return None
    kinds = {row.position: row.kind for row in rows.entries}
    try:
        if any(entry["kind"] != kinds[at] for at, entry in entries.items()):
            raise DamagedData(place, "the kind of an entry differs from that of its row")
        return _sorted(entries)
    except HoldfastError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise DamagedData(place, f"it is not the journal of a workflow ({error!r})") from error


def _sorted(entries: dict[int, EntryData]) -> Journal:
    from holdfast.engine.record import live_path, record_of

    live = live_path([(at, dict(entry)) for at, entry in entries.items()])
    record = record_of(live)
    rollback = record.rollback[0] if record.rollback else {}
    wanted = {*record.children, *rollback.get("children", ())}
    children = {
        entry["child"]: entry
        for _, entry in live
        if entry["kind"] == "child" and not entry["detached"] and entry["child"] in wanted
    }
    return Journal(entries, live, rollback, children)


# --- other ids -------------------------------------------------------------------------------------------------------


def rename(core: StoreContext, tree: RunTree, new_id: str) -> list[tuple[str, RunRows]]:
    """The ids and rows of the tree's runs with the root renamed to `new_id`, children first."""
    names = _names(tree, new_id)
    nodes = list(tree.children_first())
    if len({*names.values()}) < len(names) or len({node.run_id for node in nodes}) < len(nodes):
        raise DamagedData(f"run {tree.run_id!r}", "two of its children have the same id")
    try:
        return [(names[node.run_id], _Renamed(core, node, names, is_root=node is tree).rows()) for node in nodes]
    except HoldfastError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise DamagedData(f"run {tree.run_id!r}", f"its journal is not that of a workflow ({error!r})") from error


def _names(tree: RunTree, new_id: str) -> dict[str, str]:
    """The new ids by the old ones, including children that are only recorded."""
    names = {tree.run_id: new_id}
    for child, entry in (tree.journal.children if tree.journal else {}).items():
        names[child] = _child_id(tree.run_id, new_id, child, entry)
    for node in tree.children:
        names |= _names(node, names[node.run_id])
    return names


def _child_id(parent: str, new_parent: str, child: str, entry: EntryData) -> str:
    from holdfast.ids import full_name

    check_id("child run_id", child)
    if parent == new_parent:
        return child
    rest = child.removeprefix(f"{parent}/")
    if rest == child:
        rest = f"{full_name(entry.get('in', ''), entry['call'])}.{blake3(child.encode()).hexdigest(8)}"
    name = f"{new_parent}/{rest}"
    if len(name.encode()) > _ID_BYTES:
        name = f"{name[: _ID_BYTES // 8]}…{blake3(name.encode()).hexdigest(12)}"
    return check_id("child run_id", name)


class _Renamed:
    """One run of a tree under its new id."""

    def __init__(self, core: StoreContext, node: RunTree, names: dict[str, str], *, is_root: bool) -> None:
        self._core = core
        self._node = node
        self._names = names
        self._is_root = is_root
        self._is_moved = names[node.run_id] == node.run_id
        self._changed: dict[int, EntryData] = {}
        self._states = {row.key: row.state for row in node.rows.effects}

    def rows(self) -> RunRows:
        rows, journal = self._node.rows, self._node.journal
        if journal is None:
            return rows if self._is_moved else rows._replace(messages=self._messages())
        self._keep_tokens(journal)
        status = rows.run.status
        if journal.children and status == WAITING:
            status = READY  # a child may end before its parent exists
        rows = rows._replace(run=_replace(rows.run, status=status))
        if self._is_moved:
            return rows._replace(entries=self._entries())
        self._name_runs(journal)
        self._undo_nothing(journal)
        self._drop_tokens(journal)
        return rows._replace(
            entries=[*self._entries(), *self._started(journal)],
            effects=[inherited(self._core, rows.run, row) for row in rows.effects],
            messages=self._messages(),
        )

    def _entries(self) -> list[EntryRow]:
        found = []
        for row in self._node.rows.entries:
            data = self._changed.get(row.position)
            body = row.body if data is None else encode_body(self._core, data, "a journal entry")
            found.append(_replace(row, body=body))
        return found

    def _change(self, position: int, **facts: object) -> None:
        assert self._node.journal is not None
        self._changed[position] = {**self._changed.get(position, self._node.journal.entries[position]), **facts}

    def _keep_tokens(self, journal: Journal) -> None:
        """Keep the idempotency keys of effects in doubt for their retries; a new run would compute other keys."""
        run = self._node.rows.run
        calls = {row.key: effect_call(run, row) for row in self._node.rows.effects}
        for at, entry in journal.live:
            if entry["kind"] != "intent" or self._states.get(entry.get("key", "")) != "intent":
                continue
            token = calls[entry["key"]].get("token")
            if token is not None and "token" not in entry:
                self._change(at, token=token)
            if not self._is_moved and "of" not in entry:
                self._change(at, of=self._node.run_id)

    def _drop_tokens(self, journal: Journal) -> None:
        """Remove the idempotency keys of failed effects: a retry by the copy is another effect."""
        for at, entry in journal.live:
            if entry["kind"] == "intent" and self._states.get(entry.get("key", "")) == "failed":
                self._changed[at] = {name: fact for name, fact in entry.items() if name not in ("token", "position")}

    def _name_runs(self, journal: Journal) -> None:
        """Name the copied children and parents. The root of a copy has no parent to report to."""
        parent = journal.entries[1].get("parent")
        if parent is not None and not self._is_root:
            self._change(1, parent={**parent, "run": self._names[parent["run"]]})
        elif parent is not None:
            self._changed[1] = {name: fact for name, fact in journal.entries[1].items() if name != "parent"}
        for child, entry in journal.children.items():
            self._change(entry["position"], child=self._names[child])
        if journal.rollback:
            existing = {node.run_id for node in self._node.children}
            begun = journal.rollback
            kept = [number for number, child in enumerate(begun["children"]) if child in existing]
            lists = [name for name in ("children", "started_at") if name in begun]
            facts = {name: [begun[name][number] for number in kept] for name in lists}
            facts["children"] = [self._names[child] for child in facts["children"]]
            self._change(begun["position"], **facts)

    def _undo_nothing(self, journal: Journal) -> None:
        """Leave to the source what the source has begun to undo."""
        if journal.rollback:
            own = [key for key in journal.rollback["undo"] if isinstance(key, str) and self._states.get(key) == "done"]
            self._change(journal.rollback["position"], undo=[], let_go=[*journal.rollback["let_go"], *own])
        calls: dict[tuple[str, str], list[EntryData]] = {}
        for _, entry in journal.live:
            if entry["kind"] in ("compensating", "compensated", "undone", "undo_failed") and "call" in entry:
                calls.setdefault((entry.get("in", ""), entry["call"]), []).append(entry)
        for first, *rest in calls.values():
            if not rest or rest[-1]["kind"] != "compensated":
                ended = [entry["key"] for entry in rest]
                left = [key for key in first["undo"] if key not in ended]
                self._change(first["position"], undo=ended, left=[*left, *first["left"]])

    def _started(self, journal: Journal) -> list[EntryRow]:
        """Mark the detached children of the source as started, so that the copy does not start them again."""
        run, end = self._node.rows.run, last_of(self._node.rows.entries[-1])
        known = {entry["child"] for _, entry in journal.live if entry["kind"] == "child_started"}
        found: list[EntryRow] = []
        for at, entry in journal.live:
            if (
                entry["kind"] != "child"
                or not entry["detached"]
                or entry["child"] in known
                or not self._is_read_on_resume(at)
            ):
                continue
            facts = [name for name in ("call", "in", "keyed", "child") if name in entry]
            data: EntryData = {"kind": "child_started", **{name: entry[name] for name in facts}}
            body = encode_body(self._core, data, "a journal entry")
            found.append(EntryRow(end + len(found) + 1, "child_started", run.updated_us, run.commit_id, body))
        return found

    def _is_read_on_resume(self, position: int) -> bool:
        """Whether a resume reads the entry: it is not part of a finished iteration of a loop."""
        rows = self._node.rows
        newest = next((row for row in rows.checkpoints if row.number == rows.run.head), None)
        spans = needed(newest).spans if newest is not None else None
        if newest is None or spans is None or position > newest.covers:
            return True
        return any(first <= position <= last for first, last in spans)

    def _messages(self) -> list[MessageRow]:
        """Drop the messages to the source's parent and children. Other receivers recognise a message by its key."""
        kept = [row for row in self._node.rows.messages if row.kind != "cancel" and not row.name.startswith(_WAKE)]
        return [_replace(row, target=self._names.get(row.target, row.target)) for row in kept]


_WAKE: Final = "holdfast.child/"


def inherited(core: StoreContext, run: RunRow, row: EffectRow) -> EffectRow:
    """An effect that a fork or copy takes over and does not undo, because the source performed it."""
    call = effect_call(run, row)
    call = {**call, "reused": call.get("reused", run.run_id)}
    return _replace(row, call=encode_body(core, call, "an effect's arguments"))


def effect_call(run: RunRow, row: EffectRow) -> EntryData:
    """The recorded call of an effect."""
    place = f"effect {row.key!r} of run {run.run_id!r}"
    call: EntryData = decode_body(row.call, place) or {}
    if not isinstance(call, dict):
        raise DamagedData(place, "its recorded call cannot be read")
    return call

"""Rollback: the choice of effects to undo, and the steps of a rollback.

A rollback also covers children whose call it removes: it stops them and undoes their effects, and those of the
children inside them, in the same order as if the run itself had performed them. Detached children are not touched.
The journal of the run that is rolled back records the progress; the ledgers of the children record what was undone.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from holdfast.drivers import Plan
from holdfast.engine.arguments import Arguments, Undos, takes_token
from holdfast.engine.commands import Call, Command, EntryData, Item, LedgerMark, ReadState, Snapshot, Write
from holdfast.engine.effect_outcome import plain_result
from holdfast.engine.execution import Execution
from holdfast.engine.failures import failure_of
from holdfast.engine.journal_cut import RollbackCut, TakenChild
from holdfast.engine.resume_point import LoopProgress, ResumePoint, Span, join_spans, subtract_span
from holdfast.engine.state_edits import Edit
from holdfast.errors import RollbackFailed, RunClaimed
from holdfast.model.rows import READY, ROLLING_BACK

_EPOCH: Final = re.compile(r"@\d+\Z")
"""The suffix of the key of an effect that is performed again; a user's own key cannot end like this."""


class LedgerLine(Command):
    """A line of the run's ledger."""

    number: int
    key: str
    state: str
    tool: str
    result: object
    call: Any
    after_position: int
    run_id: str = ""
    """The run of the line; empty: the run that is rolled back."""
    incarnation: bytes = b""
    """The incarnation of that run."""
    path: tuple[tuple[int, int], ...] = ()
    """Orders lines of several runs: the position after which it was recorded, for each run on the way down."""

    @property
    def place(self) -> str | list[str]:
        """The name of the line in the journal: its key, or the child's id and its key."""
        return [self.run_id, self.key] if self.run_id else self.key

    @property
    def undo(self) -> str:
        """The name of its undo function; empty if it has none."""
        return (self.call or {}).get("undo") or ""

    @property
    def is_reused(self) -> bool:
        """Whether another run of the family performed the effect."""
        return bool((self.call or {}).get("reused"))


class ReadLedger(Command):
    """The run's ledger, or its lines with these keys, as a list of `LedgerLine`."""

    keys: list[str] | None = None


class ReadChildren(Command):
    """The ledgers of these attached children and of their descendants, as a list of `LedgerLine`."""

    children: list[TakenChild]


class StopChild(Command):
    """End a child and its descendants as cancelled. Throws RunClaimed if a live owner has claimed one of them."""

    run_id: str
    by: str
    bar: bool = False
    """If it does not exist yet, create it as cancelled, so that a late process cannot start it."""


class MarkChild(Command):
    """Record in the ledger of a child that an effect was undone."""

    run_id: str
    incarnation: bytes
    key: str


def without_positions(spans: list[Span], void: list[int]) -> list[Span]:
    """Spans without these positions."""
    for position in void:
        spans = subtract_span(spans, (position, position))
    return join_spans(spans)


class Undo(msgspec.Struct):
    """The effects that a rollback removes, by what it does about them."""

    undo: list[LedgerLine] = []
    """To be undone, in this order."""
    irreversible: list[LedgerLine] = []
    in_doubt: list[LedgerLine] = []
    let_go: list[LedgerLine] = []
    """Reused from another run, so this run does not undo them; the family decides again."""
    compensated: list[LedgerLine] = []
    """Undone since, by the run itself or a rollback of its parent; the journal still has them as done."""


def undo_of(
    lines: list[LedgerLine], cut: RollbackCut, recorded: set[str], undone: set[str], inside: list[LedgerLine]
) -> Undo:
    """Sort the effects that a rollback removes, newest first.

    `recorded` are those that the journal still has, `undone` those of them that a rollback of the parent has undone;
    `inside` are the lines of children that the rollback removes.
    """
    found = Undo()
    own = [line for line in lines if _is_removed(line, cut, recorded)]
    found.compensated = [line for line in lines if line not in own and line.key in cut.undone | undone]
    for line in sorted([*own, *inside], key=_order, reverse=True):
        if line.is_reused:
            found.let_go += [line] if line.state == "done" and not line.run_id else []
        elif line.state == "intent":
            found.in_doubt.append(line)
        elif line.state == "done" and line.undo:
            found.undo.append(line)
        elif line.state == "done":
            found.irreversible.append(line)
    return found


def _is_removed(line: LedgerLine, cut: RollbackCut, recorded: set[str]) -> bool:
    return line.key in cut.keys if line.key in recorded else line.after_position >= cut.to


def _order(line: LedgerLine) -> tuple[tuple[int, int], ...]:
    return line.path or ((line.after_position, line.number),)


def begin_entry(
    cut: RollbackCut,
    undo: Undo,
    base: str,
    spans: list[Span],
    loops: list[LoopProgress],
    edits: list[Edit],
    by: str,
    next_node: str | None = None,
) -> EntryData:
    """The entry that begins a rollback: its complete plan, so that any process can continue it."""
    return {
        **({"tokens": cut.tokens} if cut.tokens else {}),
        "kind": "rolling_back",
        "to": cut.to,
        "void": cut.void,
        "by": by,
        "undo": [line.place for line in undo.undo],
        "left": [line.place for line in undo.irreversible + undo.in_doubt],
        "let_go": [line.key for line in undo.let_go],
        "base": base,
        "spans": [list(span) for span in without_positions(spans, cut.void)],
        "loops": [msgspec.to_builtins(mark) for mark in loops],
        "edits": [msgspec.to_builtins(edit) for edit in edits],
        "gates": cut.gates,
        "timers": cut.timers,
        "next_node": next_node,
        "events": cut.events,
        "children": [child.run_id for child in cut.children if not child.detached],
        "ended": [child.run_id for child in cut.children if child.ended],
        "started_at": [child.position for child in cut.children if not child.detached],
    }


def perform_rollback(exe: Execution, undos: Undos, *, force: bool) -> Plan[None]:
    """Stop the children, undo and record each effect in order, then reset the run to the earlier position."""
    begun, past = exe.record.rollback[0], exe.record.rollback[1:]
    for child in begun["children"]:
        try:
            yield StopChild(child, begun["by"], child not in begun.get("ended", []))
        except RunClaimed:
            yield from _release_unfinished(exe, [])
            raise
    done = [_place(entry) for entry in past if entry["kind"] == "undone"]
    lines: list[LedgerLine] = yield ReadLedger(_own_keys(begun))
    started = begun.get("started_at", [])
    inside: list[LedgerLine] = yield ReadChildren(
        [TakenChild(child, at, False) for child, at in zip(begun["children"], started, strict=False)]
    )
    todo = yield from _select_undo(exe, begun, [*lines, *inside], force=force)
    for line in todo:
        if line.place not in done:
            yield from _undo(exe, line, undos, force=force)
    yield from _finish_rollback(exe, begun)


def _own_keys(begun: EntryData) -> list[str]:
    """The keys of the effects to undo that are in the run's own ledger."""
    return [place for place in begun["undo"] if isinstance(place, str)]


def _place(entry: EntryData) -> str | list[str]:
    return [entry["run"], entry["key"]] if "run" in entry else entry["key"]


def _select_undo(exe: Execution, begun: EntryData, lines: list[LedgerLine], *, force: bool) -> Plan[list[LedgerLine]]:
    """The effects to undo, newest first: the planned ones, and those of children between the plan and their stop."""
    planned = [line for place in begun["undo"] for line in lines if line.place == place]
    late = undo_of([], RollbackCut(0), set(), set(), [line for line in lines if line.run_id])
    known = [*begun["undo"], *begun["left"]]
    stuck = [line for line in (*late.irreversible, *late.in_doubt) if line.place not in known]
    if stuck and not force:
        text = (
            f"effect {stuck[0].key!r} of child run {stuck[0].run_id!r} was begun after the rollback was planned and "
            "cannot be undone; continue the rollback with force=True to leave it as it is"
        )
        failure = {"type": "RollbackRefused", "message": text}
        yield from _release_unfinished(
            exe, [{"kind": "undo_failed", "key": stuck[0].key, "run": stuck[0].run_id, "error": failure}]
        )
        raise RollbackFailed(exe.run_id, stuck[0].key, failure)
    return [*[line for line in late.undo if line.place not in known], *planned]


def _release_unfinished(exe: Execution, entries: list[EntryData]) -> Plan[None]:
    """Release the run in the middle of the rollback, which can be continued."""
    written = yield Write(entries, status=ROLLING_BACK, release=True)
    exe.released = written.status


def _undo(exe: Execution, line: LedgerLine, undos: Undos, *, force: bool) -> Plan[None]:
    about: EntryData = {"key": line.key, **({"run": line.run_id} if line.run_id else {})}
    if line.state == "undone":  # the process died after it wrote the child's ledger
        yield Write([{"kind": "undone", **about}])
        return
    yield Write([{"kind": "undoing", **about, "undo": line.undo}])
    try:
        yield undo_call(exe, line, undos)
    except (Exception, SystemExit) as error:
        failure = failure_of(error)
        if force:
            yield Write([{"kind": "undone", **about, "left": True, "error": failure}])
            return
        yield from _release_unfinished(exe, [{"kind": "undo_failed", **about, "error": failure}])
        raise RollbackFailed(exe.run_id, line.key, failure) from error
    if line.run_id:
        yield MarkChild(line.run_id, line.incarnation, line.key)
        yield Write([{"kind": "undone", **about}])
    else:
        yield Write([{"kind": "undone", **about}], (LedgerMark(line.key, "undone"),))


def undo_call(exe: Execution, line: LedgerLine, undos: Undos) -> Call:
    """The call of the undo function of an effect."""
    name = line.undo
    undo = undos.get(name)
    if undo is None:
        raise LookupError(f"this process has no undo function {name!r}; import the module that registers it")
    given = Arguments(undo, f"undo {name!r}", skip=0)
    result = plain_result(line.key, line.result, line.call)
    args, kwargs = given.to_typed((result, *line.call["args"]), line.call["kwargs"])
    if takes_token(undo):
        incarnation = line.incarnation or exe.incarnation
        token = exe.codec.effect_token(incarnation, f"undo:{line.key}", exe.resume_point.epoch)
        kwargs = {**kwargs, "idempotency_key": token}
    return Call(undo, args, kwargs, external=True)


def _left_by_force(begun: EntryData) -> Plan[list[str]]:
    """The effects whose undo failed and was skipped by force."""
    lines: list[LedgerLine] = yield ReadLedger(_own_keys(begun))
    return [line.key for line in lines if line.key in begun["undo"] and line.state != "undone"]


def _finish_rollback(exe: Execution, begun: EntryData) -> Plan[None]:
    """The last commit: the live path now ends at the earlier position."""
    state, version = (yield ReadState(begun["base"])) if begun["base"] else ({}, exe.version)
    line = ResumePoint(loops=[LoopProgress(**mark) for mark in begun["loops"]])
    line.epoch, line.forked = exe.resume_point.epoch + 1, exe.resume_point.forked
    line.tokens = begun.get("tokens", {})
    left = [*[key for key in begun["left"] if isinstance(key, str)], *(yield from _left_by_force(begun))]
    line.left = {**exe.resume_point.left, **{_EPOCH.sub("", key): line.epoch for key in left}}
    edits = [Edit(**edit) for edit in begun.get("edits", [])]
    resume = line.to_metadata([(first, last) for first, last in begun["spans"]], line.loops, version, edits)
    entry = {
        "kind": "rolled_back",
        "to": begun["to"],
        "void": begun["void"],
        "epoch": line.epoch,
        "by": begun["by"],
        "left": line.left,
        **({"retry": True} if begun.get("retry") else {}),
        **({"tokens": line.tokens} if line.tokens else {}),
    }
    events = tuple(
        Item(event["item"] or 0, "event", event["event"], event["by"], 0, event["value"])
        for event in begun.get("events", [])
    )
    written = yield Write(
        [entry],
        marks=tuple(LedgerMark(key, "undone") for key in begun["let_go"]),
        close_gates=begun["gates"],
        drop_timers=begun["timers"],
        put_back=events,
        snapshot=Snapshot(state, resume, next_node=begun.get("next_node")),
        status=READY,
        release=True,
    )
    exe.released = written.status

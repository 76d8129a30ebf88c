"""Going back: what a rollback or a fork to a position means. Pure.

Going back to position P keeps what was recorded up to P and takes back the rest. Calls that stand on both sides, begun
before P and ended after it, are taken back whole: their entries up to P are *void*. A fork also voids calls that had
not ended by P (an open gate, a sleep, a child), since gates, timers and children belong to the one run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from holdfast.engine.commands import Call, Command, EntryData, Mark, Now, Plan, ReadState, Send, Snapshot, Write
from holdfast.engine.execution import Execution
from holdfast.engine.failures import failure_of
from holdfast.engine.line import Line, LoopMark, Span, joined
from holdfast.engine.record import Positioned, full_name
from holdfast.engine.tokens import takes_token
from holdfast.errors import RollbackFailed
from holdfast.model.status import READY, ROLLING_BACK

FINAL: Final = frozenset(
    {
        "step",
        "outcome",
        "answered",
        "received",
        "sent",
        "child_ended",
        "value",
        "loop",
        "saved",
        "sleep",
        "refused",
        "map",
        "gather",
        "breakpoint",
        "compensated",
    }
)
"""Kinds of entries after which nothing more comes of a call."""


_EPOCH: Final = re.compile(r"@\d+\Z")
"""What the engine adds to the key of an effect that is done anew; a user's own key cannot end so."""


class Cut(msgspec.Struct):
    """What going back to a position takes back."""

    to: int
    void: list[int]
    """Positions up to `to` that are taken back as well."""
    keys: set[str]
    """Effects whose record is taken back."""
    calls: list[str]
    """All calls that are taken back, by their full names."""
    gates: list[str]
    timers: list[str]
    children: list[str]
    undone: set[str]
    """Effects whose compensation is taken back."""


class LedgerLine(Command):
    """A line of the run's ledger."""

    number: int
    key: str
    state: str
    tool: str
    result: Any
    call: Any
    after_position: int


class ReadLedger(Command):
    """The run's ledger, as a list of `LedgerLine`."""


def cut_at(live: list[Positioned], to: int, *, fork: bool = False) -> Cut:
    """What going back to `to` takes back of this live path."""
    calls: dict[str, list[Positioned]] = {}
    for position, entry in live:
        if "call" in entry and entry["kind"] != "log":
            calls.setdefault(full_name(entry.get("in", ""), entry["call"]), []).append((position, entry))
    cut = Cut(to, [], set(), [], [], [], [], set())
    kept: set[str] = set()
    moved = max((at for at, entry in live if at <= to and ("call" in entry or entry["kind"] == "turn")), default=0)
    for name, entries in calls.items():
        before = [position for position, _ in entries if position <= to]
        if len(before) == len(entries) and not (fork and not _ended(entries, moved)):
            kept |= {entry["key"] for _, entry in entries if tells_of_effect(entry)}
            continue
        cut.void += before
        cut.calls.append(name)
        for _, entry in entries:
            _note(cut, entry)
    cut.keys -= kept  # a later call of an explicit key only repeated the record of the one that stays
    return cut


def _ended(entries: list[Positioned], moved: int) -> bool:
    """Whether nothing more comes of a call; `moved`: the last position at which the run has done something."""
    at, last = entries[-1]
    if last["kind"] == "breakpoint":  # passed only if something came after it
        return at < moved
    return last["kind"] in FINAL or (last["kind"] == "child" and last["detached"])


def tells_of_effect(entry: EntryData) -> bool:
    """Whether the entry is about an effect as such; a call of its key that only repeated the record is not."""
    return entry["kind"] in ("intent", "outcome") and "key" in entry and entry.get("how") != "recorded"


def _note(cut: Cut, entry: EntryData) -> None:
    if tells_of_effect(entry):
        cut.keys.add(entry["key"])
    if entry["kind"] == "undone":
        cut.undone.add(entry["key"])
    if entry["kind"] == "asked":
        cut.gates.append(entry["gate"])
    if "timer" in entry:
        cut.timers.append(entry["timer"])
    if entry["kind"] == "child" and not entry["detached"]:
        cut.children.append(entry["child"])


def without(spans: list[Span], void: list[int]) -> list[Span]:
    """Spans without these positions."""
    for position in sorted(void):
        found = []
        for first, last in spans:
            if first <= position <= last:
                found += [(first, position - 1), (position + 1, last)]
            else:
                found.append((first, last))
        spans = found
    return joined(spans)


class Undo(msgspec.Struct):
    """What a rollback does about the effects it takes back."""

    undo: list[LedgerLine]
    """To be undone, in this order."""
    irreversible: list[LedgerLine]
    in_doubt: list[LedgerLine]
    let_go: list[LedgerLine]
    """Taken over from another run, so not this one's to undo; what stands there is asked anew."""
    compensated: list[LedgerLine]
    """Undone by the run itself, which would go on as if they were still done."""


def undo_of(lines: list[LedgerLine], cut: Cut, recorded: set[str]) -> Undo:
    """Sort the effects that are taken back, the newest first. `recorded`: those the journal still tells of."""
    found = Undo([], [], [], [], [])
    for line in sorted(lines, key=lambda line: (line.after_position, line.number), reverse=True):
        taken_back = line.key in cut.keys if line.key in recorded else line.after_position >= cut.to
        if not taken_back:
            found.compensated += [line] if line.key in cut.undone else []
            continue
        if (line.call or {}).get("reused"):
            found.let_go += [line] if line.state == "done" else []
        elif line.state == "intent":
            found.in_doubt.append(line)
        elif line.state == "done" and (line.call or {}).get("undo"):
            found.undo.append(line)
        elif line.state == "done":
            found.irreversible.append(line)
    return found


# --- carrying it out -------------------------------------------------------------------------------------------------


def begin_entry(
    cut: Cut, undo: Undo, base: str, spans: list[Span], loops: list[LoopMark], by: str, next_node: str | None = None
) -> EntryData:
    """The entry with which a rollback begins: all that it will do, so that any process can take it up."""
    return {
        "kind": "rolling_back", "to": cut.to, "void": cut.void, "by": by, "undo": [line.key for line in undo.undo],
        "left": [line.key for line in undo.irreversible + undo.in_doubt],
        "let_go": [line.key for line in undo.let_go], "base": base,
        "spans": [list(span) for span in without(spans, cut.void)],
        "loops": [msgspec.to_builtins(mark) for mark in loops],
        "gates": cut.gates, "timers": cut.timers, "children": cut.children, "next_node": next_node,
    }  # fmt: skip


def carry_out(exe: Execution, undos: Mapping[str, Callable[..., Any]], *, force: bool) -> Plan[None]:
    """Undo what is to be undone, in order, each recorded; then the run stands where it was."""
    begun, past = exe.record.rollback[0], exe.record.rollback[1:]
    done = {entry["key"] for entry in past if entry["kind"] == "undone"}
    lines: dict[str, LedgerLine] = {line.key: line for line in (yield ReadLedger())}
    for key in begun["undo"]:
        if key not in done:
            yield from _undo(exe, lines[key], undos, force=force)
    yield from _arrive(exe, begun)


def _undo(exe: Execution, line: LedgerLine, undos: Mapping[str, Callable[..., Any]], *, force: bool) -> Plan[None]:
    yield Write([{"kind": "undoing", "key": line.key, "undo": line.call["undo"]}])
    try:
        undo, args, kwargs = undo_call(exe, line, undos)
        yield Call(undo, args, kwargs, world=True)
    except (Exception, SystemExit) as error:
        failure = failure_of(error)
        if force:
            yield Write([{"kind": "undone", "key": line.key, "left": True, "error": failure}])
            return
        entry = {"kind": "undo_failed", "key": line.key, "error": failure}
        written = yield Write([entry], status=ROLLING_BACK, release=True)
        exe.released = written.status
        raise RollbackFailed(exe.run_id, line.key, failure) from error
    yield Write([{"kind": "undone", "key": line.key}], (Mark(line.key, "undone"),))


def undo_call(
    exe: Execution, line: LedgerLine, undos: Mapping[str, Callable[..., Any]]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """How an effect is undone: the function, and what it is called with."""
    name = line.call["undo"]
    undo = undos.get(name)
    if undo is None:
        raise LookupError(f"this process has no undo function {name!r}; import the module that registers it")
    kwargs = line.call["kwargs"]
    if takes_token(undo):
        token = exe.codec.effect_token(exe.incarnation, f"undo:{line.key}", exe.line.epoch)
        kwargs = {**kwargs, "idempotency_key": token}
    return undo, (line.result, *line.call["args"]), kwargs


def _left_by_force(begun: EntryData) -> Plan[list[str]]:
    """Effects whose undo failed and was passed over."""
    lines: list[LedgerLine] = yield ReadLedger()
    return [line.key for line in lines if line.key in begun["undo"] and line.state != "undone"]


def _arrive(exe: Execution, begun: EntryData) -> Plan[None]:
    """The last commit: from now on the live path is the shorter one."""
    state: dict[str, Any] = {}
    version = exe.version
    if begun["base"]:
        state, version = yield ReadState(begun["base"])
    line = Line(loops=[LoopMark(**mark) for mark in begun["loops"]])
    line.epoch, line.forked = exe.line.epoch + 1, exe.line.forked
    left = [*begun["left"], *(yield from _left_by_force(begun))]
    line.left = {**exe.line.left, **{_EPOCH.sub("", key): line.epoch for key in left}}
    resume = line.told([(first, last) for first, last in begun["spans"]], line.loops, version)
    entry = {"kind": "rolled_back", "to": begun["to"], "void": begun["void"], "epoch": line.epoch, "by": begun["by"]}
    now_us: int = yield Now()
    send = tuple(
        Send(child, "cancel", "cancel", f"rolled back/{exe.run_id}/{child}/{now_us}") for child in begun["children"]
    )
    written = yield Write(
        [entry], marks=tuple(Mark(key, "undone") for key in begun["let_go"]), close_gates=begun["gates"],
        drop_timers=begun["timers"], send=send,
        snapshot=Snapshot(state, resume, next_node=begun.get("next_node")), status=READY, release=True,
    )  # fmt: skip
    exe.released = written.status

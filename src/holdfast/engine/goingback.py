"""Going back: what a rollback or a fork to a position means. Pure.

Going back to position P keeps what was recorded up to P and takes back the rest. Calls that stand on both sides, begun
before P and ended after it, are taken back whole: their entries up to P are *void*. A fork also voids calls that had
not ended by P (an open gate, a sleep, a child), since gates, timers and children belong to the one run.

A rollback also takes back the children whose call is taken back: they are stopped, and what they and the children
inside them did is undone in the same order as if the run itself had done it. Detached children are left alone. Progress
is recorded in the journal of the run that is rolled back; the ledgers of the children record what was undone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from holdfast.engine.arguments import Arguments
from holdfast.engine.commands import Call, Command, EntryData, Item, Mark, Plan, ReadState, Snapshot, Write
from holdfast.engine.edits import Edit
from holdfast.engine.execution import Execution
from holdfast.engine.failures import failure_of
from holdfast.engine.line import Line, LoopMark, Span, joined, minus
from holdfast.engine.record import FINAL, Positioned, full_name
from holdfast.engine.tokens import takes_token
from holdfast.errors import RollbackFailed, RunClaimed
from holdfast.model.status import READY, ROLLING_BACK

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
    children: list[TakenChild]
    undone: set[str]
    """Effects whose compensation is taken back."""
    events: list[EntryData]
    """What was received since, oldest first. It can be received again."""
    tokens: dict[str, list[Any]] = {}
    """Failed effects that a retry performs under the idempotency key they had: see `engine.repair`."""


class TakenChild(msgspec.Struct, frozen=True):
    """A child whose call is taken back."""

    run_id: str
    position: int
    """Where it was started."""
    detached: bool
    ended: bool = False
    """Its end is recorded, so it was there."""


class LedgerLine(Command):
    """A line of the run's ledger."""

    number: int
    key: str
    state: str
    tool: str
    result: Any
    call: Any
    after_position: int
    run_id: str = ""
    """Whose line it is; empty: the run's own."""
    incarnation: bytes = b""
    """Of that run."""
    path: tuple[tuple[int, int], ...] = ()
    """Orders lines of several runs: after which position of each run on the way down it was recorded."""

    @property
    def place(self) -> str | list[str]:
        """How the line is named in the journal: its key, or the child's id and its key."""
        return [self.run_id, self.key] if self.run_id else self.key


class ReadLedger(Command):
    """The run's ledger, as a list of `LedgerLine`."""


class ReadChildren(Command):
    """The ledgers of these attached children, and of those inside them, as a list of `LedgerLine`."""

    children: list[TakenChild]


class StopChild(Command):
    """End a child, and those inside it, as cancelled. Throws RunClaimed if a living owner holds one of them."""

    run_id: str
    by: str
    bar: bool = False
    """It may not be there yet: then it is made as one that was cancelled, so that a late process cannot start it."""


class MarkChild(Command):
    """Record in the ledger of a child that an effect was undone."""

    run_id: str
    incarnation: bytes
    key: str


def cut_at(live: list[Positioned], to: int, *, fork: bool = False, ended: bool = False) -> Cut:
    """What going back to `to` takes back of this live path.

    `ended`: the run had ended since. Its end closed gates and stopped children that were open at `to`, so these are
    taken back as well.
    """
    calls: dict[str, list[Positioned]] = {}
    for position, entry in live:
        if "call" in entry and entry["kind"] != "log":
            calls.setdefault(full_name(entry.get("in", ""), entry["call"]), []).append((position, entry))
    cut = Cut(to, [], set(), [], [], [], [], set(), [])
    kept: set[str] = set()
    moved = max((at for at, entry in live if at <= to and ("call" in entry or entry["kind"] == "turn")), default=0)
    for name, entries in calls.items():
        before = [position for position, _ in entries if position <= to]
        is_kept = len(before) == len(entries) and not (fork and not _ended(entries, moved))
        closed = _closed_by_end(entries) if is_kept and ended else []
        if is_kept and len(closed) < len(entries):
            kept |= {entry["key"] for _, entry in entries if tells_of_effect(entry)}
        else:
            closed = entries
            cut.calls.append(name)
        cut.void += [position for position, _ in closed if position <= to]
        child_ended = entries[-1][1]["kind"] == "child_ended"
        for position, entry in closed:
            note_taken_back(cut, position, entry, ended=child_ended)
    cut.keys -= kept  # a later call of an explicit key only repeated the record of the one that stays
    cut.events.sort(key=lambda entry: int(entry["position"]))
    return cut


def _closed_by_end(entries: list[Positioned]) -> list[Positioned]:
    """What of a call that was open when the run ended is over: its gate or child. An effect in doubt stays so."""
    last = entries[-1][1]
    if last["kind"] == "asked":
        return entries[-1:] if any(tells_of_effect(entry) for _, entry in entries) else entries
    return entries if last["kind"] == "child" and not last["detached"] else []


def _ended(entries: list[Positioned], moved: int) -> bool:
    """Whether nothing more comes of a call; `moved`: the last position at which the run has done something."""
    at, last = entries[-1]
    if last["kind"] == "breakpoint":  # passed only if something came after it
        return at < moved
    if last["kind"] == "child" and last["detached"]:  # before there was `child_started`: surely started if passed
        return at < moved
    return last["kind"] in FINAL


def tells_of_effect(entry: EntryData) -> bool:
    """Whether the entry is about an effect as such; a call of its key that only repeated the record is not."""
    return entry["kind"] in ("intent", "outcome") and "key" in entry and entry.get("how") != "recorded"


def note_taken_back(cut: Cut, position: int, entry: EntryData, *, ended: bool) -> None:
    """Add to the cut what an entry that is taken back stands for; `ended`: its call is of a child that has ended."""
    if tells_of_effect(entry):
        cut.keys.add(entry["key"])
    if entry["kind"] == "undone":
        cut.undone.add(entry["key"])
    if entry["kind"] == "asked":
        cut.gates.append(entry["gate"])
    if "timer" in entry:
        cut.timers.append(entry["timer"])
    if entry["kind"] == "child":
        cut.children.append(TakenChild(entry["child"], position, entry["detached"], ended))
    if entry["kind"] == "received" and "timeout" not in entry:
        facts = {name: entry.get(name) for name in ("event", "value", "by", "item")}
        cut.events.append({"position": position, **facts})


def without(spans: list[Span], void: list[int]) -> list[Span]:
    """Spans without these positions."""
    for position in void:
        spans = minus(spans, (position, position))
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
    """Undone since, by the run itself or a rollback of its parent; it would go on as if they were still done."""


def undo_of(lines: list[LedgerLine], cut: Cut, recorded: set[str], undone: set[str], inside: list[LedgerLine]) -> Undo:
    """Sort the effects that are taken back, the newest first.

    `recorded` are those the journal still has, `undone` those of them that a rollback of the parent has undone;
    `inside` are the lines of children that are taken back.
    """
    found = Undo([], [], [], [], [])
    own = [line for line in lines if _is_taken_back(line, cut, recorded)]
    found.compensated = [line for line in lines if line not in own and line.key in cut.undone | undone]
    for line in sorted([*own, *inside], key=_order, reverse=True):
        if (line.call or {}).get("reused"):
            found.let_go += [line] if line.state == "done" and not line.run_id else []
        elif line.state == "intent":
            found.in_doubt.append(line)
        elif line.state == "done" and (line.call or {}).get("undo"):
            found.undo.append(line)
        elif line.state == "done":
            found.irreversible.append(line)
    return found


def _is_taken_back(line: LedgerLine, cut: Cut, recorded: set[str]) -> bool:
    return line.key in cut.keys if line.key in recorded else line.after_position >= cut.to


def _order(line: LedgerLine) -> tuple[tuple[int, int], ...]:
    return line.path or ((line.after_position, line.number),)


# --- carrying it out -------------------------------------------------------------------------------------------------


def begin_entry(
    cut: Cut, undo: Undo, base: str, spans: list[Span], loops: list[LoopMark], edits: list[Edit], by: str,
    next_node: str | None = None,
) -> EntryData:  # fmt: skip
    """The entry with which a rollback begins: all that it will do, so that any process can take it up."""
    return {
        **({"tokens": cut.tokens} if cut.tokens else {}),
        "kind": "rolling_back", "to": cut.to, "void": cut.void, "by": by, "undo": [line.place for line in undo.undo],
        "left": [line.place for line in undo.irreversible + undo.in_doubt],
        "let_go": [line.key for line in undo.let_go], "base": base,
        "spans": [list(span) for span in without(spans, cut.void)],
        "loops": [msgspec.to_builtins(mark) for mark in loops],
        "edits": [msgspec.to_builtins(edit) for edit in edits],
        "gates": cut.gates, "timers": cut.timers, "next_node": next_node, "events": cut.events,
        "children": [child.run_id for child in cut.children if not child.detached],
        "ended": [child.run_id for child in cut.children if child.ended],
        "started_at": [child.position for child in cut.children if not child.detached],
    }  # fmt: skip


def carry_out(exe: Execution, undos: Mapping[str, Callable[..., Any]], *, force: bool) -> Plan[None]:
    """Stop the children, undo what is to be undone, in order, each recorded; then the run stands where it was."""
    begun, past = exe.record.rollback[0], exe.record.rollback[1:]
    for child in begun["children"]:
        try:
            yield StopChild(child, begun["by"], child not in begun.get("ended", []))
        except RunClaimed:
            yield from _stop_here(exe, [])
            raise
    done = [_place(entry) for entry in past if entry["kind"] == "undone"]
    lines: list[LedgerLine] = yield ReadLedger()
    started = begun.get("started_at", [])
    inside: list[LedgerLine] = yield ReadChildren(
        [TakenChild(child, at, False) for child, at in zip(begun["children"], started, strict=False)]
    )
    todo = yield from _to_undo(exe, begun, [*lines, *inside], force=force)
    for line in todo:
        if line.place not in done:
            yield from _undo(exe, line, undos, force=force)
    yield from _arrive(exe, begun)


def _place(entry: EntryData) -> str | list[str]:
    return [entry["run"], entry["key"]] if "run" in entry else entry["key"]


def _to_undo(exe: Execution, begun: EntryData, lines: list[LedgerLine], *, force: bool) -> Plan[list[LedgerLine]]:
    """What is left to undo, newest first: what was planned, and what children did between the plan and their stop."""
    planned = [line for place in begun["undo"] for line in lines if line.place == place]
    nothing = Cut(0, [], set(), [], [], [], [], set(), [])
    late = undo_of([], nothing, set(), set(), [line for line in lines if line.run_id])
    known = [*begun["undo"], *begun["left"]]
    stuck = [line for line in (*late.irreversible, *late.in_doubt) if line.place not in known]
    if stuck and not force:
        text = (
            f"effect {stuck[0].key!r} of child run {stuck[0].run_id!r} was begun after the rollback was planned and "
            "cannot be undone; take the rollback up again with force=True to leave it as it is"
        )
        failure = {"type": "RollbackRefused", "message": text}
        yield from _stop_here(exe, [{"kind": "undo_failed", "key": stuck[0].key, "run": stuck[0].run_id,
                                     "error": failure}])  # fmt: skip
        raise RollbackFailed(exe.run_id, stuck[0].key, failure)
    return [*[line for line in late.undo if line.place not in known], *planned]


def _stop_here(exe: Execution, entries: list[EntryData]) -> Plan[None]:
    """Give the run back as it stands; the rollback can be taken up again."""
    written = yield Write(entries, status=ROLLING_BACK, release=True)
    exe.released = written.status


def _undo(exe: Execution, line: LedgerLine, undos: Mapping[str, Callable[..., Any]], *, force: bool) -> Plan[None]:
    about: EntryData = {"key": line.key, **({"run": line.run_id} if line.run_id else {})}
    if line.state == "undone":  # a child's ledger was written, and then the process died
        yield Write([{"kind": "undone", **about}])
        return
    yield Write([{"kind": "undoing", **about, "undo": line.call["undo"]}])
    try:
        undo, args, kwargs = undo_call(exe, line, undos)
        yield Call(undo, args, kwargs, world=True)
    except (Exception, SystemExit) as error:
        failure = failure_of(error)
        if force:
            yield Write([{"kind": "undone", **about, "left": True, "error": failure}])
            return
        yield from _stop_here(exe, [{"kind": "undo_failed", **about, "error": failure}])
        raise RollbackFailed(exe.run_id, line.key, failure) from error
    if line.run_id:
        yield MarkChild(line.run_id, line.incarnation, line.key)
        yield Write([{"kind": "undone", **about}])
    else:
        yield Write([{"kind": "undone", **about}], (Mark(line.key, "undone"),))


def undo_call(
    exe: Execution, line: LedgerLine, undos: Mapping[str, Callable[..., Any]]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """How an effect is undone: the function, and what it is called with."""
    name = line.call["undo"]
    undo = undos.get(name)
    if undo is None:
        raise LookupError(f"this process has no undo function {name!r}; import the module that registers it")
    given = Arguments(undo, f"undo {name!r}", skip=0)
    args, kwargs = given.typed((line.result, *line.call["args"]), line.call["kwargs"])
    if takes_token(undo):
        incarnation = line.incarnation or exe.incarnation
        token = exe.codec.effect_token(incarnation, f"undo:{line.key}", exe.line.epoch)
        kwargs = {**kwargs, "idempotency_key": token}
    return undo, args, kwargs


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
    line.tokens = begun.get("tokens", {})
    left = [*[key for key in begun["left"] if isinstance(key, str)], *(yield from _left_by_force(begun))]
    line.left = {**exe.line.left, **{_EPOCH.sub("", key): line.epoch for key in left}}
    edits = [Edit(**edit) for edit in begun.get("edits", [])]
    resume = line.told([(first, last) for first, last in begun["spans"]], line.loops, version, edits)
    entry = {
        "kind": "rolled_back", "to": begun["to"], "void": begun["void"], "epoch": line.epoch, "by": begun["by"],
        "left": line.left, **({"tokens": line.tokens} if line.tokens else {}),
    }  # fmt: skip
    events = tuple(
        Item(event["item"] or 0, "event", event["event"], event["by"], 0, event["value"])
        for event in begun.get("events", [])
    )
    written = yield Write(
        [entry], marks=tuple(Mark(key, "undone") for key in begun["let_go"]), close_gates=begun["gates"],
        drop_timers=begun["timers"], put_back=events,
        snapshot=Snapshot(state, resume, next_node=begun.get("next_node")), status=READY, release=True,
    )  # fmt: skip
    exe.released = written.status

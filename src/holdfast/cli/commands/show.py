"""`show`: the timeline and the status of a run, or a state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.cli.format import command_line, long_duration, state_lines, value_text
from holdfast.cli.output import columns, cut, lines_of, one_line, unstyle
from holdfast.cli.run_reads import answer_line
from holdfast.cli.session import Session
from holdfast.cli.verb import Argument, Option, verb
from holdfast.errors import CheckpointNotFound
from holdfast.ids import display_name, find_gates
from holdfast.inspect.attempts import describe_attempt
from holdfast.inspect.calls import STAGES_MAX, fold_stages, has_stages
from holdfast.inspect.refs import Located, checkpoint_of
from holdfast.inspect.rows import error_text
from holdfast.inspect.threads import INTERRUPT, THREADS, thread_state
from holdfast.inspect.timeline import fold_turns, timeline
from holdfast.inspect.views import as_data
from holdfast.model.rows import TERMINAL

if TYPE_CHECKING:
    from holdfast.inspect.views import Row, RunStatus, Timeline


NEWEST: Final = 5_000
"""How many entries are read without --full."""
_SMALL: Final = frozenset({"value", "version"})
"""Kinds of rows that only --full shows."""
_TEXT_MIN: Final = 8
"""If fewer columns are left, the text of a row is not cut."""
_SIGNS: Final = {
    "done": ("✓", "green"),
    "failed": ("✗", "red"),
    "waiting": ("…", "yellow"),
    "running": ("▶", "blue"),
    "in_doubt": ("?", "red"),
    "undone": ("↺", "magenta"),
    "expired": ("⌛", None),
    "cancelled": ("✗", None),
    "stopped": ("■", None),
    "taken_back": ("↶", "bright_black"),
    "unsatisfied": ("!", "yellow"),
}
"""The sign and the colour of each state."""


@verb(
    Argument("run", "RUN"),
    Option("--full", "full", "Show all entries, full values and tracebacks.", is_flag=True),
    Option("--turns", "turns", "Show the calls in each finished turn of a loop.", is_flag=True),
    Option("--state", "wants_state", "Show the newest state, or that of RUN~n or RUN@position.", is_flag=True),
)
def show_command(session: Session, run: str, full: bool, turns: bool, wants_state: bool) -> None:
    """Show the timeline of a run, its status and the next commands.

    \b
    Examples:
      holdfast show order-17
      holdfast show @latest --turns
      holdfast show order-17~2 --state
    """
    store = session.reads()
    found = checkpoint_of(store, run)
    chosen = found.checkpoint is not None and found.checkpoint.checkpoint_id != found.run.checkpoint_id
    if wants_state or chosen:
        _show_state(session, found)
        return
    seen = timeline(store, found.run.run_id, newest=None if full else NEWEST)
    if has_stages(seen.rows):
        rows = fold_stages(seen.rows, None if turns or full else STAGES_MAX)
    else:
        rows = seen.rows if turns or full else fold_turns(seen.rows)
    if session.json:
        session.out.give({**as_data(seen), "rows": as_data(rows)})
        return
    _head(session, seen)
    _rows(session, rows, full=full)
    _effects(session, seen)
    _status(session, seen)


def _show_state(session: Session, found: Located) -> None:
    info = found.checkpoint
    if info is None:
        raise CheckpointNotFound(found.run.run_id, "yet")
    loaded = session.reads().load(found.run.run_id, checkpoint_id=info.checkpoint_id, lane=info.lane)
    if loaded is None:
        raise CheckpointNotFound(found.run.run_id, repr(info.checkpoint_id))
    if found.run.workflow == THREADS:
        loaded = msgspec.structs.replace(loaded, state=thread_state(session.reads(), info.run_id, info))
    if session.json:
        session.out.give(as_data(loaded))
        return
    session.out.note(one_line(f"{info.run_id}:{info.checkpoint_id} (step {info.step}, covers {info.covers})"))
    for line in state_lines(loaded.state):
        session.say(line)


# --- the parts -------------------------------------------------------------------------------------------------------


def _head(session: Session, seen: Timeline) -> None:
    out, run = session.out, seen.run
    name, workflow = one_line(run.run_id), one_line(run.workflow) or "(no workflow)"
    session.say(f"{out.styled(name, bold=True)}  {out.status(run.status)}  {workflow}")
    facts = [f"created {out.time(run.created_at)}", f"updated {out.time(run.updated_at)}"]
    facts += [f"worked {long_duration(seen.worked_us)}"] if seen.worked_us else []
    facts += [f"idle {long_duration(seen.idle_us)}"] if seen.idle_us else []
    session.say(", ".join(facts))
    if run.metadata:
        pairs = [f"{one_line(key)}={value_text(part, 60)}" for key, part in run.metadata.items()]
        session.say(f"metadata: {' '.join(pairs)}")
    if run.forked_from:
        session.say(f"forked from {one_line(run.forked_from)}")
    session.say()


def _rows(session: Session, rows: tuple[Row, ...], *, full: bool) -> None:
    shown = [row for row in rows if full or row.kind not in _SMALL]
    names = [one_line("  " * row.depth + _name(row)) for row in shown]
    wide = min(max((columns(name) for name in names), default=0), max(16, min(48, session.out.width - 44)))
    for row, name in zip(shown, names, strict=True):
        if row.kind == "gap":
            session.say(session.out.styled(f"         {'  ' * row.depth}~ {one_line(_gap(row))}", fg="bright_black"))
            continue
        sign, color = _SIGNS.get(row.state, (" ", None))
        sign = session.out.styled(sign, fg=color)
        took = long_duration(row.duration_us) if row.duration_us is not None and row.kind in _TIMED else ""
        line = f"{row.first or '':>6}  {sign} {name:<{wide}}  {row.state:<10}  {took:>9}  "
        left = session.out.width - columns(unstyle(line))
        text = _row_text(row, full=full)
        session.say((line + (text if full or left < _TEXT_MIN else cut(text, left))).rstrip())
        if full:
            _details(session, row)


_TIMED: Final = frozenset(
    [
        "step",
        "effect",
        "ask",
        "sleep",
        "wait",
        "child",
        "map",
        "gather",
        "loop",
        "turn",
        "turns",
        "stage",
        "stages",
        "rollback",
    ]
)
"""Kinds of rows that show how long they took."""


def _name(row: Row) -> str:
    if row.kind in ("turn", "turns", "stages", "rollback"):
        return row.name
    if row.kind in ("entry", "log", "stage", "ended", "started", "pruned", "forked"):
        return row.kind if row.name == row.kind or row.kind in ("pruned", "forked") else f"{row.kind} {row.name}"
    if row.kind == "definition":
        return row.name
    call = display_name(row.call) or row.name
    return f"{row.kind} {call}" if row.kind in ("step", "effect", "value", "call") else call


def _gap(row: Row) -> str:
    length = long_duration(row.duration_us or 0)
    what = f" ({display_name(row.name)})" if row.name else ""
    return f"{length}: {row.text}{what}" + (", until now" if row.ended_at is None else "")


def _row_text(row: Row, *, full: bool) -> str:
    """Return the text of a row, the most important facts first."""
    longest = 100_000 if full else 200
    parts = [row.text] if row.text else []
    parts += [f"{row.attempts} attempts"] if row.attempts > 1 else []
    if row.kind in ("map", "gather"):
        parts.append(f"{row.count} {'branch' if row.count == 1 else 'branches'}")
    elif row.kind == "loop" and row.count:
        parts.append(f"{row.count} {'turn' if row.count == 1 else 'turns'}")
    if row.effect is not None:
        parts += [f"key {row.effect.key}"] if full else []
        parts += [] if row.effect.reversible else ["cannot be undone"]
    parts += [f"by {row.by}" + (f" via {row.via}" if row.via else "")] if row.by else []
    parts += [f"next {row.next_node}"] if row.next_node and row.kind in ("checkpoint", "stage", "turn", "turns") else []
    if row.result is not None and row.kind not in ("rollback", "started", "diverged"):
        parts.append(value_text(row.result, longest))
    elif row.kind == "started":
        given = row.result or {}
        parts += [value_text(part, longest) for part in (given.get("args"), given.get("kwargs")) if part]
    parts += [row.checkpoint_id] if row.checkpoint_id and row.kind == "checkpoint" else []
    return one_line("; ".join(parts))


def _details(session: Session, row: Row) -> None:
    """Print the attempts, the traceback and the checkpoint of a row."""
    for one in row.attempt_rows:
        session.say(f"          {one_line(describe_attempt(one, error_text(one.error), long_duration))}")
    trace = row.error.get("trace") if isinstance(row.error, dict) else None
    for line in lines_of(trace) if isinstance(trace, str) else ():
        session.say(f"          | {line}")
    if row.checkpoint_id and row.kind != "checkpoint":
        session.say(f"          checkpoint {one_line(row.checkpoint_id)}")


def _effects(session: Session, seen: Timeline) -> None:
    if seen.left_out:
        session.say()
        session.say(f"the first {seen.left_out} entries were left out; --full shows them")
    if not seen.effects:
        return
    session.say()
    rows = [
        (display_name(one.key), one.state, one.tool or "-", one.idempotency_key or "-", one.target or "")
        for one in seen.effects
    ]
    session.out.table(("EFFECT", "STATE", "TOOL", "IDEMPOTENCY KEY", "TARGET"), rows)


def _status(session: Session, seen: Timeline) -> None:
    out, stands = session.out, seen.standing
    session.say()
    for gate in seen.gates if stands.cancel is None else ():
        kind, name = ("interrupt", gate.gate) if gate.purpose == INTERRUPT else ("gate", gate.name)
        session.say(out.styled(f"? {one_line(gate.prompt)}", bold=True) + f"  ({kind} {one_line(name)})")
        if gate.show is not None and gate.purpose != INTERRUPT:
            session.say(f"  {value_text(gate.show)}")
        if gate.who:
            session.say(f"  for {one_line(', '.join(gate.who))}")
        if gate.expires_at is not None:
            session.say(f"  expires {out.time(gate.expires_at)}")
    session.say(one_line(f"{seen.run.run_id}: {_status_text(session, stands)}"))
    if stands.next_node:
        session.say(f"next: {one_line(stands.next_node)}")
    for line in _next(seen):
        session.say(f"  {one_line(line)}")


def _status_text(session: Session, stands: RunStatus) -> str:
    """Return the status sentence with its time: "completed 9 s ago", "waiting for a timer, for 3 min"."""
    if stands.cancel is not None:
        return f"{stands.sentence}, requested {session.out.when(stands.cancel.at)}"
    if stands.since is None:
        return stands.sentence
    rest = stands.sentence.removeprefix(stands.status)
    if stands.status in TERMINAL:
        return f"{stands.status} {session.out.when(stands.since)}{rest}"
    since = session.out.since(stands.since)
    return f"{stands.status} {since}{rest}" if rest.startswith(":") else f"{stands.sentence}, {since}"


def _next(seen: Timeline) -> list[str]:
    """Return the commands to type next; an answer with the names of its fields."""
    usages = {gate.gate: answer_line(gate, among=seen.gates) for gate in seen.gates}
    lines = []
    for arguments in seen.standing.commands:
        line = command_line(arguments)
        if arguments[1] == "answer":
            named = find_gates(seen.gates, arguments[-1]) if "--gate" in arguments else list(seen.gates)
            line = usages.get(named[0].gate, line) if named else line
        lines.append(line)
    return lines

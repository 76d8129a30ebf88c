"""`holdfast show`: one run, what it did, where it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from holdfast.cli.acting import answering, run_argument
from holdfast.cli.output import columns, lines_of, one_line
from holdfast.cli.session import Session
from holdfast.cli.showing import command_line, lasting, state_lines, value_text
from holdfast.errors import CheckpointNotFound
from holdfast.inspect.plain import as_data
from holdfast.inspect.refs import Located, checkpoint_of
from holdfast.inspect.staged import STAGES_MAX, has_stages, staged
from holdfast.inspect.threads import INTERRUPT, THREADS, thread_state
from holdfast.inspect.timeline import folded, timeline
from holdfast.model.names import display_name, find_gates

if TYPE_CHECKING:
    from holdfast.inspect.shapes import Row, Timeline

NEWEST: Final = 5_000
"""So many entries are read, if not all are asked for."""
_SMALL: Final = frozenset({"value", "version", "log"})
_SIGNS: Final = {
    "done": "✓", "failed": "✗", "waiting": "…", "running": "▶", "in_doubt": "?", "undone": "↺", "expired": "⌛",
    "cancelled": "✗", "stopped": "■", "taken_back": "↶", "unsatisfied": "!",
}  # fmt: skip
_COLORS: Final = {
    "done": "green", "failed": "red", "waiting": "yellow", "running": "blue", "in_doubt": "red",
    "taken_back": "bright_black", "undone": "magenta", "unsatisfied": "yellow",
}  # fmt: skip


@click.command()
@run_argument
@click.option("--full", is_flag=True, help="Everything: all entries, values in full, traces of errors.")
@click.option("--turns", is_flag=True, help="What was done in each finished turn of a loop.")
@click.option("--state", "wants_state", is_flag=True, help="The newest state instead, or that of RUN~n, RUN@position.")
@click.pass_obj
def command(session: Session, run: str, full: bool, turns: bool, wants_state: bool) -> None:
    """Show one run: its timeline, where it stands, what to type next.

    \b
    Examples:
      holdfast show order-17
      holdfast show @latest --turns
      holdfast show order-17~2 --state
    """
    store = session.store()
    found = checkpoint_of(store, run)
    chosen = found.checkpoint is not None and found.checkpoint.checkpoint_id != found.run.checkpoint_id
    if wants_state or chosen:
        _show_state(session, found)
        return
    seen = timeline(store, found.run.run_id, newest=None if full else NEWEST)
    if has_stages(seen.rows):
        rows = staged(seen.rows, None if turns or full else STAGES_MAX)
    else:
        rows = seen.rows if turns or full else folded(seen.rows)
    if session.json:
        session.out.give({**as_data(seen), "rows": as_data(rows)})
        return
    _head(session, seen)
    _rows(session, rows, full=full)
    _effects(session, seen)
    _standing(session, seen)


def _show_state(session: Session, found: Located) -> None:
    info = found.checkpoint
    if info is None:
        raise CheckpointNotFound(found.run.run_id, "yet")
    loaded = session.store().load(found.run.run_id, checkpoint_id=info.checkpoint_id, lane=info.lane)
    if loaded is None:
        raise CheckpointNotFound(found.run.run_id, repr(info.checkpoint_id))
    if found.run.workflow == THREADS:
        loaded = msgspec.structs.replace(loaded, state=thread_state(session.store(), info.run_id, info))
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
    told = [f"created {out.time(run.created_at)}", f"updated {out.time(run.updated_at)}"]
    told += [f"worked {lasting(seen.worked_us)}"] if seen.worked_us else []
    told += [f"idle {lasting(seen.idle_us)}"] if seen.idle_us else []
    session.say(", ".join(told))
    if run.metadata:
        told = [f"{one_line(key)}={value_text(part, 60)}" for key, part in run.metadata.items()]
        session.say(f"metadata: {' '.join(told)}")
    if run.forked_from:
        session.say(f"forked from {one_line(run.forked_from)}")
    session.say()


def _rows(session: Session, rows: tuple[Row, ...], *, full: bool) -> None:
    shown = [row for row in rows if full or row.kind not in _SMALL or row.kind == "log"]
    names = [one_line("  " * row.depth + _name(row)) for row in shown]
    wide = min(max((columns(name) for name in names), default=0), max(16, min(48, session.out.width - 44)))
    for row, name in zip(shown, names, strict=True):
        if row.kind == "gap":
            session.say(session.out.styled(f"         {'  ' * row.depth}~ {one_line(_gap(row))}", fg="bright_black"))
            continue
        sign = session.out.styled(_SIGNS.get(row.state, " "), fg=_COLORS.get(row.state))
        took = lasting(row.duration_us) if row.duration_us is not None and row.kind in _TIMED else ""
        line = f"{row.first or '':>6}  {sign} {name:<{wide}}  {row.state:<10}  {took:>9}  "
        session.say((line + _cut(session, line, _about(row, full=full), full=full)).rstrip())
        if full:
            _in_full(session, row)


_TIMED: Final = frozenset(
    {
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
    }
)


def _name(row: Row) -> str:
    if row.kind in ("turn", "turns", "stages"):
        return row.name
    if row.kind in ("entry", "log", "stage", "ended", "started", "rollback", "pruned", "forked"):
        return row.kind if row.name == row.kind or row.kind in ("pruned", "forked") else f"{row.kind} {row.name}"
    if row.kind == "definition":
        return row.name
    call = display_name(row.call) or row.name
    return f"{row.kind} {call}" if row.kind in ("step", "effect", "value", "call") else call


def _gap(row: Row) -> str:
    length = lasting(row.duration_us or 0)
    what = f" ({display_name(row.name)})" if row.name else ""
    return f"{length}: {row.text}{what}" + (", until now" if row.ended_at is None else "")


def _about(row: Row, *, full: bool) -> str:
    """What there is to say about a row, the most telling first."""
    longest = 100_000 if full else 200
    parts = [row.text] if row.text else []
    parts += [f"{row.attempts} attempts"] if row.attempts > 1 else []
    parts += [f"{row.count} of them"] if row.kind in ("map", "gather") else []
    parts += [f"{row.count} turns"] if row.kind == "loop" and row.count else []
    if row.effect is not None:
        parts += [f"key {row.effect.key}"] if full else []
        parts += [] if row.effect.reversible else ["cannot be undone"]
    parts += [f"by {row.by}"] if row.by else []
    parts += [f"next {row.next_node}"] if row.next_node and row.kind in ("checkpoint", "stage", "turn", "turns") else []
    if row.result is not None and row.kind not in ("rollback", "started", "diverged"):
        parts.append(value_text(row.result, longest))
    elif row.kind == "started":
        given = row.result or {}
        parts += [value_text(part, longest) for part in (given.get("args"), given.get("kwargs")) if part]
    parts += [row.checkpoint_id] if row.checkpoint_id and row.kind == "checkpoint" else []
    return one_line("; ".join(parts))


def _cut(session: Session, line: str, text: str, *, full: bool) -> str:
    """Text as long as the rest of the line; ids and states stand before it."""
    room = session.out.width - columns(click.unstyle(line))
    if full or columns(text) <= room or room < 8:
        return text
    while columns(text) >= room:
        text = text[:-1]
    return f"{text}…"


def _in_full(session: Session, row: Row) -> None:
    trace: Any = row.error.get("trace") if isinstance(row.error, dict) else None
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


def _standing(session: Session, seen: Timeline) -> None:
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
    since = f", since {out.time(stands.since)}" if stands.since is not None else ""
    if stands.cancel is not None:
        since = f", requested {out.when(stands.cancel.at)}"
    session.say(f"{one_line(f'{seen.run.run_id}: {stands.sentence}')}{since}")
    if stands.next_node:
        session.say(f"next: {one_line(stands.next_node)}")
    for line in _next(seen):
        session.say(f"  {one_line(line)}")


def _next(seen: Timeline) -> list[str]:
    """What to type next; an answer with the names of its fields."""
    usages = {gate.gate: answering(gate, among=seen.gates) for gate in seen.gates}
    lines = []
    for arguments in seen.standing.commands:
        line = command_line(arguments)
        if arguments[1] == "answer":
            named = find_gates(seen.gates, arguments[-1]) if "--gate" in arguments else list(seen.gates)
            line = usages.get(named[0].gate, line) if named else line
        lines.append(line)
    return lines

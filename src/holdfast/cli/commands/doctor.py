"""`holdfast doctor`: what is wrong or unwise about a store and its runs."""

from __future__ import annotations

from typing import Final

import click

from holdfast.cli import exits
from holdfast.cli.output import one_line, size
from holdfast.cli.session import Session
from holdfast.errors import DamagedData, StorageError
from holdfast.inspect.health import Health, health, unreachable
from holdfast.inspect.plain import as_data

_SIGNS: Final = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "bad": ("BAD ", "red")}


@click.command()
@click.pass_obj
def command(session: Session) -> int:
    """Say what is wrong or unwise about a store and its runs.

    Looks at versions, settings, the file system, clocks, claims, effects in doubt, overdue gates and timers,
    undelivered messages and growth. Of many runs it looks at a sample. Nothing is changed. Exit code 1 if something is
    bad.

    \b
    Examples:
      holdfast doctor
      holdfast doctor --store postgresql://db/app --json
    """
    found = _found(session)
    code = exits.ERROR if found.bad else exits.OK
    if session.json:
        session.out.give({"ok": not found.bad, **as_data(found)})
        return code
    session.say(f"store: {found.url} ({found.source})")
    session.say("versions: " + ", ".join(f"{name} {number}" for name, number in found.versions.items()))
    if found.store:
        session.say("below: " + ", ".join(f"{name} {value}" for name, value in found.store.items()))
    session.say()
    for finding in found.findings:
        sign, color = _SIGNS[finding.level]
        session.say(f"{session.out.styled(sign, fg=color)}  {finding.what}: {one_line(finding.detail)}")
        if finding.hint and finding.level != "ok":
            session.say(f"      {finding.hint}")
    _biggest(session, found)
    if found.sampled:
        session.say("all runs were looked at" if found.complete else f"{found.sampled} runs were looked at, not all")
    return code


def _found(session: Session) -> Health:
    try:
        store = session.store()
        where = session.where()
        return health(store, where.source if where is not None else "")
    except (StorageError, DamagedData) as error:
        where = session.where()
        return unreachable(where.shown if where else "", where.source if where else "", error)


def _biggest(session: Session, found: Health) -> None:
    if not found.biggest:
        return
    session.say()
    rows: list[tuple[str | int, ...]] = []
    for run in found.biggest:
        keys = ", ".join(f"{weight.key} {size(weight.bytes)}" for weight in run.keys)
        weights = [size(n) if n is not None else "-" for n in (run.bytes, run.bytes_per_checkpoint, run.prune_frees)]
        rows.append((run.run_id, run.checkpoints, run.entries, *weights, keys))
    session.out.table(("BIGGEST", "CHECKPOINTS", "ENTRIES", "BYTES", "EACH", "PRUNE FREES", "STATE"), rows)
    session.say()

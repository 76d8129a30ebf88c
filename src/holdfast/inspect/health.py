"""What is wrong or unwise about a store and its runs. Nothing is written, and not everything is read.

A store may hold any number of runs, so runs are sampled: the newest, and the newest that have not ended. What has an
index of its own (claims, gates, timers, messages) is read up to a limit. The report says how much was looked at.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import msgspec

from holdfast.clock import US
from holdfast.errors import DamagedData, HoldfastError
from holdfast.inspect.machine import NETWORK, file_system_of, free_bytes, sized, versions
from holdfast.inspect.weighing import TOO_MANY, Growth, Weighed, estimate_growth, weigh_biggest
from holdfast.limits import RESERVE_BYTES
from holdfast.model.rows import RunRow
from holdfast.model.status import READY, STATUSES, TERMINAL
from holdfast.model.views import View
from holdfast.runtime.reads import first_entry
from holdfast.store.decide import is_live
from holdfast.store.port import About, RunQuery
from holdfast.store.seal import check_run
from holdfast.verbs.core import Core
from holdfast.verbs.lineage import THREADS, Lineage
from holdfast.verbs.store import Store

SAMPLE: Final = 200
LISTED: Final = 1_000
"""Claims, gates, timers and messages are counted up to this."""
_LATE_US: Final = 60 * US
_SKEW_US: Final = 5 * US
_NAMED: Final = 5
_SCARCE: Final = 10 * RESERVE_BYTES
_LARGE: Final = 1_000_000
"""A prune that frees fewer bytes is not worth advising."""
_WORKER: Final = "holdfast worker --app …"

Level = Literal["ok", "warn", "bad"]


class Finding(View, frozen=True, kw_only=True):
    """Something that was looked at."""

    level: Level
    what: str
    detail: str
    hint: str = ""
    """What to do about it."""


class Health(View, frozen=True, kw_only=True):
    """What `doctor` found."""

    url: str
    source: str
    """Where that setting came from."""
    versions: dict[str, str]
    store: dict[str, str]
    """Versions and settings of what the store stands on."""
    findings: tuple[Finding, ...]
    sampled: int
    """How many runs were looked at."""
    complete: bool
    """Whether these are all there are."""
    biggest: tuple[Weighed, ...]

    @property
    def bad(self) -> bool:
        """Whether something is wrong."""
        return any(finding.level == "bad" for finding in self.findings)


def health(store: Store, source: str = "") -> Health:
    """Look a store over.

    Example:
        [finding.what for finding in health(store).findings if finding.level != "ok"]
    """
    core = store._place.core
    about = core.port.about()
    sample = _sample(core)
    heavy = weigh_biggest(core, sample.sound)
    findings = [
        *_machine(about),
        *_clocks(core, about, sample),
        *_damage(sample),
        _lineage(core, sample),
        *_runs(core, sample),
        *_growth(heavy, estimate_growth(core, sample.sound, heavy)),
    ]
    return Health(
        url=store.url, source=source, versions=versions(), store=about.facts, findings=tuple(findings),
        sampled=len(sample.rows), complete=sample.complete, biggest=heavy,
    )  # fmt: skip


def unreachable(url: str, source: str, error: HoldfastError) -> Health:
    """What can be said of a store that cannot be opened."""
    finding = Finding(
        level="bad", what="store", detail=str(error), hint="check the URL, the server and the permissions"
    )
    return Health(
        url=url,
        source=source,
        versions=versions(),
        store={},
        findings=(finding,),
        sampled=0,
        complete=False,
        biggest=(),
    )


class _Sample(NamedTuple):
    rows: list[RunRow]
    sound: list[RunRow]
    complete: bool


def _sample(core: Core) -> _Sample:
    newest = core.port.runs(RunQuery(limit=SAMPLE))
    unended = core.port.runs(RunQuery(tuple(sorted(STATUSES - TERMINAL)), limit=SAMPLE))
    rows = list({row.run: row for row in (*newest, *unended)}.values())
    return _Sample(rows, [row for row in rows if _is_sound(row)], len(newest) < SAMPLE)


def _is_sound(row: RunRow) -> bool:
    try:
        check_run(row)
    except DamagedData:
        return False
    return True


# --- the machine -----------------------------------------------------------------------------------------------------


def _machine(about: About) -> Iterator[Finding]:
    yield Finding(level="ok", what="store", detail="it can be reached" + _size(about))
    for risk in about.risks:
        hint = "until that is changed, what was acknowledged can be lost"
        yield Finding(level="bad", what="durability", detail=risk, hint=hint)
    if not about.risks:
        yield Finding(level="ok", what="durability", detail="every commit is synced before it is acknowledged")
    if about.path is None:
        return
    kind = file_system_of(about.path)
    if kind in NETWORK:
        hint = "move it to a local disk, or use postgresql://"
        yield Finding(level="bad", what="file system", detail=f"it lies on {kind}, a network file system", hint=hint)
    elif kind:
        yield Finding(level="ok", what="file system", detail=kind)
    free = free_bytes(about.path)
    if free is not None:
        hint = f"free some space or prune: saves are refused below {sized(RESERVE_BYTES)}"
        yield Finding(level=_room(free), what="free space", detail=sized(free), hint=hint if free < _SCARCE else "")


def _room(free: int) -> Level:
    return "bad" if free < RESERVE_BYTES else "warn" if free < _SCARCE else "ok"


def _size(about: About) -> str:
    return "" if about.bytes is None else f"; it has {sized(about.bytes)}"


def _clocks(core: Core, about: About, sample: _Sample) -> Iterator[Finding]:
    if about.clock_us is not None:
        ahead_us = about.clock_us - time.time_ns() // 1000
        off = abs(ahead_us) > _SKEW_US
        detail = f"the server's clock is {abs(ahead_us) / US:.1f} s {'ahead of' if ahead_us > 0 else 'behind'} this one"
        yield Finding(
            level="warn" if off else "ok", what="clock", detail=detail,
            hint="set the clocks by the same source (NTP); leases go by the server's" if off else "",
        )  # fmt: skip
    newest_us = max((row.updated_us for row in sample.sound), default=0)
    ahead_us = newest_us - core.clock.now_us()
    if ahead_us > _SKEW_US:
        yield Finding(
            level="warn", what="clock", detail=f"a run was written {ahead_us / US:.0f} s from now, by this clock",
            hint="the clock of this machine, or of one that writes here, is wrong",
        )  # fmt: skip


# --- the runs --------------------------------------------------------------------------------------------------------


def _damage(sample: _Sample) -> Iterator[Finding]:
    broken = len(sample.rows) - len(sample.sound)
    if broken:
        yield Finding(
            level="bad", what="damage", detail=f"{broken} of {len(sample.rows)} runs do not fit their checksums",
            hint="holdfast verify says which and where",
        )  # fmt: skip


def _lineage(core: Core, sample: _Sample) -> Finding:
    """Threads with checkpoints that cannot be read, because ancestors of their delta channels are missing."""
    threads = [row for row in sample.sound if row.workflow == THREADS]
    broken = [
        row.run_id for row in threads if Lineage(core, row).find_orphans(core.port.checkpoints(row.run, 0, TOO_MANY))
    ]
    found = _counted("ancestors", "checkpoints that delta channels need are missing", broken,
                     "holdfast verify says which; restore the runs from a backup or an archive")  # fmt: skip
    return msgspec.structs.replace(found, level="bad") if broken else found


def _runs(core: Core, sample: _Sample) -> Iterator[Finding]:
    port, now_us = core.port, core.clock.now_us()
    held = port.held(LISTED)
    gone = port.gone_owners({row.owner for row in held})
    stuck = [row.run_id for row in held if not is_live(row, core.clock.lease_time) or row.owner in gone]
    yield _counted("claims", "the lease is over or the owner is gone", stuck,
                   "any worker takes over: holdfast worker --app …, or holdfast resume RUN")  # fmt: skip
    doubtful = [row.run_id for row in sample.sound if row.effects and _in_doubt(core, row)]
    yield _counted("effects", "effects are in doubt", doubtful,
                   "find out whether they happened: holdfast effects RUN, holdfast gates")  # fmt: skip
    overdue = [run.run_id for run, _ in port.expired_gates(LISTED)]
    yield _counted("gates", "a gate has expired and nobody told the run", overdue, f"a worker does: {_WORKER}")
    late = [run.run_id for run, timer in port.due_timers(LISTED) if now_us - timer.due_us > _LATE_US]
    yield _counted("timers", "a timer rang more than a minute ago and nobody heard", late, f"a worker does: {_WORKER}")
    undelivered = [run.run_id for run, message in port.outbox(LISTED) if now_us - message.created_us > _LATE_US]
    yield _counted("outbox", "what was sent is not delivered for more than a minute", undelivered,
                   f"a worker delivers it: {_WORKER}")  # fmt: skip
    waiting = [row for row in sample.sound if row.status == READY and now_us - row.ready_us > _LATE_US]
    ready = [row.run_id for row in waiting if first_entry(core, row)]
    yield _counted("ready runs", "ready for more than a minute and nobody takes it", ready,
                   f"start a worker that knows the workflow: {_WORKER}")  # fmt: skip


def _in_doubt(core: Core, row: RunRow) -> bool:
    return any(line.state == "intent" for line in core.port.effects(row.run))


def _counted(what: str, problem: str, run_ids: list[str], hint: str) -> Finding:
    found = list(dict.fromkeys(run_ids))
    if not found:
        return Finding(level="ok", what=what, detail="nothing to see to")
    named = ", ".join(found[:_NAMED]) + (", …" if len(found) > _NAMED else "")
    many = f"{LISTED} or more" if len(run_ids) >= LISTED else str(len(found))
    count = "1 run" if many == "1" else f"{many} runs"
    return Finding(level="warn", what=what, detail=f"{count}: {problem}: {named}", hint=hint)


def _growth(heavy: tuple[Weighed, ...], growth: Growth) -> Iterator[Finding]:
    unused = sum(run.unused_chunks for run in heavy)
    free, total = growth.bytes, sum(run.bytes or 0 for run in heavy)
    if unused:
        detail = f"{unused} chunks of the biggest runs are not needed by anything"
        yield Finding(level="warn", what="chunks", detail=detail, hint="the next prune of these runs frees them")
    if free > _LARGE and free * 2 > total:
        named = " ".join(map(shlex.quote, growth.run_ids))
        end = "-- " if any(name.startswith("-") for name in growth.run_ids) else ""
        runs = "1 run" if len(growth.run_ids) == 1 else f"{len(growth.run_ids)} runs"
        yield Finding(
            level="warn", what="growth", detail=f"pruning {runs} to 10 checkpoints would free {sized(free)}",
            hint=f"holdfast prune --keep-last 10 --journal {end}{named}",
        )  # fmt: skip
    elif heavy:
        yield Finding(
            level="ok", what="growth", detail=f"pruning the biggest runs would free {sized(free)} of {sized(total)}"
        )

"""Health checks of a store, its runs and the system below.

The checks write nothing. A store may hold any number of runs, so runs are sampled: the newest, and the newest that have
not ended. Indexed rows (claims, gates, timers, messages) are read up to a limit. The report states how much was read.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from holdfast.clock import US
from holdfast.errors import DamagedData, HoldfastError
from holdfast.inspect.run_size import TOO_MANY, Growth, RunSize, estimate_growth, measure_biggest
from holdfast.limits import RESERVE_BYTES
from holdfast.model.rows import (
    READY,
    STATUSES,
    TERMINAL,
    CheckpointRow,
    EffectRow,
    GateRow,
    MessageRow,
    RunRow,
    TimerRow,
)
from holdfast.model.views import View
from holdfast.operations.checkpoint_needs import THREADS, Lineage
from holdfast.operations.context import StoreContext
from holdfast.operations.store import Store
from holdfast.runtime.replay_input import first_entry
from holdfast.store.capabilities import About, Diagnostics
from holdfast.store.checksum import verify_run
from holdfast.store.decide import is_live
from holdfast.store.port import RunQuery

PACKAGES: Final = ("apsw", "msgspec", "ormsgpack", "blake3", "psycopg", "psycopg-pool", "langgraph", "click", "rich")
NETWORK: Final = re.compile(
    r"nfs4?|cifs|smb[23]?|smbfs|9p|afs|ceph|lustre|gpfs|beegfs|davfs|virtiofs|vboxsf|drvfs|glusterfs"
    r"|fuse[.](glusterfs|sshfs|s3fs|rclone|gcsfuse)"
)
"""File systems on which locks or syncs may not be reliable."""


def versions() -> dict[str, str]:
    """The versions of Python, Holdfast and the installed packages it uses."""
    from holdfast import __version__

    found = {
        "holdfast": __version__,
        "python": platform.python_version(),
        "system": f"{sys.platform} {os.uname().release}",
    }
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def file_system_of(path: str, mounts: str = "/proc/self/mounts") -> str:
    """The type of the file system of a path; empty if it is not known."""
    try:
        text = Path(mounts).read_text("utf-8", "replace")
    except OSError:
        return ""
    place = os.path.realpath(path)
    found, longest = "", -1
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        at = fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        inside = place == at or place.startswith(at.rstrip("/") + "/")
        if inside and len(at) >= longest:  # of two mounts at one path the later one is visible
            found, longest = fields[2], len(at)
    return found


def free_bytes(path: str) -> int | None:
    """The free space on the disk of a path; None if it is not known."""
    place = path if os.path.exists(path) else os.path.dirname(path) or "."
    try:
        stat = os.statvfs(place)
    except OSError:
        return None
    return stat.f_bavail * stat.f_frsize


def format_bytes(count: int) -> str:
    """A number of bytes as text, such as 1.5 MB."""
    number, units = float(count), ["bytes", "KB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        units.pop(0)
    return f"{count} bytes" if units[0] == "bytes" else f"{number:.1f} {units[0]}"


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
_START_WORKER: Final = f"start a worker: {_WORKER}"

Level = Literal["ok", "warn", "bad"]


class Finding(View, frozen=True, kw_only=True):
    """The result of one check."""

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
    """Versions and settings of the database or file system below the store."""
    findings: tuple[Finding, ...]
    sampled: int
    """How many runs were read."""
    complete: bool
    """Whether these are all there are."""
    biggest: tuple[RunSize, ...]

    @property
    def bad(self) -> bool:
        """Whether a check found a fault."""
        return any(finding.level == "bad" for finding in self.findings)


def health(store: Store, source: str = "") -> Health:
    """Check a store.

    Example:
        [finding.what for finding in health(store).findings if finding.level != "ok"]
    """
    core = store.access.core
    about = core.port.describe() if isinstance(core.port, Diagnostics) else About({})
    sample = _sample(core)
    biggest = measure_biggest(core, sample.sound)
    findings = [
        *_check_system(about),
        *_check_clocks(core, about, sample),
        *_check_damage(sample),
        _check_lineage(core, sample),
        *_check_runs(core, sample),
        *_check_growth(biggest, estimate_growth(core, sample.sound, biggest)),
    ]
    return Health(
        url=store.url,
        source=source,
        versions=versions(),
        store=about.facts,
        findings=tuple(findings),
        sampled=len(sample.rows),
        complete=sample.complete,
        biggest=biggest,
    )


def unreachable(url: str, source: str, error: HoldfastError) -> Health:
    """The report on a store that cannot be opened."""
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


def _sample(core: StoreContext) -> _Sample:
    newest = core.port.runs(RunQuery(limit=SAMPLE))
    unended = core.port.runs(RunQuery(tuple(sorted(STATUSES - TERMINAL)), limit=SAMPLE))
    rows = list({row.run: row for row in (*newest, *unended)}.values())
    return _Sample(rows, [row for row in rows if _is_sound(row)], len(newest) < SAMPLE)


def _is_sound(row: RunRow) -> bool:
    try:
        verify_run(row)
    except DamagedData:
        return False
    return True


# --- the system ------------------------------------------------------------------------------------------------------


def _check_system(about: About) -> Iterator[Finding]:
    yield Finding(level="ok", what="store", detail="reachable" + _size_text(about))
    for risk in about.risks:
        hint = "until that is changed, acknowledged commits can be lost"
        yield Finding(level="bad", what="durability", detail=risk, hint=hint)
    if not about.risks:
        yield Finding(level="ok", what="durability", detail="every commit is synced before it is acknowledged")
    if about.path is None:
        return
    kind = file_system_of(about.path)
    if NETWORK.fullmatch(kind):
        hint = "move it to a local disk, or use postgresql://"
        yield Finding(
            level="bad", what="file system", detail=f"the store is on {kind}, a network file system", hint=hint
        )
    elif kind:
        yield Finding(level="ok", what="file system", detail=kind)
    free = free_bytes(about.path)
    if free is not None:
        hint = f"free some space or prune: saves are refused below {format_bytes(RESERVE_BYTES)}"
        yield Finding(
            level=_free_space_level(free),
            what="free space",
            detail=format_bytes(free),
            hint=hint if free < _SCARCE else "",
        )


def _free_space_level(free: int) -> Level:
    return "bad" if free < RESERVE_BYTES else "warn" if free < _SCARCE else "ok"


def _size_text(about: About) -> str:
    return "" if about.bytes is None else f", {format_bytes(about.bytes)}"


def _check_clocks(core: StoreContext, about: About, sample: _Sample) -> Iterator[Finding]:
    if about.clock_us is not None:
        ahead_us = about.clock_us - time.time_ns() // 1000
        off = abs(ahead_us) > _SKEW_US
        detail = f"the server's clock is {abs(ahead_us) / US:.1f} s {'ahead of' if ahead_us > 0 else 'behind'} this one"
        yield Finding(
            level="warn" if off else "ok",
            what="clock",
            detail=detail,
            hint="set the clocks by the same source (NTP); leases go by the server's" if off else "",
        )
    newest_us = max((row.updated_us for row in sample.sound), default=0)
    ahead_us = newest_us - core.clock.now_us()
    if ahead_us > _SKEW_US:
        yield Finding(
            level="warn",
            what="clock",
            detail=f"a run was written {ahead_us / US:.0f} s from now, by this clock",
            hint="the clock of this machine, or of one that writes here, is wrong",
        )


# --- the runs --------------------------------------------------------------------------------------------------------


def _check_damage(sample: _Sample) -> Iterator[Finding]:
    broken = len(sample.rows) - len(sample.sound)
    if broken:
        yield Finding(
            level="bad",
            what="damage",
            detail=f"{broken} of {len(sample.rows)} runs do not fit their checksums",
            hint="holdfast verify lists the damage",
        )


def _check_lineage(core: StoreContext, sample: _Sample) -> Finding:
    """Threads with checkpoints that cannot be read, because ancestors of their delta channels are missing."""
    threads = [row for row in sample.sound if row.workflow == THREADS]
    broken = [
        row.run_id
        for row in threads
        if Lineage(core, row).find_orphans(core.port.rows(CheckpointRow, row.run, 0, TOO_MANY))
    ]
    found = _finding_of(
        "ancestors",
        "checkpoints that delta channels need are missing",
        broken,
        "holdfast verify lists them; restore the runs from a backup or an archive",
    )
    return msgspec.structs.replace(found, level="bad") if broken else found


def _check_runs(core: StoreContext, sample: _Sample) -> Iterator[Finding]:
    port, now_us = core.port, core.clock.now_us()
    held = port.runs(RunQuery(claimed="any", limit=LISTED))
    gone = core.liveness.dead_owners({row.owner for row in held})
    stuck = [row.run_id for row in held if not is_live(row, core.clock.lease_time) or row.owner in gone]
    yield _finding_of(
        "claims",
        "the lease has expired or the owner is dead",
        stuck,
        "start a worker, holdfast worker --app …, or run holdfast resume RUN",
    )
    doubtful = [row.run_id for row in sample.sound if row.effects and _in_doubt(core, row)]
    yield _finding_of(
        "effects",
        "effects are in doubt",
        doubtful,
        "find out whether they happened: holdfast effects RUN, holdfast gates",
    )
    overdue = [run.run_id for run, _ in port.due(GateRow, LISTED)]
    yield _finding_of("gates", "a gate has expired and no worker has processed it", overdue, _START_WORKER)
    late = [run.run_id for run, timer in port.due(TimerRow, LISTED) if now_us - timer.due_us > _LATE_US]
    yield _finding_of("timers", "a timer has been due for more than a minute", late, _START_WORKER)
    undelivered = [
        run.run_id for run, message in port.due(MessageRow, LISTED) if now_us - message.created_us > _LATE_US
    ]
    yield _finding_of("outbox", "a message has been undelivered for more than a minute", undelivered, _START_WORKER)
    waiting = [row for row in sample.sound if row.status == READY and now_us - row.ready_us > _LATE_US]
    ready = [row.run_id for row in waiting if first_entry(core, row)]
    yield _finding_of(
        "ready runs",
        "ready for more than a minute, and no worker takes it",
        ready,
        f"start a worker that knows the workflow: {_WORKER}",
    )


def _in_doubt(core: StoreContext, row: RunRow) -> bool:
    return any(line.state == "intent" for line in core.port.rows(EffectRow, row.run))


def _finding_of(what: str, problem: str, run_ids: list[str], hint: str) -> Finding:
    found = list(dict.fromkeys(run_ids))
    if not found:
        return Finding(level="ok", what=what, detail="no problems found")
    named = ", ".join(found[:_NAMED]) + (", …" if len(found) > _NAMED else "")
    many = f"{LISTED} or more" if len(run_ids) >= LISTED else str(len(found))
    count = "1 run" if many == "1" else f"{many} runs"
    return Finding(level="warn", what=what, detail=f"{count}: {problem}: {named}", hint=hint)


def _check_growth(biggest: tuple[RunSize, ...], growth: Growth) -> Iterator[Finding]:
    unused = sum(run.unused_chunks for run in biggest)
    free, total = growth.bytes, sum(run.bytes or 0 for run in biggest)
    if unused:
        detail = f"{unused} chunks of the biggest runs are not referenced"
        yield Finding(level="warn", what="chunks", detail=detail, hint="the next prune of these runs frees them")
    if free > _LARGE and free * 2 > total:
        named = " ".join(map(shlex.quote, growth.run_ids))
        end = "-- " if any(name.startswith("-") for name in growth.run_ids) else ""
        runs = "1 run" if len(growth.run_ids) == 1 else f"{len(growth.run_ids)} runs"
        yield Finding(
            level="warn",
            what="growth",
            detail=f"pruning {runs} to 10 checkpoints would free {format_bytes(free)}",
            hint=f"holdfast prune --keep-last 10 --journal {end}{named}",
        )
    elif biggest:
        yield Finding(
            level="ok",
            what="growth",
            detail=f"pruning the biggest runs would free {format_bytes(free)} of {format_bytes(total)}",
        )

"""What people type for a run or a checkpoint, and what it means.

    order-17            the run of that id
    ord                 the only run whose id begins so
    @latest             the newest run
    RUN~2               two checkpoints before the newest of the run's default lane
    RUN@42              the checkpoint that covers position 42 of the journal, or the newest before it
    RUN:3.0a1b2c3d4e    the checkpoint of that id

An id may have any of these signs in it. So what is written is taken for an id as it stands first; then a run of
exactly the id before a sign counts; only then beginnings of ids. With `whole=True` beginnings mean nothing: a command
that changes a run must not change another one because the run it names is gone.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from typing import Final

from holdfast.errors import AmbiguousId, CheckpointNotFound, InvalidCursor, InvalidInput, RunNotFound
from holdfast.ids import check_id
from holdfast.limits import NUMBER_MAX
from holdfast.model.rows import CheckpointRow, RunRow
from holdfast.model.views import CheckpointInfo, RunInfo, View
from holdfast.store.port import CheckpointQuery, RunQuery, Select
from holdfast.verbs.core import Core
from holdfast.verbs.reading import find_checkpoint, known_run
from holdfast.verbs.shown import checked_checkpoint, checkpoint_info, run_info
from holdfast.verbs.store import Store

LATEST: Final = "@latest"
_CANDIDATES: Final = 5
_NEAR: Final = 3
_LOOKED_AT: Final = 200
"""How many of the newest runs are looked at for an id that resembles one that is not there."""
_BACK_MAX: Final = 10_000
_COUNTED: Final = re.compile(r"(?P<run>.+)(?P<sign>[~@])(?P<number>[0-9]{0,10})\Z", re.DOTALL)


class Located(View, frozen=True, kw_only=True):
    """A run, and the checkpoint of it that is meant: the newest of its default lane, if nothing else is said."""

    run: RunInfo
    checkpoint: CheckpointInfo | None
    """None: the run has none yet."""


def run_of(store: Store, text: str, *, whole: bool = False) -> str:
    """The id of the run that is meant by `text`.

    Raises AmbiguousId if several begin so, RunNotFound with ids that resemble it if none does. With `whole`, `text`
    must be the whole id or `@latest`; RunNotFound then names the runs whose ids begin so.

    Example:
        run_of(store, "ord")
    """
    core = store._place.core
    found = _exact(core, text) or (None if whole else _by_beginning(core, text))
    if found is None:
        raise RunNotFound(text, _near(core, text, whole=whole), whole=whole)
    return found.run_id


def checkpoint_of(store: Store, text: str, *, whole: bool = False) -> Located:
    """The run and the checkpoint that are meant by `text`. With `whole`, the run's id must not be abbreviated.

    Example:
        checkpoint_of(store, "order-17~2").checkpoint
    """
    core = store._place.core
    missing: CheckpointNotFound | InvalidCursor | None = None
    for find in (_exact,) if whole else (_exact, _by_beginning):
        run = find(core, text)
        if run is not None:
            return _located(core, run, _newest(core, run))
        for look in _meanings(core, text, find) if missing is None else ():
            try:
                return look()
            except (CheckpointNotFound, InvalidCursor) as error:  # perhaps it means something else
                missing = missing or error
    raise missing or RunNotFound(text, _near(core, text, whole=whole), whole=whole)


# --- runs ------------------------------------------------------------------------------------------------------------

Find = Callable[[Core, str], RunRow | None]


def _exact(core: Core, text: str) -> RunRow | None:
    """The run of this id, or the newest of all."""
    check_id("run", text)
    found = core.port.run(text)
    if found is None and text == LATEST:
        newest = core.port.runs(RunQuery(limit=1))
        if not newest:
            raise RunNotFound(text)
        found = newest[0]
    return found


def _by_beginning(core: Core, text: str) -> RunRow | None:
    """The only run whose id begins so."""
    rows = core.port.runs(RunQuery(prefix=text, limit=_CANDIDATES + 1))
    if len(rows) > 1:
        ids = tuple(row.run_id for row in rows[:_CANDIDATES])
        raise AmbiguousId(text, ids, more=len(rows) > _CANDIDATES)
    return rows[0] if rows else None


def _near(core: Core, text: str, *, whole: bool) -> tuple[str, ...]:
    """Ids that resemble the text; of those that begin so, the newest."""
    begun = core.port.runs(RunQuery(prefix=text, limit=_NEAR)) if whole else []
    if begun:
        return tuple(row.run_id for row in begun)
    ids = [row.run_id for row in core.port.runs(RunQuery(limit=_LOOKED_AT))]
    return tuple(difflib.get_close_matches(text, ids, n=_NEAR))


# --- checkpoints -----------------------------------------------------------------------------------------------------


def _meanings(core: Core, text: str, find: Find) -> Iterator[Callable[[], Located]]:
    """All that the text can mean if what stands before one of its signs is a run."""
    counted = _COUNTED.match(text)
    if counted is not None and (counted["number"] or counted["sign"] == "~"):
        run = find(core, counted["run"])
        if run is not None:
            look = _back if counted["sign"] == "~" else _covering
            yield lambda: _located(core, run, look(core, run, int(counted["number"] or 1)))
    for name, checkpoint_id in _splits(text):
        found = find(core, name)
        if found is not None:
            yield lambda run=found, wanted=checkpoint_id: _located(core, run, _named(core, run, wanted))  # type: ignore[misc]


def _splits(text: str) -> Iterator[tuple[str, str]]:
    """All ways to take the text for a run and a checkpoint, the longest run first."""
    at = text.rfind(":")
    while at > 0:
        if at < len(text) - 1:
            yield text[:at], text[at + 1 :]
        at = text.rfind(":", 0, at)


def _located(core: Core, run: RunRow, row: CheckpointRow | None) -> Located:
    run = known_run(core, run.run_id)
    info = None if row is None else checkpoint_info(run, checked_checkpoint(run, row))
    return Located(run=run_info(run), checkpoint=info)


def _newest(core: Core, run: RunRow) -> CheckpointRow | None:
    found = find_checkpoint(core, run.run_id, Select())
    return found[1] if found is not None else None


def _back(core: Core, run: RunRow, back: int) -> CheckpointRow:
    if back > _BACK_MAX:
        raise InvalidInput(f"at most {_BACK_MAX} checkpoints can be counted back, not {back}")
    found = core.port.find_checkpoints(CheckpointQuery(run.run_id, lane="", limit=back + 1))
    if len(found) <= back:
        there = f"there are {len(found)}" if found else "it has none"
        raise CheckpointNotFound(run.run_id, f"{back} before its newest ({there})")
    return found[back][1]


def _covering(core: Core, run: RunRow, position: int) -> CheckpointRow:
    if position > run.position:
        raise InvalidCursor(f"run {run.run_id!r} ends at position {run.position}, not at {position}")
    found = core.port.checkpoint(run.run_id, Select(at=min(position, NUMBER_MAX)))
    if found is None or found[1] is None:
        raise CheckpointNotFound(run.run_id, f"at or before position {position}")
    return found[1]


def _named(core: Core, run: RunRow, checkpoint_id: str) -> CheckpointRow:
    """The checkpoint of this id, on the default lane if it is there, else the newest on another."""
    found = core.port.checkpoint(run.run_id, Select(checkpoint_id=checkpoint_id))
    if found is not None and found[1] is not None:
        return found[1]
    rows = core.port.find_checkpoints(CheckpointQuery(run.run_id, checkpoint_id=checkpoint_id, limit=1))
    if not rows:
        raise CheckpointNotFound(run.run_id, repr(checkpoint_id))
    return rows[0][1]

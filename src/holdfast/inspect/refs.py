"""References to runs and checkpoints, as users type them.

    order-17            the run of that id
    ord                 the only run whose id begins with it
    @latest             the newest run
    RUN~2               two checkpoints before the newest of the run's default lane
    RUN@42              the checkpoint that covers position 42 of the journal, or the newest before it
    RUN:3.0a1b2c3d4e    the checkpoint of that id

An id may contain any of these characters. So the text is first taken as a whole id, then as the whole id of a run
before a separator, and only then as the beginning of an id. With `whole=True` beginnings are not accepted: a command
that changes a run must not change another run because the one it names was removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from holdfast.errors import AmbiguousId, CheckpointNotFound, InvalidCursor, InvalidInput, RunNotFound
from holdfast.errors.store import close_matches
from holdfast.ids import check_id
from holdfast.inspect.threads import THREADS, stored_state
from holdfast.limits import NUMBER_MAX
from holdfast.model.rows import CheckpointRow, RunRow
from holdfast.model.views import Change, CheckpointInfo, RunInfo, View
from holdfast.operations.context import StoreContext
from holdfast.operations.read import find_checkpoint, known_run, retry_if_changed
from holdfast.operations.store_reads import StoreReads
from holdfast.operations.views import checked_checkpoint, checkpoint_info, run_info
from holdfast.state.diff import compare, diff
from holdfast.store.port import CheckpointQuery, RunQuery, Select

LATEST: Final = "@latest"
_CANDIDATES: Final = 5
_NEAR: Final = 3
_COMPARED: Final = 200
"""How many of the newest runs are searched for ids that resemble an unknown one."""
_BACK_MAX: Final = 10_000
Choose = Callable[[StoreContext, RunRow, str], CheckpointRow]
_COUNTED: Final = re.compile(r"(?P<run>.+)(?P<sign>[~@])(?P<number>[0-9]{0,10})\Z", re.DOTALL)


class Located(View, frozen=True, kw_only=True):
    """A run and one of its checkpoints: by default the newest of its default lane."""

    run: RunInfo
    checkpoint: CheckpointInfo | None
    """None: the run has none yet."""


def run_of(store: StoreReads, text: str, *, whole: bool = False) -> str:
    """Return the id of the run that `text` names.

    Raises AmbiguousId if several ids begin with it, RunNotFound, with similar ids, if none does. With `whole`, `text`
    must be a whole id or `@latest`; RunNotFound then names the runs whose ids begin with it.

    Example:
        run_of(store, "ord")
    """
    core = store.access.core
    found = _find_exact(core, text) or (None if whole else _find_by_prefix(core, text))
    if found is None:
        raise RunNotFound(text, _similar_ids(core, text, whole=whole), whole=whole)
    return found.run_id


def checkpoint_of(store: StoreReads, text: str, *, whole: bool = False) -> Located:
    """Return the run and the checkpoint that `text` names. With `whole`, the id of the run must not be abbreviated.

    Example:
        checkpoint_of(store, "order-17~2").checkpoint
    """
    core = store.access.core
    missing: CheckpointNotFound | InvalidCursor | None = None
    for find in (_find_exact,) if whole else (_find_exact, _find_by_prefix):
        run = find(core, text)
        if run is not None:
            newest = find_checkpoint(core, run.run_id, Select())
            return _located(core, run, None if newest is None else newest[1])
        for name, choose, which in _splits(text) if missing is None else ():
            run = find(core, name)
            try:
                if run is not None:
                    return _located(core, run, choose(core, run, which))
            except (CheckpointNotFound, InvalidCursor) as error:  # another meaning may fit
                missing = missing or error
    raise missing or RunNotFound(text, _similar_ids(core, text, whole=whole), whole=whole)


def _find_exact(core: StoreContext, text: str) -> RunRow | None:
    """Return the run of this id, or the newest run for `@latest`."""
    check_id("run", text)
    found = core.port.run(text)
    if found is None and text == LATEST:
        newest = core.port.runs(RunQuery(limit=1))
        if not newest:
            raise RunNotFound(text)
        found = newest[0]
    return found


def _find_by_prefix(core: StoreContext, text: str) -> RunRow | None:
    """Return the only run whose id begins with the text."""
    rows = core.port.runs(RunQuery(prefix=text, limit=_CANDIDATES + 1))
    if len(rows) > 1:
        raise AmbiguousId(text, tuple(row.run_id for row in rows[:_CANDIDATES]), more=len(rows) > _CANDIDATES)
    return rows[0] if rows else None


def _similar_ids(core: StoreContext, text: str, *, whole: bool) -> tuple[str, ...]:
    """Return ids that resemble the text; with `whole`, the newest that begin with it."""
    begun = [row.run_id for row in core.port.runs(RunQuery(prefix=text, limit=_NEAR))] if whole else []
    recent = RunQuery(limit=_COMPARED)
    return tuple(begun or close_matches(text, [row.run_id for row in core.port.runs(recent)]))


def _splits(text: str) -> Iterator[tuple[str, Choose, str]]:
    """Iterate over the ways to split the text into a run and which of its checkpoints, the longest run first."""
    counted = _COUNTED.match(text)
    if counted is not None and (counted["number"] or counted["sign"] == "~"):
        yield counted["run"], _steps_back if counted["sign"] == "~" else _covering, counted["number"] or "1"
    for at in range(len(text) - 2, 0, -1):
        if text[at] == ":":
            yield text[:at], _find_checkpoint, text[at + 1 :]


def _located(core: StoreContext, run: RunRow, row: CheckpointRow | None) -> Located:
    run = known_run(core, run.run_id)
    info = None if row is None else checkpoint_info(run, checked_checkpoint(run, row))
    return Located(run=run_info(run), checkpoint=info)


def _steps_back(core: StoreContext, run: RunRow, number: str) -> CheckpointRow:
    back = int(number)
    if back > _BACK_MAX:
        raise InvalidInput(f"at most {_BACK_MAX} checkpoints can be counted back, not {back}")
    found = core.port.find_checkpoints(CheckpointQuery(run.run_id, lane="", limit=back + 1))
    if len(found) <= back:
        there = f"there are {len(found)}" if found else "it has none"
        raise CheckpointNotFound(run.run_id, f"{back} before its newest ({there})")
    return found[back][1]


def _covering(core: StoreContext, run: RunRow, number: str) -> CheckpointRow:
    position = int(number)
    if position > run.position:
        raise InvalidCursor(f"run {run.run_id!r} ends at position {run.position}, not at {position}")
    found = core.port.checkpoint(run.run_id, Select(at=min(position, NUMBER_MAX)))
    if found is None or found[1] is None:
        raise CheckpointNotFound(run.run_id, f"at or before position {position}")
    return found[1]


def _find_checkpoint(core: StoreContext, run: RunRow, checkpoint_id: str) -> CheckpointRow:
    """Return the checkpoint of this id, on the default lane if it is there, else the newest on another."""
    found = core.port.checkpoint(run.run_id, Select(checkpoint_id=checkpoint_id))
    if found is not None and found[1] is not None:
        return found[1]
    rows = core.port.find_checkpoints(CheckpointQuery(run.run_id, checkpoint_id=checkpoint_id, limit=1))
    if not rows:
        raise CheckpointNotFound(run.run_id, repr(checkpoint_id))
    return rows[0][1]


def changes_between(store: StoreReads, old: Located, new: Located) -> list[Change]:
    """Return the changes from the state of one checkpoint to that of another. Only what differs is read.

    Chunks of state are named by their content in every family, so checkpoints of two runs are compared in the same way.
    For LangGraph threads the values of the channels are compared, as `show --state` shows them.

    Example:
        changes_between(store, checkpoint_of(store, "order-17~2"), checkpoint_of(store, "order-17"))
    """
    core = store.access.core
    return retry_if_changed(core, old.run.run_id, lambda: _changes(core, old, new))


def _changes(core: StoreContext, old: Located, new: Located) -> list[Change]:
    (first, before), (second, after) = _row(core, old), _row(core, new)
    if first.workflow == second.workflow == THREADS:
        return compare(stored_state(core, first, before), stored_state(core, second, after))

    fetch_first, fetch_second = core.fetch(first.family), core.fetch(second.family)

    def fetch(hashes: list[bytes]) -> Mapping[bytes, bytes]:
        found = fetch_first(hashes)
        missing = [name for name in hashes if name not in found]
        return {**found, **fetch_second(missing)} if missing else found

    place = f"run {first.run_id!r}" if first.run == second.run else f"runs {first.run_id!r} and {second.run_id!r}"
    return diff(before.root, after.root, fetch, place)


def _row(core: StoreContext, located: Located) -> tuple[RunRow, CheckpointRow]:
    info, run_id = located.checkpoint, located.run.run_id
    found = None if info is None else find_checkpoint(core, run_id, Select(info.lane, info.checkpoint_id))
    if found is None:
        raise CheckpointNotFound(run_id, "yet" if info is None else repr(info.checkpoint_id))
    return found

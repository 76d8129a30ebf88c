"""What differs between two states, of one run or of two: as changes, and as a JSON Patch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.errors import CheckpointNotFound
from holdfast.inspect.refs import Located
from holdfast.inspect.threads import THREADS, stored_state
from holdfast.model.rows import CheckpointRow, RunRow
from holdfast.model.views import Change
from holdfast.state.diff import compare, diff
from holdfast.state.readable import shown
from holdfast.store.port import Select
from holdfast.verbs.core import Core
from holdfast.verbs.reading import find_checkpoint, in_peace
from holdfast.verbs.store import Store


def changes_between(store: Store, old: Located, new: Located) -> list[Change]:
    """The changes that make the state of one checkpoint that of the other. Only what differs is read.

    Pieces of state are named by their content, in every family the same, so two runs are compared as one is. Of threads
    of LangGraph the values of the channels are compared, as `show --state` shows them.

    Example:
        changes_between(store, checkpoint_of(store, "order-17~2"), checkpoint_of(store, "order-17"))
    """
    core = store._place.core
    return in_peace(core, old.run.run_id, lambda: _changes(core, old, new))


def _changes(core: Core, old: Located, new: Located) -> list[Change]:
    (first, before), (second, after) = _row(core, old), _row(core, new)
    if first.workflow == second.workflow == THREADS:
        return compare(*(stored_state(core, run, row) for run, row in ((first, before), (second, after))))

    def fetch(hashes: list[bytes]) -> dict[bytes, bytes]:
        found = core.port.chunks(first.family, hashes)
        missing = [name for name in hashes if name not in found]
        return {**found, **core.port.chunks(second.family, missing)} if missing else found

    place = f"run {first.run_id!r}" if first.run == second.run else f"runs {first.run_id!r} and {second.run_id!r}"
    return diff(before.root, after.root, fetch, place)


def _row(core: Core, located: Located) -> tuple[RunRow, CheckpointRow]:
    info = located.checkpoint
    if info is None:
        raise CheckpointNotFound(located.run.run_id, "yet")
    found = find_checkpoint(core, located.run.run_id, Select(info.lane, info.checkpoint_id))
    if found is None:
        raise CheckpointNotFound(located.run.run_id, repr(info.checkpoint_id))
    return found


def json_patch(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """Changes as a JSON Patch (RFC 6902), for states as `holdfast.state.readable` shows them.

    Example:
        json.dumps(json_patch(store.diff("order-17", 1, 2)))
    """
    return [
        {"op": change.op, "path": change.pointer, **({} if change.op == "remove" else {"value": shown(change.new)})}
        for change in changes
    ]

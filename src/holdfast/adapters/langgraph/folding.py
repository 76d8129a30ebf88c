"""Folds made ahead of a prune: with them, ancestors that delta channels are computed from can go.

`saver.prune` and `saver.retain` make folds themselves. These are for `holdfast prune --fold`: the fold is stored first,
and the prune that follows finds by it that the ancestors are not needed any more.
"""

from __future__ import annotations

from functools import partial

from holdfast.adapters.langgraph.delta import in_peace
from holdfast.adapters.langgraph.removing import _fold, _folded, _left_alone
from holdfast.adapters.langgraph.writing import FINE
from holdfast.model.rows import CheckpointRow, RunRow
from holdfast.model.views import Keep
from holdfast.state.encoder import encode
from holdfast.verbs.core import Core, Place
from holdfast.verbs.keeping import reasons_to_keep
from holdfast.verbs.plans import Plan
from holdfast.verbs.reading import known_run


def fold(place: Place, thread_id: str, keep: Keep) -> Plan[None]:
    """Store folds beside the checkpoints of a thread that `keep` keeps and whose parents it does not."""
    run, rows, gone = yield lambda: _choose(place.core, thread_id, keep)
    yield from _folded(place, run, rows, gone)


def plan_fold(core: Core, thread_id: str, keep: Keep) -> set[bytes]:
    """The hashes of the chunks that such folds would consist of."""
    run, rows, gone = _choose(core, thread_id, keep)
    found: set[bytes] = set()
    for row in _left_alone(rows, gone):
        value = in_peace(core, thread_id, partial(_fold, core, run, row))
        if value is not None:
            found |= encode(value, None, frozenset(), FINE).chunks.keys()
    return found


def _choose(core: Core, thread_id: str, keep: Keep) -> tuple[RunRow, list[CheckpointRow], set[int]]:
    """The thread, its checkpoints, and the numbers of those that would go."""
    run = known_run(core, thread_id)
    rows = core.port.checkpoints(run.run, 0, -1)
    kept = reasons_to_keep(keep, rows, core.port.effects(run.run), None)
    return run, rows, {row.number for row in rows if row.number not in kept}

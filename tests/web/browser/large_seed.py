"""Large stores: 10,000 open gates, and a run with 10,000 entries."""

from __future__ import annotations

from typing import Final

import holdfast
from holdfast.model.commit import Committed, NewRun
from holdfast.operations.fork import recreate
from tests.web.browser.seed import app_on

MANY: Final = 10_000
LONG_RUN: Final = "agent-10k"
_BATCH: Final = 500


def seed_gates(url: str, count: int = MANY) -> None:
    """Open a gate of each of `count` runs of the workflow refund: the rows of one are multiplied."""
    with holdfast.open(url) as store, app_on(store) as app:
        app.start("refund", "0", run_id="many-0")
        rows = store.port.run_rows("many-0")
        assert rows is not None
        commits = [recreate(store.access, rows, f"many-{number}", NewRun(True)) for number in range(1, count)]
        for start in range(0, len(commits), _BATCH):
            outcomes = store.port.commit(commits[start : start + _BATCH])
            assert all(type(outcome) is Committed for outcome in outcomes)


def seed_long_run(url: str) -> None:
    """A run of the workflow agent whose journal has more than 10,000 entries."""
    with app_on(url) as app:
        app.start("agent", "Where is my parcel?", MANY * 10 // 21, run_id=LONG_RUN)
        assert app.handle(LONG_RUN).info().position >= MANY

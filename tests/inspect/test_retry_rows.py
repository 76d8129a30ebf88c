"""The retry of a failed run is recorded like a rollback, and shown as a retry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast.inspect.calls import is_retry
from holdfast.inspect.family import family
from holdfast.inspect.timeline import timeline


@pytest.fixture
def app() -> Iterator[holdfast.App]:
    with holdfast.App("memory:") as found:
        broken = [True]

        def flaky() -> int:
            if broken.pop() if broken else False:
                raise ValueError("no")
            return 7

        @found.workflow
        def work(run: Any) -> Any:
            run.state["begun"] = True
            run.checkpoint()
            return run.step(flaky)

        yield found


def test_a_retry_is_a_retry_in_timeline_journal_and_family(app: holdfast.App) -> None:
    app.start("work", run_id="r")
    assert app.retry("r", by="ana").result() == 7
    (row,) = [row for row in timeline(app.store, "r").rows if row.kind == "rollback"]
    assert (row.name, row.text, row.by) == ("retry", "from the call that failed; finished work is kept", "ana")
    entries = [entry for entry in app.store.journal("r") if entry.kind in ("rolling_back", "rolled_back")]
    assert [is_retry(entry.kind, entry.data) for entry in entries] == [True, True]
    nodes = [node for branch in family(app.store, "r").branches for node in branch.nodes if node.kind == "rollback"]
    assert [node.is_retry for node in nodes] == [True]


def test_a_rollback_and_a_record_without_the_field_keep_their_text(app: holdfast.App) -> None:
    app.start("work", run_id="r")
    app.rollback("r", 2, by="ana")
    (row,) = [row for row in timeline(app.store, "r").rows if row.kind == "rollback"]
    assert (row.name, row.text) == ("rollback", "to position 2")
    assert not is_retry("rolled_back", {"to": 2})
    assert not is_retry("mine", {"retry": True})

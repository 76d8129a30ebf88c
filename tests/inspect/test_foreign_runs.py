"""Runs that no workflow of ours made: threads of LangGraph, and what was imported from other systems."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

import holdfast
from holdfast import formats
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.errors import DamagedData
from holdfast.inspect.health import health
from holdfast.inspect.refs import changes_between, checkpoint_of
from holdfast.inspect.status import gates_of
from holdfast.inspect.timeline import timeline
from holdfast.inspect.views import as_data
from tests.adapters.langgraph.material import chat, config, said
from tests.formats.sample_files import SAMPLES
from tests.golden.threads import approval


def test_a_thread_of_langgraph_has_a_row_for_each_checkpoint() -> None:
    with holdfast.open("memory:") as store:
        graph = chat(HoldfastSaver(store))
        for n in range(2):
            graph.invoke(said(f"hello {n}"), config("thread-1"))
        seen = timeline(store, "thread-1")
        json.dumps(as_data(seen))
        assert {row.kind for row in seen.rows} == {"checkpoint"}
        assert len(seen.rows) == len(list(store.history("thread-1")))
        assert seen.rows[-1].result["source"] == "loop"
        assert seen.standing.commands == (("holdfast", "show", "thread-1", "--state"),)
        assert changes_between(store, checkpoint_of(store, "thread-1~1"), checkpoint_of(store, "thread-1"))
        trouble = {finding.what for finding in health(store).findings if finding.level != "ok"}
        assert trouble == {"durability"}, "it is kept in memory; nothing else is wrong"


@pytest.mark.parametrize(("system", "folder"), [
    ("car", "seed0-car"), ("simple_agents", "seed1-simple-agents"), ("brainwires", "seed2-brainwires"),
    ("clawdia", "seed4-agent-sdk"),
])  # fmt: skip
def test_what_was_imported_has_a_timeline(system: str, folder: str) -> None:
    with holdfast.open("memory:") as store:
        formats.import_dir(system, SAMPLES / folder, store)
        runs = store.runs()
        assert runs
        for run in runs:
            seen = timeline(store, run.run_id)
            json.dumps(as_data(seen))
            assert seen.rows, run.run_id
            told = {row.checkpoint_id for row in seen.rows if row.checkpoint_id}
            assert told == {info.checkpoint_id for info in store.history(run.run_id)}, "every checkpoint is in a row"
            assert seen.standing.sentence


def test_what_an_imported_run_waited_before_the_import_counts_everywhere() -> None:
    with holdfast.open("memory:") as store:
        formats.import_dir("car", SAMPLES / "seed0-car", store)
        (name,) = [run.run_id for run in store.runs(status="waiting")][:1]
        seen = timeline(store, name)
        gaps = [row.duration_us or 0 for row in seen.rows if row.kind == "gap"]
        assert sum(gaps) > 86_400_000_000, "the sample is older than a day"
        assert seen.idle_us == seen.waited_us == sum(gaps)
        with holdfast.open("memory:") as other:
            other.import_run(store.export_run(name))
            assert timeline(other, name).idle_us >= seen.idle_us


def test_an_imported_gate_can_be_answered() -> None:
    with holdfast.open("memory:") as store:
        formats.import_dir("car", SAMPLES / "seed0-car", store)
        waiting = [timeline(store, run.run_id) for run in store.runs(status="waiting")]
        assert waiting
        assert all(seen.standing.commands[0][:2] == ("holdfast", "answer") for seen in waiting)


def test_a_damaged_thread_hides_no_gate_of_another_run(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'runs.db'}"
    with HoldfastSaver(url) as saver:
        for order in ("A-17", "B-18"):
            approval(saver).invoke({"order": order}, config(order))
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as db, db:
        changed = db.execute(
            "UPDATE attachments SET seal = seal + 1 WHERE run = (SELECT run FROM runs WHERE run_id = 'A-17')"
        )
        assert changed.rowcount
    with holdfast.open(url) as store:
        found = {gate.run_id: gate.prompt for gate in gates_of(store)}
        assert set(found) == {"A-17", "B-18"}
        assert found["A-17"].startswith("damaged: ")
        assert not found["B-18"].startswith("damaged: ")
        with pytest.raises(DamagedData):
            gates_of(store, "A-17")

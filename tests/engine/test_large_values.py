"""Large results, answers and events: on every store, within the documented memory, and refused with advice above."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import App, Run, StepFailed
from holdfast.errors import LimitExceeded
from holdfast.operations import views
from holdfast.runtime import replay_input
from holdfast.state import values
from tests.folders import quick_folder
from tests.store.postgres.shared_servers import new_url

_MIB = 1024 * 1024
_SIZE = 17 * _MIB
_NOISE = os.urandom(_SIZE)
"""Does not compress, so all of it reaches the store."""


@pytest.fixture(params=["memory", "sqlite", "dir", "postgres"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with quick_folder("large") as folder:
        places = {"memory": "memory:", "postgres": ""}
        yield new_url() if request.param == "postgres" else places.get(request.param) or f"{request.param}:{folder}/x"


def deal(run: Run) -> bytes:
    """Everything a run can receive or give, large."""
    found = run.step(lambda: _NOISE)
    assert run.effect(lambda: _NOISE) == found
    assert run.child("make") == found
    assert run.wait_for("parcel") == found
    assert run.ask("Which text?", str) == "é" * (_SIZE // 2)
    return found


def app_on(store: holdfast.Store) -> App:
    app = App(store)
    app.workflow(name="make")(lambda run: _NOISE)
    app.workflow(deal)
    return app


@pytest.mark.torture(daily=2, by="url")
def test_results_answers_and_events_above_sixteen_mib_are_kept_on_every_store(url: str) -> None:
    with holdfast.open(url) as store:
        app_on(store).start("deal", run_id="run")
        app_on(store).send("run", "parcel", _NOISE)
        handle = app_on(store).answer("run", "é" * (_SIZE // 2))
        assert handle.result() == _NOISE
        assert store.effects("run")[0].result == _NOISE
        archive = store.export_run("run")
        assert store.verify().ok
        with holdfast.open("memory:") as other:
            other.import_run(archive, run_id="copy")
            assert [entry.data for entry in other.journal("copy")] == [entry.data for entry in store.journal("run")]


_WORK = """
import resource, sys
import holdfast

noise = bytes(range(256)) * 4096

def work(run):
    big = run.step(lambda: noise * 255)
    size = len(big)
    del big
    run.ask("go on?", bool)
    return size

with holdfast.App(sys.argv[1]) as app:
    app.workflow(work)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if app.start("work", run_id="run").status() == "waiting" and sys.argv[2] == "end":
        assert app.answer("run", True).result() == 255 * 2**20
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_result_of_almost_256_mib_is_written_and_read_within_four_times_its_size(tmp_path: Path) -> None:
    with quick_folder("largest") as folder:
        for phase in ("begin", "end"):
            done = subprocess.run(
                [sys.executable, "-c", _WORK, f"sqlite:{folder}/runs.db", phase],
                capture_output=True, text=True, check=False, cwd=tmp_path,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            assert int(done.stdout) * 1024 < 4 * 256 * _MIB


def test_the_error_above_the_limit_says_how_large_it_is_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_input, "_VALUE_BYTES_MAX", 1000)
    monkeypatch.setattr(views, "VALUE_BYTES_MAX", 1000)
    advice = "store the data elsewhere .* and record its location, or split it"
    with holdfast.open("memory:") as store:
        with pytest.raises(LimitExceeded, match=f"a journal entry has 20[0-9]+ bytes .* at most 1000 .* {advice}"):
            store.append("run", [{"kind": "a", "text": "x" * 2000}])
        app = App(store)

        @app.workflow
        def work(run: Run) -> None:
            with pytest.raises(StepFailed, match=f"a value has 20[0-9]+ bytes .* at most 1000 .* {advice}"):
                run.step(lambda: "x" * 2000)

        assert app.start(work).status() == "completed"


def _rows() -> dict[str, object]:
    return {"rows": [{"id": i, "when": dt.timedelta(seconds=i), "text": "q" * 200} for i in range(2_000)], "n": (1, 2)}


@pytest.mark.parametrize("call", ["step", "effect", "end"])
def test_a_large_result_is_packed_once_and_live_equals_replay(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[int] = []
    packb = values._packb

    def counting(*args: Any) -> bytes:
        data: bytes = packb(*args)
        packed.append(len(data))
        return data

    live: list[object] = []

    def work(run: Run) -> object:
        packed.clear()
        if call == "end":
            return _rows()
        live.append(getattr(run, call)(_rows))
        return None

    monkeypatch.setattr(values, "_packb", counting)
    with holdfast.open("memory:") as store:
        app = App(store)
        app.workflow(work)
        result = app.start("work", run_id="run").result()
        kind = {"step": "step", "effect": "outcome", "end": "completed"}[call]
        recorded = [entry for entry in store.journal("run") if entry.kind == kind]
        size = len(packb(_rows(), values._to_ext, values._OPTIONS))
        assert sum(packed) < 1.01 * size + 1_000
        assert recorded[0].data["result"] == (result if call == "end" else live[0]) == _rows()
        assert list(recorded[0].data)[:2] == ["kind", "result" if call == "end" else "call"]
        if call == "effect":
            assert store.effects("run")[0].result == _rows()
        assert store.verify().ok

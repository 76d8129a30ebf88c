"""Workers that know workflows only by what their runs carry."""

from __future__ import annotations

from typing import Any

from holdfast import App
from holdfast.errors import StorageFailed


def test_a_run_is_adopted_after_the_store_was_in_trouble_once(tmp_path: Any, monkeypatch: Any) -> None:
    from holdfast.runtime import graph_migration

    url = f"sqlite:{tmp_path / 'r.db'}"
    real, times = graph_migration.adopt_workflow, []

    def adopted(app: Any, run_id: str) -> Any:
        times.append(run_id)
        if len(times) == 1:
            raise StorageFailed("the disk was busy for a moment")
        return (yield from real(app, run_id))

    monkeypatch.setattr(graph_migration, "adopt_workflow", adopted)
    with App(url) as maker, App(url) as other:
        maker.graph({"id": "f", "stages": [{"id": "end", "type": "end"}]})
        maker.start("f", {}, run_id="r", enqueue=True)
        worker = other.worker()
        worker.run(until_idle=True)
        worker.run(until_idle=True)
        assert maker.handle("r").status() == "completed"


def test_a_parent_that_was_started_without_its_definition(tmp_path: Any) -> None:
    url = f"sqlite:{tmp_path / 'r.db'}"
    with App(url) as maker, App(url) as web, App(url) as stranger:
        maker.graph({"id": "f", "stages": [{"id": "end", "type": "end", "result": 1}]})
        maker.start("f", {}, run_id="a", enqueue=True)
        web.start("f", {}, run_id="b", enqueue=True)
        stranger.worker().run(until_idle=True)
        maker.worker().run(until_idle=True)
        assert maker.handle("b").status() == "completed"

"""Copies, and runs that are exported and imported: they go on where the run stood, and never touch it."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import App, AsyncRun, Conflict
from holdfast.errors import RunExists, StorageFailed
from holdfast.model.rows import MessageRow
from holdfast.runtime.reaper import fire_all_due
from holdfast.store.port import RunRows
from tests.harness import Stage
from tests.operations.copies.conftest import COUNT, same_app, tree_of, url_in
from tests.operations.copies.waits import WAITS
from tests.store.postgres import shared_servers


def copy(stage: Stage, how: str) -> str:
    new, store = f"{stage.run_id}-new", stage.app.store
    if how == "copy":
        return store.copy(stage.run_id, new).run_id
    return store.import_run(store.export_run(stage.run_id), run_id=new).run_id


@pytest.mark.parametrize("how", ["copy", "import"])
@pytest.mark.parametrize("name", WAITS)
def test_a_copy_goes_on_where_the_run_stood_and_leaves_it_alone(stage: Stage, name: str, how: str) -> None:
    wait = WAITS[name]
    wait.reach(stage)
    before = tree_of(stage, stage.run_id)
    assert stage.status() in ("waiting", "ready", "paused")
    new = copy(stage, how)
    assert tree_of(stage, stage.run_id) == before
    assert wait.go_on(stage, stage.app, new).result(240) == wait.result
    stage.redeliver()
    assert tree_of(stage, stage.run_id) == before
    after = tree_of(stage, new)
    assert wait.go_on(stage, stage.app, stage.run_id).result(240) == wait.result
    stage.redeliver()
    assert tree_of(stage, new) == after
    assert [
        row.run_id for row, _ in stage.onlooker.port.due(MessageRow, 100) if row.run_id.startswith(stage.run_id)
    ] == []
    assert stage.onlooker.verify().problems == []


@pytest.mark.parametrize("target", ["memory", "sqlite", "postgres", "dir"])
@pytest.mark.parametrize("name", WAITS)
def test_a_run_moves_to_another_store_and_goes_on_there(folder: Path, tmp_path: Path, name: str, target: str) -> None:
    wait = WAITS[name]
    sources = itertools.cycle(("sqlite", "dir", "postgres"))
    kind = next(itertools.islice(sources, list(WAITS).index(name), None))
    source = Stage(url_in(kind, folder), "async", f"moved-{next(COUNT)}")
    urls = {"memory": "memory:", "sqlite": f"sqlite:{tmp_path / 'to.db'}", "dir": f"dir:{tmp_path / 'to'}"}
    try:
        wait.reach(source)
        data = source.app.store.export_run(source.run_id)
        there = shared_servers.new_url() if target == "postgres" else urls[target]
        with holdfast.open(there, clock=source.clock) as store, same_app(source, store) as app:
            store.import_run(data)
            assert wait.go_on(source, app, source.run_id).result(240) == wait.result
            assert {info.run_id for info in store.runs()} == {*tree_of(source, source.run_id)} - _finished(source)
            assert store.verify().problems == []
    finally:
        source.close()


def _finished(source: Stage) -> set[str]:
    """Children that had ended: their results are in the parent's journal, so they are not taken along."""
    return {entry["child"] for entry in source.journal("child_ended")}


# --- children --------------------------------------------------------------------------------------------------------


def test_a_copy_of_a_child_does_not_wake_the_parent(stage: Stage) -> None:
    WAITS["child"].reach(stage)
    child, store = f"{stage.run_id}/child:below#1", stage.app.store
    store.copy(child, f"{stage.run_id}-alone")
    store.import_run(store.export_run(child), run_id=f"{stage.run_id}-imported")
    before = tree_of(stage, stage.run_id)
    for name in (f"{stage.run_id}-alone", f"{stage.run_id}-imported"):
        assert "parent" not in stage.journal("started", run_id=name)[0]
        assert stage.app.answer(name, "no").result(240) == ["a", "no"]
    stage.redeliver()
    assert tree_of(stage, stage.run_id) == before
    assert stage.journal("started", run_id=child)[0]["parent"]["run"] == stage.run_id


def test_a_copy_that_is_cancelled_cancels_its_own_children_only(stage: Stage) -> None:
    WAITS["grandchild"].reach(stage)
    before = tree_of(stage, stage.run_id)
    new = stage.app.store.copy(stage.run_id, f"{stage.run_id}-new").run_id
    assert stage.app.cancel(new).status() == "cancelled"
    stage.redeliver()
    assert tree_of(stage, stage.run_id) == before
    states = [row.run.status for row in tree_of(stage, new).values() if row is not None]
    assert states == ["cancelled"] * 3


def test_a_child_that_ended_and_whose_parent_does_not_know_it_yet_is_taken_along(stage: Stage) -> None:
    WAITS["child"].reach(stage)
    child = f"{stage.run_id}/child:below#1"
    stage.app.store.copy(stage.run_id, f"{stage.run_id}-new")
    App(stage.app.store).answer(child, "yes")  # this app knows no workflow
    row = stage.onlooker.port.run(child)
    assert row is not None
    stage.wire.before = lambda commit: stage.die() if commit.run_id == stage.run_id else None
    with pytest.raises(StorageFailed):
        stage.app.resume(child)
    stage.restart()
    assert (stage.status(child), stage.status()) == ("completed", "waiting")
    late = stage.app.store.copy(stage.run_id, f"{stage.run_id}-late").run_id
    assert stage.app.resume(late).result(240) == ["s", ["a", "yes"], "after"]
    assert stage.status() == "waiting"
    stage.redeliver()
    assert stage.app.resume(stage.run_id).result(240) == ["s", ["a", "yes"], "after"]


def test_a_child_that_was_recorded_and_never_made_is_made_anew_for_the_copy(stage: Stage) -> None:
    @stage.flow
    async def below(run: AsyncRun) -> str:
        return await run.ask("?", str)

    @stage.flow
    async def above(run: AsyncRun) -> Any:
        return await run.child("below")

    stage.wire.before = lambda commit: stage.die() if commit.run_id.endswith("/child:below#1") else None
    stage.start_and_die(above)
    stage.restart()
    new = stage.app.store.copy(stage.run_id, f"{stage.run_id}-new").run_id
    stage.app.resume(new)
    assert [*tree_of(stage, new)] == [new, f"{new}/child:below#1"]
    assert stage.onlooker.port.run(f"{stage.run_id}/child:below#1") is None
    assert stage.app.answer(f"{new}/child:below#1", "a").status() == "completed"
    assert stage.app.handle(new).result(240) == "a"
    stage.app.resume(stage.run_id)
    stage.app.answer(f"{stage.run_id}/child:below#1", "b")
    assert stage.app.handle(stage.run_id).result(240) == "b"


def test_a_detached_child_is_not_started_again(stage: Stage) -> None:
    """Neither once the journal says that it was started, nor before."""
    early = f"{stage.run_id}-early"

    def copy_now() -> None:
        if stage.onlooker.port.run(early) is None:
            stage.onlooker.copy(stage.run_id, early)

    @stage.flow
    async def below(run: AsyncRun) -> str:
        return await run.ask("?", str)

    @stage.flow
    async def above(run: AsyncRun) -> Any:
        child = await run.child("below", detached=True)
        await run.step(copy_now)
        return [child, await run.ask("?", str)]

    stage.start(above)
    late = stage.app.store.copy(stage.run_id, f"{stage.run_id}-late").run_id
    before = tree_of(stage, stage.run_id)
    for name in (early, late):
        started = stage.journal("child_started", run_id=name)
        assert [entry["child"] for entry in started] == [f"{stage.run_id}/child:below#1"]
        stage.app.resume(name)
        assert stage.app.answer(name, "x").result(240) == [f"{stage.run_id}/child:below#1", "x"]
        assert [*tree_of(stage, name)] == [name]
    assert tree_of(stage, stage.run_id) == before


@pytest.mark.parametrize("how", ["copy", "import"])
def test_a_copy_that_was_killed_half_way_can_be_repeated(stage: Stage, how: str) -> None:
    WAITS["grandchild"].reach(stage)
    before = tree_of(stage, stage.run_id)
    for commits, late in itertools.product(range(3), (False, True)):
        new = f"{stage.run_id}-{commits}-{late}"
        data = stage.app.store.export_run(stage.run_id)

        def make(new: str = new, data: bytes = data) -> None:
            store = stage.app.store
            store.copy(stage.run_id, new) if how == "copy" else store.import_run(data, run_id=new)

        stage.wire.cut_after(commits, late=late)
        with pytest.raises(StorageFailed):
            make()
        stage.restart()
        if late and commits == 2:  # it is there, only nobody was told
            with pytest.raises(RunExists):
                make()
        else:
            make()
        assert WAITS["grandchild"].go_on(stage, stage.app, new).result(240) == WAITS["grandchild"].result
    assert tree_of(stage, stage.run_id) == before


def test_a_copy_does_not_take_over_a_run_that_has_the_id_of_its_child(stage: Stage) -> None:
    WAITS["child"].reach(stage)
    new = f"{stage.run_id}-new"
    stage.start("below", "other", run_id=f"{new}/child:below#1")
    before = tree_of(stage, stage.run_id)
    with pytest.raises(RunExists, match="child:below#1"):
        stage.app.store.copy(stage.run_id, new)
    assert stage.onlooker.port.run(new) is None
    with pytest.raises(RunExists):
        stage.app.store.copy(stage.run_id, f"{new}/child:below#1")
    assert {*tree_of(stage, f"{new}/child:below#1")} == {f"{new}/child:below#1"}
    assert tree_of(stage, stage.run_id) == before


def test_copies_of_copies_and_very_long_ids_have_children_of_their_own(stage: Stage) -> None:
    WAITS["grandchild"].reach(stage)
    last, results = stage.run_id, []
    for name in (f"{stage.run_id}-{'x' * 420}", f"{stage.run_id}-2", f"{stage.run_id}-{'ä' * 200}"):
        last = stage.app.store.copy(last, name).run_id
        rows = stage.onlooker.port.gates("open", 100_000)
        (inner,) = [run.run_id for run, _ in rows if _root(stage, run.run_id) == last]
        results.append(inner)
    assert len({*results}) == 3
    for name in results:
        stage.app.answer(name, "yes")
    for name in (f"{stage.run_id}-2", f"{stage.run_id}-{'ä' * 200}"):
        assert stage.app.handle(name).result(240) == WAITS["grandchild"].result
    assert stage.status() == "waiting"


def _root(stage: Stage, run_id: str) -> str:
    while True:
        parent = stage.journal("started", run_id=run_id)[0].get("parent")
        if parent is None:
            return run_id
        run_id = parent["run"]


def test_a_run_that_changes_while_its_children_are_read_is_read_again(stage: Stage) -> None:
    WAITS["child"].reach(stage)
    child, read, seen = f"{stage.run_id}/child:below#1", stage.onlooker.port.run_rows, []
    outsider = App(stage.onlooker)

    def run_rows(run_id: str) -> RunRows | None:
        rows = read(run_id)
        seen.append(run_id)
        if run_id == child and len(seen) == 2:
            outsider.send(stage.run_id, "meanwhile", key="once")
        return rows

    stage.wire.run_rows = run_rows  # type: ignore[attr-defined]
    new = stage.app.store.copy(stage.run_id, f"{stage.run_id}-new").run_id
    assert seen == [stage.run_id, child] * 2
    assert [item.name for item in read(new).items] == ["meanwhile"]  # type: ignore[union-attr]


def test_a_run_that_changes_all_the_time_is_not_copied_with_its_children(stage: Stage) -> None:
    WAITS["child"].reach(stage)
    read, outsider = stage.onlooker.port.run_rows, App(stage.onlooker)

    def run_rows(run_id: str) -> RunRows | None:
        rows = read(run_id)
        outsider.send(stage.run_id, "meanwhile")
        return rows

    stage.wire.run_rows = run_rows  # type: ignore[attr-defined]
    with pytest.raises(Conflict, match="pause it"):
        stage.app.store.copy(stage.run_id, f"{stage.run_id}-new")
    assert stage.onlooker.runs(prefix=f"{stage.run_id}-new") == []


def test_copies_and_archives_can_be_awaited(stage: Stage) -> None:
    WAITS["grandchild"].reach(stage)
    names = [f"{stage.run_id}-{how}" for how in ("copied", "imported")]

    async def make() -> None:
        store = stage.app.store.aio
        await store.copy(stage.run_id, names[0])
        await store.import_run(await store.export_run(stage.run_id), run_id=names[1])

    asyncio.run(make())
    for name in names:
        assert WAITS["grandchild"].go_on(stage, stage.app, name).result(240) == WAITS["grandchild"].result
    assert stage.status() == "waiting"


def test_a_copy_that_sleeps_is_woken_like_its_source(alone: Stage) -> None:
    WAITS["sleep"].reach(alone)
    store = alone.app.store
    store.copy(alone.run_id, f"{alone.run_id}-new")
    store.import_run(store.export_run(alone.run_id), run_id=f"{alone.run_id}-imported")
    alone.clock.advance(1000)
    core = alone.app._core
    assert core.blocking.run(fire_all_due(core)) == 3
    assert {info.status for info in store.runs()} == {"ready"}

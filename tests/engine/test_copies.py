"""Copies, and runs that are exported and imported: they go on where the run stood, and never touch it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import App, AsyncRun, Conflict, RollbackFailed, RunExists, StorageFailed, Store
from holdfast.runtime.reaper import ring
from holdfast.store.port import RunRows
from tests.engine.conftest import url_of
from tests.engine.either import as_def
from tests.engine.stage import Stage
from tests.engine.waits import WAITS
from tests.postgres import places

_count = itertools.count(1)
_KINDS = [("sqlite", "def"), ("sqlite", "async"), ("postgres", "async"), ("dir", "def")]


@pytest.fixture(params=_KINDS, ids=["-".join(kind) for kind in _KINDS])
def stage(request: pytest.FixtureRequest, folder: Path) -> Iterator[Stage]:
    """Like the stage of other tests, also on a directory."""
    store, kind = request.param
    url = f"dir:{folder / 'copies'}" if store == "dir" else url_of(store, folder)
    stage = Stage(url, kind, f"copied-{next(_count)}")
    yield stage
    stage.close()


def tree_of(stage: Stage, run_id: str) -> dict[str, RunRows | None]:
    """The run and all below it, with every row."""
    store = stage.onlooker
    names = [run_id, *[info.run_id for info in store.runs(prefix=f"{run_id}/")]]
    return {name: store.port.run_rows(name) for name in names}


def same_app(stage: Stage, store: Store) -> App:
    """An app on another store that knows the same workflows."""
    flows = {name: flow if stage.is_async else as_def(flow) for name, (flow, _) in stage._flows.items()}
    app = App(store)
    for name, flow in flows.items():
        app.workflow(name=name, **stage._flows[name][1])(flow)
    for undo in stage._undos:
        app.undo(undo)
    return app


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
    assert wait.go_on(stage, stage.app, new).result(10) == wait.result
    stage.redeliver()
    assert tree_of(stage, stage.run_id) == before
    after = tree_of(stage, new)
    assert wait.go_on(stage, stage.app, stage.run_id).result(10) == wait.result
    stage.redeliver()
    assert tree_of(stage, new) == after
    assert [row.run_id for row, _ in stage.onlooker.port.outbox(100) if row.run_id.startswith(stage.run_id)] == []
    assert stage.onlooker.verify().problems == []


@pytest.mark.parametrize("target", ["memory", "sqlite", "postgres", "dir"])
@pytest.mark.parametrize("name", WAITS)
def test_a_run_moves_to_another_store_and_goes_on_there(folder: Path, tmp_path: Path, name: str, target: str) -> None:
    wait = WAITS[name]
    sources = itertools.cycle(("sqlite", "dir", "postgres"))
    kind = next(itertools.islice(sources, list(WAITS).index(name), None))
    url = f"dir:{folder / 'copies'}" if kind == "dir" else url_of(kind, folder)
    source = Stage(url, "async", f"moved-{next(_count)}")
    urls = {"memory": "memory:", "sqlite": f"sqlite:{tmp_path / 'to.db'}", "dir": f"dir:{tmp_path / 'to'}"}
    try:
        wait.reach(source)
        data = source.app.store.export_run(source.run_id)
        there = places.new_url() if target == "postgres" else urls[target]
        with holdfast.open(there, clock=source.clock) as store, same_app(source, store) as app:
            store.import_run(data)
            assert wait.go_on(source, app, source.run_id).result(10) == wait.result
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
        assert stage.app.answer(name, "no").result(10) == ["a", "no"]
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
    assert stage.app.resume(late).result(10) == ["s", ["a", "yes"], "after"]
    assert stage.status() == "waiting"
    stage.redeliver()
    assert stage.app.resume(stage.run_id).result(10) == ["s", ["a", "yes"], "after"]


def test_a_child_that_was_recorded_and_never_made_is_made_anew_for_the_copy(stage: Stage) -> None:
    @stage.flow
    async def below(run: AsyncRun) -> str:
        return await run.ask("?", str)  # type: ignore[no-any-return]

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
    assert stage.app.handle(new).result(10) == "a"
    stage.app.resume(stage.run_id)
    stage.app.answer(f"{stage.run_id}/child:below#1", "b")
    assert stage.app.handle(stage.run_id).result(10) == "b"


def test_a_detached_child_is_not_started_again(stage: Stage) -> None:
    @stage.flow
    async def below(run: AsyncRun) -> str:
        return await run.ask("?", str)  # type: ignore[no-any-return]

    @stage.flow
    async def above(run: AsyncRun) -> Any:
        return [await run.child("below", detached=True), await run.ask("?", str)]

    stage.start(above)
    before = tree_of(stage, stage.run_id)
    new = stage.app.store.copy(stage.run_id, f"{stage.run_id}-new").run_id
    started = stage.journal("child_started", run_id=new)
    assert [entry["child"] for entry in started] == [f"{stage.run_id}/child:below#1"]
    assert [*tree_of(stage, new)] == [new]
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
        assert WAITS["grandchild"].go_on(stage, stage.app, new).result(10) == WAITS["grandchild"].result
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
        rows = stage.onlooker.port.gates(None, "open", 100_000)
        (inner,) = [run.run_id for run, _ in rows if _root(stage, run.run_id) == last]
        results.append(inner)
    assert len({*results}) == 3
    for name in results:
        stage.app.answer(name, "yes")
    for name in (f"{stage.run_id}-2", f"{stage.run_id}-{'ä' * 200}"):
        assert stage.app.handle(name).result(10) == WAITS["grandchild"].result
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
        assert WAITS["grandchild"].go_on(stage, stage.app, name).result(10) == WAITS["grandchild"].result
    assert stage.status() == "waiting"


# --- effects ---------------------------------------------------------------------------------------------------------


def dies_while_paying(stage: Stage, **options: Any) -> list[str]:
    """A run whose process died inside its effect; the idempotency keys of its calls."""
    tokens: list[str] = []

    def take_back(_result: Any, *_args: Any, **_more: Any) -> None:
        stage.calls.append("undone")

    def pay(amount: int, idempotency_key: str) -> str:
        tokens.append(idempotency_key)
        if len(tokens) == 1:
            stage.die()
        return f"receipt {amount}"

    stage.undo(take_back)

    @stage.flow
    async def order(run: AsyncRun) -> Any:
        return [await run.effect(pay, 30, undo=take_back, **options), await run.ask("well?", str)]

    stage.start_and_die(order)
    stage.restart()
    return tokens


def test_a_copy_at_the_gate_of_an_effect_in_doubt_is_asked_too(stage: Stage) -> None:
    tokens = dies_while_paying(stage)
    stage.app.resume(stage.run_id)
    new = stage.app.store.copy(stage.run_id, f"{stage.run_id}-new").run_id
    before = tree_of(stage, stage.run_id)
    (gate,) = stage.app.gates(new)
    assert gate.purpose == "in_doubt"
    stage.app.answer(new, {"outcome": "happened", "result": "known"})
    assert stage.app.answer(new, "x").result(10) == ["known", "x"]
    assert tree_of(stage, stage.run_id) == before
    stage.app.answer(stage.run_id, {"outcome": "did not happen"})
    assert stage.app.answer(stage.run_id, "y").result(10) == ["receipt 30", "y"]
    assert len({*tokens}) == 1
    stage.app.rollback(new, 1)
    assert stage.calls == []  # it happened, but the copy did not do it
    stage.app.rollback(stage.run_id, 1)
    assert stage.calls == ["undone"]


def test_an_effect_in_doubt_is_tried_again_under_the_key_it_had(stage: Stage) -> None:
    tokens = dies_while_paying(stage, in_doubt="retry")
    data = stage.app.store.export_run(stage.run_id)
    new = stage.app.store.copy(stage.run_id, f"{stage.run_id}-new").run_id
    stage.app.resume(new)
    assert stage.app.answer(new, "x").result(10) == ["receipt 30", "x"]
    with holdfast.open("memory:") as store, same_app(stage, store) as app:
        store.import_run(data)
        app.resume(stage.run_id)
        assert app.answer(stage.run_id, "x").result(10) == ["receipt 30", "x"]
    assert (len(tokens), len({*tokens})) == (3, 1)
    stage.app.rollback(new, 1)
    assert stage.calls == ["undone"]  # this time it was the copy's own


def shopping(stage: Stage) -> list[int]:
    """A run that did two things and waits; how often undoing is to fail."""
    failing = [0]

    def give_back(_result: Any, item: str) -> None:
        if failing[0]:
            failing[0] -= 1
            raise ConnectionError("the shop is closed")
        stage.calls.append(f"undone {item}")

    def buy(item: str) -> str:
        return f"receipt {item}"

    stage.undo(give_back)

    @stage.flow
    async def shop(run: AsyncRun) -> Any:
        bought = [await run.effect(buy, item, undo=give_back) for item in ("a", "b")]
        return [bought, await run.ask("well?", str)]

    stage.start(shop)
    return failing


def test_what_the_source_did_is_not_the_copys_to_undo(stage: Stage) -> None:
    shopping(stage)
    data = stage.app.store.export_run(stage.run_id)
    new = stage.app.store.copy(stage.run_id, f"{stage.run_id}-new").run_id
    stage.app.store.import_run(data, run_id=f"{stage.run_id}-imported")
    for name in (new, f"{stage.run_id}-imported"):
        assert stage.app.rollback(name, 1).status() == "waiting"
    assert stage.calls == []
    stage.app.store.delete(stage.run_id)
    stage.app.store.import_run(data)  # it has only moved
    stage.app.rollback(stage.run_id, 1)
    assert stage.calls == ["undone b", "undone a"]


def test_a_rollback_that_has_begun_goes_on_in_the_copy_without_undoing_anything(stage: Stage) -> None:
    failing = shopping(stage)
    failing[0] = 1
    with pytest.raises(RollbackFailed):
        stage.app.rollback(stage.run_id, 1)
    assert stage.status() == "rolling_back"
    before = tree_of(stage, stage.run_id)
    data = stage.app.store.export_run(stage.run_id)
    new = stage.app.store.copy(stage.run_id, f"{stage.run_id}-new").run_id
    assert stage.app.resume(new).status() == "waiting"
    assert stage.journal("rolled_back", run_id=new)[0]["to"] == 1
    assert stage.app.answer(new, "x").result(10) == [["receipt a", "receipt b"], "x"]
    assert stage.calls == []
    assert tree_of(stage, stage.run_id) == before
    stage.app.store.delete(stage.run_id)
    stage.app.store.import_run(data)
    assert stage.app.resume(stage.run_id).status() == "waiting"
    assert stage.calls == ["undone b", "undone a"]


def test_a_rollback_takes_back_children_of_the_copy_and_not_of_the_source(stage: Stage) -> None:
    WAITS["child"].reach(stage)
    new = stage.app.store.copy(stage.run_id, f"{stage.run_id}-new").run_id
    before = tree_of(stage, stage.run_id)
    stage.app.resume(new)
    stage.app.rollback(new, 1)
    stage.redeliver()
    assert tree_of(stage, stage.run_id) == before
    assert stage.status(f"{new}/child:below#1") in ("cancelled", "ready")


# --- messages --------------------------------------------------------------------------------------------------------


def test_what_was_sent_and_not_delivered_arrives_once(stage: Stage) -> None:
    @stage.flow
    async def target(run: AsyncRun) -> Any:
        return [await run.wait_for("hello"), await run.wait_for("hello", timeout=500, default="no more")]

    @stage.flow
    async def sender(run: AsyncRun) -> Any:
        await run.send(f"{stage.run_id}-target", "hello", "you")
        return await run.ask("well?", str)

    stage.start(target, run_id=f"{stage.run_id}-target")
    stage.wire.before = lambda commit: stage.die() if commit.run_id.endswith("-target") else None
    stage.start_and_die(sender)
    stage.restart()
    new = stage.app.store.copy(stage.run_id, f"{stage.run_id}-new").run_id
    assert len(stage.onlooker.port.run_rows(new).messages) == 1  # type: ignore[union-attr]
    stage.redeliver()
    stage.app.resume(f"{stage.run_id}-target")
    stage.clock.advance(1000)
    assert stage.app.resume(f"{stage.run_id}-target").result(10) == ["you", "no more"]
    for name in (stage.run_id, new):
        assert stage.app.answer(name, "x").result(10) == "x"


def test_a_copy_that_sleeps_is_woken_like_its_source(alone: Stage) -> None:
    WAITS["sleep"].reach(alone)
    store = alone.app.store
    store.copy(alone.run_id, f"{alone.run_id}-new")
    store.import_run(store.export_run(alone.run_id), run_id=f"{alone.run_id}-imported")
    alone.clock.advance(1000)
    core = alone.app._core
    assert core.blocking.run(ring(core)) == 3
    assert {info.status for info in store.runs()} == {"ready"}

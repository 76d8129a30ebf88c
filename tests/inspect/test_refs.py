"""What people type for a run or a checkpoint, and what it means."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import AmbiguousId, CheckpointNotFound, InvalidCursor, InvalidId, RunNotFound
from holdfast.inspect.refs import checkpoint_of, run_of


@pytest.fixture(params=["memory", "sqlite", "dir"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[holdfast.Store]:
    url = {"memory": "memory:", "sqlite": f"sqlite:{tmp_path}/runs.db", "dir": f"dir:{tmp_path}/runs"}[request.param]
    with holdfast.open(url) as opened:
        yield opened


def meant(store: holdfast.Store, text: str) -> tuple[str, int | None]:
    found = checkpoint_of(store, text)
    return found.run.run_id, found.checkpoint.number if found.checkpoint else None


def test_an_id_or_its_beginning_is_a_run(store: holdfast.Store) -> None:
    for run_id in ("order-17", "order-18", "other", "x"):
        store.save(run_id, 1)
    assert run_of(store, "order-17") == "order-17"
    assert run_of(store, "ot") == "other"
    assert run_of(store, "@latest") == "x"
    with pytest.raises(AmbiguousId) as ambiguous:
        run_of(store, "o")
    assert ambiguous.value.candidates == ("other", "order-18", "order-17")


def test_an_exact_id_wins_over_a_beginning(store: holdfast.Store) -> None:
    for run_id in ("order", "order-1", "order-2", "@latest", "newer"):
        store.save(run_id, 1)
    assert run_of(store, "order") == "order"
    assert run_of(store, "@latest") == "@latest"


def test_many_candidates_are_cut_and_that_is_said(store: holdfast.Store) -> None:
    for n in range(9):
        store.save(f"run-{n}", 1)
    with pytest.raises(AmbiguousId, match="'run-8', 'run-7', 'run-6', 'run-5', 'run-4' and more"):
        run_of(store, "run")


def test_a_run_that_is_not_there_is_told_with_what_resembles_it(store: holdfast.Store) -> None:
    for run_id in ("order-17", "order-18", "something"):
        store.save(run_id, 1)
    with pytest.raises(RunNotFound, match="did you mean 'order-17'") as missing:
        run_of(store, "odrer-17")
    assert missing.value.near[0] == "order-17"
    with pytest.raises(RunNotFound, match="lists all runs"):
        run_of(store, "zzzzzz")
    with pytest.raises(InvalidId):
        run_of(store, "")


def test_an_empty_store_has_no_latest_run(store: holdfast.Store) -> None:
    with pytest.raises(RunNotFound):
        run_of(store, "@latest")
    with pytest.raises(RunNotFound):
        checkpoint_of(store, "@latest~1")


def test_checkpoints_are_counted_back_on_the_default_lane(store: holdfast.Store) -> None:
    for n in range(4):
        store.save("order-17", n)
        store.save("order-17", n, lane="side")
    assert meant(store, "order-17") == ("order-17", 7)
    assert meant(store, "order-17~0") == ("order-17", 7)
    assert meant(store, "order-17~") == ("order-17", 5)
    assert meant(store, "order~2") == ("order-17", 3)
    assert meant(store, "@latest~3") == ("order-17", 1)
    with pytest.raises(CheckpointNotFound, match="there are 4"):
        checkpoint_of(store, "order-17~4")


def test_a_checkpoint_is_found_by_what_it_covers_and_by_its_id(store: holdfast.Store) -> None:
    store.append("order-17", [{"kind": "a"}] * 3)
    first = store.save("order-17", 1)
    store.append("order-17", [{"kind": "a"}] * 3)
    store.save("order-17", 2, checkpoint_id="mine:2")
    store.save("order-17", 3, lane="side", checkpoint_id="aside")
    assert meant(store, "order-17@3") == ("order-17", 1)
    assert meant(store, "order-17@5") == ("order-17", 1)
    assert meant(store, "ord@6") == ("order-17", 2)
    assert meant(store, f"order-17:{first.checkpoint_id}") == ("order-17", 1)
    assert meant(store, "ord:mine:2") == ("order-17", 2)
    assert meant(store, "@latest:aside") == ("order-17", 3)
    with pytest.raises(CheckpointNotFound):
        checkpoint_of(store, "order-17@2")
    with pytest.raises(CheckpointNotFound, match="nothing"):
        checkpoint_of(store, "order-17:nothing")


def test_signs_in_ids_are_part_of_the_id(store: holdfast.Store) -> None:
    for n, run_id in enumerate(("a", "a~1", "a@1", "a:b", "a:b:c~1")):
        store.save(run_id, n)
        store.save(run_id, n, checkpoint_id="b")
    assert meant(store, "a~1") == ("a~1", 2)
    assert meant(store, "a~1~1") == ("a~1", 1)
    assert meant(store, "a@1") == ("a@1", 2)
    assert meant(store, "a:b") == ("a:b", 2)
    assert meant(store, "a:b:b") == ("a:b", 2)
    assert meant(store, "a:b:c") == ("a:b:c~1", 2)
    assert meant(store, "a:b~1") == ("a:b", 1)


def test_a_run_whose_id_others_begin_with_is_meant_itself(store: holdfast.Store) -> None:
    store.save("a", 1)
    store.save("a/child", 1)
    with pytest.raises(CheckpointNotFound, match="run 'a' has no checkpoint 3 before"):
        checkpoint_of(store, "a~3")
    with pytest.raises(CheckpointNotFound, match="run 'a' has no checkpoint 'x'"):
        checkpoint_of(store, "a:x")


def test_a_run_without_checkpoints_is_still_a_run(store: holdfast.Store) -> None:
    store.append("journal only", [{"kind": "a"}])
    assert meant(store, "journal") == ("journal only", None)
    with pytest.raises(CheckpointNotFound, match="it has none"):
        checkpoint_of(store, "journal only~1")


def test_a_position_behind_the_end_is_refused(store: holdfast.Store) -> None:
    store.append("r", [{"kind": "a"}, {"kind": "b"}])
    store.save("r", 1, covers=2)
    assert meant(store, "r@2") == ("r", 1)
    with pytest.raises(InvalidCursor, match="run 'r' ends at position 2, not at 3"):
        checkpoint_of(store, "r@3")

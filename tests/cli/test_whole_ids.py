"""Verbs that change something take the whole id of a run, never the beginning of another one's."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from tests.cli.processes import Done
from tests.cli.processes import command as run

MAKE = "tests.cli.shop:make"


@pytest.fixture
def url() -> str:
    return "sqlite:holdfast.db"


def given(tmp_path: Path, url: str, *arguments: str) -> Done:
    return run(*arguments, "--store", url, "--app", MAKE, cwd=tmp_path)


def test_a_delete_that_is_repeated_deletes_no_other_run(app: holdfast.App, tmp_path: Path, url: str) -> None:
    for run_id in ("order-1", "order-17"):
        app.start("talk", run_id=run_id)
    assert given(tmp_path, url, "delete", "order-1", "--yes").code == 0
    again = given(tmp_path, url, "delete", "order-1", "--yes")
    assert again.code == 4
    assert "there is no run 'order-1' in this store; did you mean 'order-17'? Type the whole id" in again.err
    assert [info.run_id for info in app.runs()] == ["order-17"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("answer", "order-1", "approve=yes", "note="),
        ("answer", "order-", "approve=yes", "note="),
        ("send", "order-1", "shipped"),
        ("pause", "order-1"),
        ("resume", "order-1"),
        ("retry", "order-1"),
        ("cancel", "order-1"),
        ("rollback", "order-1", "--to", "1", "--yes"),
        ("fork", "order-1"),
        ("fork", "order-1@2"),
        ("fork", "order-1~1"),
        ("delete", "order-1", "--yes", "--force"),
        ("prune", "order-1", "--keep-last", "1", "--yes"),
        ("graph", "migrate", "order-1", "flow.yaml"),
    ],
    ids=" ".join,
)
def test_an_abbreviated_id_is_refused_by_verbs_that_change_something(
    app: holdfast.App, tmp_path: Path, url: str, arguments: tuple[str, ...]
) -> None:
    app.start("refund", "A-17", run_id="order-17")
    before = app.store.port.run("order-17")
    done = given(tmp_path, url, *arguments)
    assert done.code == 4, done
    assert "did you mean 'order-17'? Type the whole id" in done.err
    assert app.store.port.run("order-17") == before
    assert [info.run_id for info in app.runs()] == ["order-17"]


def test_verbs_that_look_take_the_beginning_of_an_id(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("refund", "A-17", run_id="order-17")
    for arguments in (("show", "order-1"), ("log", "order-1"), ("gates", "order-1"), ("effects", "order-1")):
        assert given(tmp_path, url, *arguments).code == 0, arguments


def test_the_newest_run_may_be_named_as_such(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("refund", "A-17", run_id="order-17")
    assert given(tmp_path, url, "answer", "@latest", "approve=no", "note=").code == 0
    assert app.handle("order-17").result(timeout=240) == {"paid": None}

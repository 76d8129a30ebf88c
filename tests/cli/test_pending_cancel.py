"""A cancel that no process has carried out yet is shown, and the run accepts no answer."""

from __future__ import annotations

from pathlib import Path

import holdfast
from tests.cli.processes import Done
from tests.cli.processes import command as run

MAKE = "tests.cli.shop:make"
PENDING = "order-17: a cancel was requested by ana at "


def test_a_pending_cancel_is_shown_everywhere_and_no_answer_is_offered(
    app: holdfast.App, tmp_path: Path, url: str
) -> None:
    def given(*arguments: str) -> Done:
        return run(*arguments, "--store", url, cwd=tmp_path)

    app.start("refund", "A-17", run_id="order-17")
    app.start("refund", "A-18", run_id="order-18")
    cancelled = given("cancel", "order-17", "--by", "ana")
    assert cancelled.code == 0
    assert cancelled.out.count("a cancel by ana is pending") == 1
    assert "cancel was requested" not in cancelled.out
    assert "holdfast answer" not in cancelled.out
    shown = given("show", "order-17")
    assert "a cancel by ana is pending: the next worker that takes it will carry it out, requested at " in shown.out
    assert shown.out.count("ana") == 1
    assert "holdfast answer" not in shown.out
    assert "holdfast worker --app" in shown.out
    data = given("show", "order-17", "--json").data
    assert data["standing"]["cancel"]["by"] == "ana"
    assert data["standing"]["waiting"] == []
    assert given("show", "order-18", "--json").data["standing"]["cancel"] is None
    for verb in (("list",), ("gates",), ("gates", "--all"), ("log", "order-17")):
        done = given(*verb)
        assert PENDING in done.err, verb
        assert "order-18: a cancel" not in done.err
    gates = given("gates")
    assert "order-17" not in gates.out
    assert "holdfast answer order-18" in gates.err
    assert [gate["run_id"] for gate in given("gates", "--json").data["gates"]] == ["order-18"]
    answer = given("answer", "order-17", "approve=yes", "note=")
    assert answer.code == 5
    assert "accepts no answer: 'ana' requested its cancel at " in answer.err
    assert given("worker", "--app", MAKE, "--until-idle").code == 0
    assert app.handle("order-17").status() == "cancelled"
    assert "pending" not in given("show", "order-17").out
    assert given("answer", "order-17", "approve=yes", "note=").code == 5


def test_a_cancel_of_a_paused_run_is_pending_as_well(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("refund", "A-17", run_id="order-17")
    app.pause("order-17")
    assert run("cancel", "order-17", "--by", "ana", "--store", url, cwd=tmp_path).code == 0
    shown = run("show", "order-17", "--store", url, cwd=tmp_path)
    assert "a cancel by ana is pending" in shown.out
    assert "holdfast answer" not in shown.out
    assert PENDING in run("list", "--store", url, cwd=tmp_path).err


def test_a_run_with_a_pending_cancel_is_not_paused_and_not_told_to_be_cancelled(
    app: holdfast.App, tmp_path: Path, url: str
) -> None:
    app.start("refund", "A-17", run_id="order-17")
    assert run("cancel", "order-17", "--by", "ana", "--store", url, cwd=tmp_path).code == 0
    pause = run("pause", "order-17", "--store", url, cwd=tmp_path)
    assert pause.code == 5
    assert "run 'order-17' was not paused: a cancel by 'ana' is pending" in pause.err
    delete = run("delete", "order-17", "--yes", "--store", url, cwd=tmp_path)
    assert delete.code == 5
    assert "its cancel is pending until a worker takes it" in delete.err
    assert "cancel it first" not in delete.err

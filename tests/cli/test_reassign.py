"""`holdfast reassign`, and `holdfast answer` for groups and several approvals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import holdfast
from tests.cli.processes import command as run


def ask(app: holdfast.App, **options: Any) -> None:
    @app.workflow(name="pay")
    def pay(run: holdfast.Run) -> Any:
        return run.ask("Pay?", {"pay": bool}, **options)

    app.start(pay, run_id="p1")


def test_a_gate_is_reassigned_and_answered_by_a_member_of_the_group(
    app: holdfast.App, tmp_path: Path, url: str
) -> None:
    ask(app, who="ana")
    more = ("--store", url)
    done = run(
        "reassign",
        "p1",
        "--who",
        "ben",
        "--who",
        "group:finance",
        "--by",
        "cho",
        "--reason",
        "away",
        *more,
        cwd=tmp_path,
    )
    assert (done.code, done.out.strip()) == (0, "p1: ask is for ben, group:finance"), done.err
    (gate,) = app.gates("p1")
    assert [(one.by, one.via, one.reason) for one in gate.assigned] == [("cho", "cli", "away")]
    refused = run("answer", "p1", "pay=yes", "--by", "ana", *more, cwd=tmp_path)
    assert refused.code == 2
    assert "'ana' may not answer it; it is for ben, group:finance" in refused.err
    done = run("answer", "p1", "pay=yes", "--by", "dan", "--group", "finance", *more, cwd=tmp_path)
    assert done.code == 0, done.err
    assert app.handle("p1").result(240) == {"pay": True}
    assert [entry.data["via"] for entry in app.store.journal("p1") if entry.kind == "answered"] == ["cli"]
    assert "by dan via cli" in run("show", "p1", *more, cwd=tmp_path).out


def test_an_approval_before_the_last_leaves_the_run_waiting(app: holdfast.App, tmp_path: Path, url: str) -> None:
    ask(app, approvals=2)
    first = run("answer", "p1", "pay=yes", "--by", "ana", "--store", url, cwd=tmp_path)
    assert (first.code, "p1 is waiting" in first.out) == (0, True), first.err
    again = run("answer", "p1", "pay=yes", "--by", "ana", "--store", url, cwd=tmp_path)
    assert "'ana' has already approved it; another person must" in again.err
    second = run("answer", "p1", "pay=yes", "--by", "ben", "--store", url, cwd=tmp_path)
    assert second.code == 0, second.err
    assert app.handle("p1").result(240) == {"pay": True}
    assert "approved by ana, ben" in run("show", "p1", "--store", url, cwd=tmp_path).out

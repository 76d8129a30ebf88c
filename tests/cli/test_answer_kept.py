"""An answer that was given and not taken up yet: shown with its giver, and kept if the code has changed meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from tests.cli.processes import Done
from tests.cli.processes import command as run

CODE = """
import holdfast

app = holdfast.App({url!r})

def price(order, currency):
    return 40

@app.workflow
def refund(run, order):
    run.step(price, order, {currency!r})
    if run.ask("Refund it?", bool):
        return run.wait_for("shipped")
"""


@pytest.fixture
def url() -> str:
    return "sqlite:holdfast.db"


def write(tmp_path: Path, url: str, currency: str) -> None:
    (tmp_path / f"{currency}.py").write_text(CODE.format(url=url, currency=currency))


def begin(tmp_path: Path, url: str) -> None:
    for currency in ("eur", "usd"):
        write(tmp_path, url, currency)
    done = given(tmp_path, "eur", "run", "refund", "-i", "order=A-17", "--run-id", "order-17")
    assert done.code == 3, done.err


def given(tmp_path: Path, currency: str, *arguments: str) -> Done:
    return run(*arguments, "--app", f"{currency}.py:app", cwd=tmp_path)


def test_an_answer_that_meets_changed_code_is_kept_and_that_is_said(tmp_path: Path, url: str) -> None:
    begin(tmp_path, url)
    done = given(tmp_path, "usd", "answer", "order-17", "yes", "--by", "ana")
    assert done.code == 1
    assert "argument 'currency' of step 'price#1' changed" in done.out
    assert "the answer of ana was recorded and is kept, but the run cannot continue" in done.err
    shown = given(tmp_path, "usd", "show", "order-17", "--json").data
    assert shown["standing"]["commands"][-1] == ["holdfast", "rollback", "order-17", "--to", "price"]
    (ask,) = [row for row in shown["rows"] if row["kind"] == "ask"]
    assert (ask["state"], ask["by"], ask["result"]) == ("done", "ana", True)
    assert given(tmp_path, "eur", "resume", "order-17").code == 0
    rows = given(tmp_path, "eur", "show", "order-17", "--json").data["rows"]
    assert [(row["state"], row["by"]) for row in rows if row["kind"] == "ask"] == [("done", "ana")]


def test_an_event_that_meets_changed_code_is_kept_and_gives_its_standing_as_json(tmp_path: Path, url: str) -> None:
    begin(tmp_path, url)
    assert given(tmp_path, "eur", "answer", "order-17", "yes").code == 0
    done = given(tmp_path, "usd", "send", "order-17", "shipped", "7", "--json")
    assert (done.code, done.data["status"]) == (1, "paused")
    assert "the event was recorded and is kept, but the run cannot continue: argument 'currency'" in done.err
    assert given(tmp_path, "eur", "resume", "order-17", "--json").data["status"] == "completed"


def test_the_advised_rollback_lets_the_changed_code_go_on(tmp_path: Path, url: str) -> None:
    begin(tmp_path, url)
    assert given(tmp_path, "usd", "resume", "order-17").code == 1
    commands = given(tmp_path, "usd", "show", "order-17", "--json").data["standing"]["commands"]
    (advised,) = [arguments for arguments in commands if arguments[1] == "rollback"]
    done = given(tmp_path, "usd", *advised[1:], "--yes", "--json")
    assert (done.code, done.data["status"]) == (0, "waiting"), done.err


def test_an_answer_that_no_worker_has_taken_up_is_shown_with_who_gave_it(
    app: holdfast.App, tmp_path: Path, url: str
) -> None:
    app.start("refund", "A-17", run_id="order-17")
    assert run(
        "answer", "order-17", "approve=no", "note=", "--by", "ana", "--enqueue", "--store", url, cwd=tmp_path
    ).code == 0  # fmt: skip
    shown = run("show", "order-17", "--store", url, cwd=tmp_path)
    assert "by ana" in shown.out
    assert ": it will run again when a worker takes it" in shown.out
    (ask,) = [row for row in run("show", "order-17", "--json", "--store", url, cwd=tmp_path).data["rows"]
              if row["kind"] == "ask"]  # fmt: skip
    assert (ask["state"], ask["by"], ask["result"]) == ("done", "ana", {"approve": False, "note": ""})

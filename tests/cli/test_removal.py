"""`holdfast delete` and `holdfast prune --delete` keep runs that another run still needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import Conflict, HoldfastError
from holdfast.inspect.deletion import Removal, plan_deletion
from holdfast.model.rows import RunRow
from tests.cli.processes import TIMEOUT_S, Done, environment
from tests.cli.processes import command as run

CHILD = "P/child:payment#1"
TAKES = "may reuse the outcomes of its effects"


class Payments:
    """An app that counts its payments, and whose step fails as long as `broken` is set."""

    def __init__(self, place: str) -> None:
        self.app = holdfast.App(place)
        self.paid: list[int] = []
        self.broken = False
        for workflow in (self.order, self.payment, self.parent, self.starter):
            self.app.workflow(workflow)

    def pay(self, amount: int) -> str:
        self.paid.append(amount)
        return "receipt"

    def check(self) -> None:
        if self.broken:
            raise ValueError("the service is down")

    def order(self, run: holdfast.Run, amount: int) -> Any:
        run.ask("begin?", bool)
        run.step(self.check, name="check")
        return run.effect(self.pay, amount, name="pay")

    def payment(self, run: holdfast.Run, amount: int) -> Any:
        return run.effect(self.pay, amount, name="pay")

    def parent(self, run: holdfast.Run, amount: int) -> Any:
        run.ask("begin?", bool)
        return run.child("payment", amount)

    def starter(self, run: holdfast.Run, amount: int) -> Any:
        run.child("payment", amount, detached=True)
        return run.ask("go on?", bool)

    def start(self, workflow: str, run_id: str) -> None:
        self.app.start(workflow, 1, run_id=run_id)
        self.app.answer(run_id, True)

    def problems(self, run_id: str) -> str:
        return "; ".join(plan_deletion(self.app.store, run_id).problems)

    def rows(self, *run_ids: str) -> list[RunRow]:
        rows = [self.app.store.port.run(run_id) for run_id in run_ids]
        return [row for row in rows if row is not None]

    def ids(self) -> set[str]:
        return {info.run_id for info in self.app.runs()}


@pytest.fixture
def payments(tmp_path: Path, url: str) -> Iterator[Payments]:
    scheme, _, path = url.partition(":")
    payments = Payments(f"{scheme}:{tmp_path / path}")
    with payments.app:
        yield payments


def prune(folder: Path, url: str, *arguments: str) -> Done:
    chosen = arguments or ("--all",)
    return run("prune", *chosen, "--delete", "--older-than", "0s", "--yes", "--json", "--store", url, cwd=folder)


def test_the_source_of_a_failed_fork_is_not_deleted_and_a_retry_does_not_pay_again(
    payments: Payments, tmp_path: Path, url: str
) -> None:
    payments.start("order", "A")
    payments.app.fork("A", "B", at="ask#1")
    payments.broken = True
    payments.app.answer("B", True)
    assert payments.app.handle("B").status() == "failed"
    done = run("delete", "A", "--yes", "--store", url, cwd=tmp_path)
    assert done.code == 5
    assert f"run 'B' {TAKES}" in done.err
    payments.broken = False
    payments.app.retry("B")
    assert payments.app.handle("B").result(timeout=TIMEOUT_S) == "receipt"
    assert payments.paid == [1]
    assert TAKES in payments.problems("A"), "a rollback may take the fork on"
    payments.app.rollback("B", "ask#1")
    payments.app.answer("B", True)
    assert payments.paid == [1]


def test_prune_keeps_the_source_of_a_waiting_fork_and_says_why(payments: Payments, tmp_path: Path, url: str) -> None:
    payments.start("order", "A")
    payments.app.fork("A", "B", at="ask#1")
    done = prune(tmp_path, url)
    assert done.code == 1
    (line,) = done.data["runs"]
    assert (line["run_id"], line["deleted"], TAKES in line["problem"]) == ("A", False, True)
    payments.app.answer("B", True)
    assert payments.paid == [1]
    assert prune(tmp_path, url, "A").code == 1, "the fork stays"
    assert payments.ids() == {"A", "B"}
    done = prune(tmp_path, url, "A", "B")
    assert (done.code, [line["run_id"] for line in done.data["runs"]]) == (0, ["B", "A"])
    assert payments.ids() == set()


def test_neither_a_parent_nor_its_child_is_removed_while_a_fork_may_take_what_the_child_did(
    payments: Payments, tmp_path: Path, url: str
) -> None:
    payments.start("parent", "P")
    payments.app.fork("P", "F", at="ask#1")
    for run_id in ("P", CHILD):
        done = run("delete", run_id, "--yes", "--store", url, cwd=tmp_path)
        assert done.code == 5
        assert f"run 'F' {TAKES}" in done.err
    done = prune(tmp_path, url)
    assert (done.code, [line["run_id"] for line in done.data["runs"]]) == (1, ["P", CHILD])
    payments.app.answer("F", True)
    assert payments.paid == [1]
    done = prune(tmp_path, url)
    assert (done.code, len(done.data["runs"]), payments.ids()) == (0, 4, set()), "the whole family goes"


def test_a_child_stays_as_long_as_its_parent_is_there_which_may_be_rolled_back(
    payments: Payments, tmp_path: Path, url: str
) -> None:
    payments.start("parent", "P")
    assert "a rollback of run 'P' needs this child run" in payments.problems(CHILD)
    assert prune(tmp_path, url, CHILD).code == 1
    assert payments.ids() == {"P", CHILD}
    assert prune(tmp_path, url, CHILD, "P").code == 0
    assert payments.ids() == set()


def test_a_detached_child_may_go_before_its_parent(payments: Payments) -> None:
    payments.app.start("starter", 1, run_id="S")
    child = next(iter(payments.ids() - {"S"}))
    assert payments.app.handle(child).result(timeout=TIMEOUT_S) == "receipt"
    assert payments.app.handle("S").status() == "waiting"
    assert payments.problems(child) == ""


def test_what_a_kept_run_needs_is_kept_and_parents_and_forks_go_first(payments: Payments) -> None:
    payments.start("parent", "P")
    payments.app.fork("P", "F", at="ask#1")
    payments.app.answer("F", True)
    rows = payments.rows("P", "F", CHILD, "F/child:payment#1")
    removal = Removal(payments.app.store, rows)
    assert [row.run_id for row in removal.in_order()] == ["F", "P", "F/child:payment#1", CHILD]
    assert removal.keep_needed() == {}
    removal = Removal(payments.app.store, [row for row in rows if row.run_id != "F"])
    assert len(removal.keep_needed()) == 3, "the fork stays, so all that it needs does"


def test_a_run_that_is_forked_after_it_was_checked_is_not_removed(
    payments: Payments, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments.start("order", "A")
    (row,) = payments.rows("A")
    port = payments.app.store.port
    delete_run = port.delete_run

    def fork_first(*arguments: Any) -> Any:
        payments.app.fork("A", "late", at="ask#1")
        return delete_run(*arguments)

    monkeypatch.setattr(port, "delete_run", fork_first)
    with pytest.raises(Conflict, match="forked meanwhile"):
        Removal(payments.app.store, [row]).remove(row)
    monkeypatch.undo()
    payments.app.answer("late", True)
    assert payments.paid == [1]


def test_what_a_run_needs_that_could_not_be_removed_stays(payments: Payments) -> None:
    payments.start("order", "A")
    payments.app.fork("A", "B", at="ask#1")
    payments.app.answer("B", True)
    a, b = payments.rows("A", "B")
    removal = Removal(payments.app.store, [a, b])
    assert removal.keep_needed() == {}
    payments.app.rollback("B", "ask#1")
    for row in removal.in_order():
        with pytest.raises(HoldfastError):
            removal.remove(row)
    payments.app.answer("B", True)
    assert payments.paid == [1]


KILLED = """
import os, pkgutil, importlib, sys
import holdfast, holdfast.runtime
from holdfast.runtime import execute

app = holdfast.App(sys.argv[1])
def pay():
    with open("paid", "a") as file:
        file.write("x")
@app.workflow
def sender(run): run.send("R", "shipped", 1)
@app.workflow
def receiver(run): return run.wait_for("shipped")
@app.workflow
def child(run): run.effect(pay)
@app.workflow
def parent(run): run.child(child)
def die(*_): os.kill(os.getpid(), 9)
def kill_before_delivery():
    deliver = execute.deliver
    for module in pkgutil.iter_modules(holdfast.runtime.__path__):
        module = importlib.import_module("holdfast.runtime." + module.name)
        if getattr(module, "deliver", None) is deliver:
            module.deliver = die
"""


@pytest.mark.parametrize(
    ("before", "sender", "receiver", "needed"),
    [
        ('app.start(receiver, run_id="R"); kill_before_delivery(); app.start(sender, run_id="S")', "S", "R", "message"),
        (
            'app.start(parent, run_id="P", enqueue=True); kill_before_delivery(); app.worker().run(until_idle=True)',
            "P/child:child#1", "P", "it is a child of run 'P', which has not ended",
        ),
    ],
)  # fmt: skip
def test_prune_keeps_a_run_whose_messages_were_not_delivered(
    tmp_path: Path, url: str, before: str, sender: str, receiver: str, needed: str
) -> None:
    def python(code: str) -> int:
        arguments = [sys.executable, "-c", KILLED + code, url]
        return subprocess.run(arguments, cwd=tmp_path, env=environment(), timeout=TIMEOUT_S, check=False).returncode

    assert python(before) == -9
    done = prune(tmp_path, url)
    assert done.code == 1
    (line,) = done.data["runs"]
    assert line["run_id"] == sender
    assert f"its message to run {receiver!r} is not delivered yet" in line["problem"]
    assert needed in line["problem"]
    assert python("app.worker().run(until_idle=True)") == 0
    shown = run("show", receiver, "--store", url, "--json", cwd=tmp_path)
    assert shown.data["run"]["status"] == "completed"
    assert not (tmp_path / "paid").exists() or (tmp_path / "paid").read_text() == "x"
    assert prune(tmp_path, url).code == 0

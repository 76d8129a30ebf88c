"""pause, resume, cancel, send and fork, as processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast
from tests.cli.processes import command as run
from tests.cli.processes import environment

MAKE = "tests.cli.shop:make"


def test_a_paused_run_is_resumed_and_the_exit_code_says_that_it_waits(
    app: holdfast.App, tmp_path: Path, url: str
) -> None:
    app.start("refund", "A-17", run_id="order-17")
    done = run("pause", "order-17", "--store", url, "--app", MAKE, cwd=tmp_path)
    assert (done.code, "order-17 is paused" in done.out) == (0, True), done
    done = run("resume", "order-17", "--store", url, "--app", MAKE, cwd=tmp_path)
    assert done.code == 3
    assert "waits for an answer: Refund this order?" in done.out


FAILING = """
import holdfast

def make(url):
    app = holdfast.App(url)
    @app.workflow
    def fails(run):
        raise ValueError('no')
    return app
"""


def test_a_worker_reports_failed_runs_and_exits_with_1_if_asked(app: holdfast.App, tmp_path: Path, url: str) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    for number, more in enumerate(((), ("--fail",))):
        app.start("fails", run_id=f"f{number}", enqueue=True)
        done = run("worker", "--until-idle", *more, "--store", url, "--app", "failing:make", cwd=tmp_path)
        assert done.code == len(more)
        assert "1 run failed; holdfast list --status failed" in done.out
        assert f"run 'f{number}' of workflow 'fails' failed: ValueError: no" in done.err
        assert f"{tmp_path / 'failing.py'}:8 in fails" in done.err


def test_resume_ends_with_1_if_the_run_fails(app: holdfast.App, tmp_path: Path, url: str) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    app.workflow(name="fails")(lambda run: None)
    app.start("fails", run_id="f", enqueue=True)
    done = run("resume", "f", "--store", url, "--app", "failing:make", "--json", cwd=tmp_path)
    assert (done.code, done.data["status"]) == (1, "failed")


def test_all_paused_runs_are_resumed(app: holdfast.App, tmp_path: Path, url: str) -> None:
    for number in range(3):
        app.start("refund", f"A-{number}", run_id=f"order-{number}")
        app.pause(f"order-{number}")
    app.start("mail", "ana", run_id="mail-1")
    app.pause("mail-1")
    done = run("resume", "--all", "--workflow", "refund", "--store", url, "--json", "--app", MAKE, cwd=tmp_path)
    assert done.code == 0, done.err
    assert [(each["run_id"], each["status"], each["error"]) for each in done.data["runs"]] == [
        ("order-0", "waiting", None), ("order-1", "waiting", None), ("order-2", "waiting", None)
    ]  # fmt: skip
    assert app.handle("mail-1").status() == "paused"
    assert run("resume", "--all", "--store", url, cwd=tmp_path).code == 0
    assert app.handle("mail-1").status() == "ready"
    assert "no run is paused" in run("resume", "--all", "--store", url, cwd=tmp_path).out


@pytest.mark.parametrize("verb", ["resume", "retry", "cancel"])
@pytest.mark.parametrize(
    "arguments", [(), ("x", "--all"), ("x", "--workflow", "w"), ("x", "--meta", "a=1"), ("x", "--prefix", "y")]
)
def test_a_run_or_all_is_needed(tmp_path: Path, verb: str, arguments: tuple[str, ...]) -> None:
    assert run(verb, *arguments, cwd=tmp_path).code == 2


def test_all_failed_runs_are_retried(app: holdfast.App, tmp_path: Path, url: str) -> None:
    broken = [True]

    @app.workflow(name="mails")
    def mails(run: holdfast.Run, number: int) -> int:
        if broken:
            raise ValueError("no")
        return number

    for number in range(4):
        app.start(mails, number, run_id=f"{'late' if number == 3 else 'mail'}-{number}", metadata={"odd": number % 2})
    broken.clear()
    done = run("retry", "--all", "--prefix", "mail-", "--meta", "odd=0", "--store", url, "--json", cwd=tmp_path)
    assert [(each["run_id"], each["status"]) for each in done.data["runs"]] == [
        ("mail-0", "ready"),
        ("mail-2", "ready"),
    ]
    assert app.handle("mail-2").result() == 2
    assert [app.handle(name).status() for name in ("mail-1", "late-3")] == ["failed", "failed"]
    assert run("retry", "--all", "--workflow", "mails", "--store", url, cwd=tmp_path).code == 0
    assert app.handle("late-3").result() == 3
    assert "no run is failed" in run("retry", "--all", "--store", url, cwd=tmp_path).out


def test_all_unfinished_runs_are_cancelled_after_a_question(app: holdfast.App, tmp_path: Path, url: str) -> None:
    for number in range(2):
        app.start("refund", f"A-{number}", run_id=f"order-{number}")
    refused = run("cancel", "--all", "--store", url, cwd=tmp_path)
    assert refused.code == 2
    assert "Cancel 2 runs?" in refused.err
    assert app.handle("order-0").status() == "waiting"
    done = run("cancel", "--all", "--yes", "--store", url, "--app", MAKE, "--json", cwd=tmp_path)
    assert [each["status"] for each in done.data["runs"]] == ["cancelled", "cancelled"]
    assert "no run is unfinished" in run("cancel", "--all", "--yes", "--store", url, cwd=tmp_path).out


def test_cancel_ends_a_run_and_its_end_is_a_conflict_for_others(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("refund", "A-17", run_id="order-17")
    done = run("cancel", "order-17", "--by", "ana", "--store", url, "--app", MAKE, "--json", cwd=tmp_path)
    assert (done.code, done.data["status"]) == (0, "cancelled")
    for verb in ("pause", "resume"):
        assert run(verb, "order-17", "--store", url, cwd=tmp_path).code == 5
    assert run("cancel", "order-17", "--store", url, cwd=tmp_path).code == 0, "two who cancel it want the same"


def test_cancel_without_the_app_is_left_for_a_worker_that_carries_it_out(
    app: holdfast.App, tmp_path: Path, url: str
) -> None:
    app.start("refund", "A-17", run_id="order-17")
    done = run("cancel", "order-17", "--store", url, "--json", cwd=tmp_path)
    assert (done.data["status"], done.data["left_for_worker"]) == ("ready", True)
    done = run("worker", "--until-idle", "--store", url, "--app", MAKE, "--json", cwd=tmp_path)
    assert done.data["moved"] >= 1
    assert app.handle("order-17").status() == "cancelled"


def test_an_event_is_sent_once_for_its_key(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("mail", "ana", run_id="m")
    for _ in range(2):
        done = run("send", "m", "read", '{"at": 7}', "--key", "k", "--store", url, cwd=tmp_path)
        assert done.code == 0, done.err
    assert app.handle("m").result(timeout=240) == "{'at': 7}"
    assert run("send", "m", "read", "{torn", "--store", url, cwd=tmp_path).code == 2


def test_a_fork_goes_another_way_from_a_position_a_call_or_the_end(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("refund", "A-17", run_id="order-17")
    app.answer("order-17", {"approve": True, "note": ""})
    notes = tmp_path / "notes"
    for arguments in (("order-17@2", "b"), ("order-17", "c", "--at", "ask#1"), ("order-17", "d")):
        done = run(
            "fork", *arguments, "--store", url, "--app", MAKE, "--json", cwd=tmp_path, SHOP_NOTES=str(notes)
        )  # fmt: skip
        assert done.code == 0, done.err
        assert done.data["status"] == "waiting"
        assert done.data["forked_from"].startswith("order-17@journal.")
    assert [gate.prompt for name in "bcd" for gate in app.gates(name)] == [
        "Refund this order?", "Refund this order?", "Is the customer content?"
    ]  # fmt: skip
    assert not notes.exists()
    taken = run("fork", "order-17", "d", "--store", url, cwd=tmp_path)
    assert taken.code == 5
    assert run("fork", "order-17@2", "--at", "3", "--store", url, cwd=tmp_path).code == 2


def test_a_fork_of_saved_states_begins_at_its_checkpoint(app: holdfast.App, tmp_path: Path, url: str) -> None:
    for turn in range(4):
        app.store.save("own", {"turn": turn})
    done = run("fork", "own~2", "other", "--store", url, "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    found = app.store.load("other")
    assert found is not None
    assert found.state == {"turn": 1}


def test_the_beginning_of_an_id_and_latest_name_a_run_and_an_ambiguous_one_is_wrong_usage(
    app: holdfast.App, tmp_path: Path, url: str
) -> None:
    for name in ("order-1", "order-2", "other"):
        app.start("refund", "A", run_id=name)
    assert run("log", "oth", "--store", url, "--json", cwd=tmp_path).data["run_id"] == "other"
    assert run("pause", "@latest", "--store", url, "--json", cwd=tmp_path).data["run_id"] == "other"
    done = run("log", "order", "--store", url, "--json", cwd=tmp_path)
    assert done.code == 2
    assert sorted(done.data["error"]["candidates"]) == ["order-1", "order-2"]


def test_ctrl_c_gives_the_run_back_and_says_how_to_go_on(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("slow", run_id="s", enqueue=True)
    notes = tmp_path / "notes"
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "resume", "s", "--app", MAKE, "--store", url],
        cwd=tmp_path, env=environment(SHOP_NOTES=str(notes)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until = time.monotonic() + 30
    while not notes.exists() and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    assert "`holdfast resume s` continues the run" in err
    assert "Traceback" not in err
    info = app.handle("s").info()
    assert (info.status, info.owner) == ("ready", None)


def test_a_failed_run_is_retried_and_every_message_advises_it(app: holdfast.App, tmp_path: Path, url: str) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    app.start("fails", run_id="f", enqueue=True)
    options = ("--store", url, "--app", "failing:make")
    run("resume", "f", *options, cwd=tmp_path)
    assert "`holdfast retry f` repeats the failed call" in run("resume", "f", *options, cwd=tmp_path).err
    assert "\n  holdfast retry f\n" in run("show", "f", *options, cwd=tmp_path).out
    assert run("retry", "f", *options, cwd=tmp_path).code == 1
    (tmp_path / "failing.py").write_text(FAILING.replace("raise ValueError('no')", "return 'mended'"))
    done = run("retry", "f", *options, cwd=tmp_path)
    assert (done.code, "f is completed" in done.out) == (0, True), done
    again = run("retry", "f", *options, cwd=tmp_path)
    assert (again.code, "is completed, and only a failed run can be retried" in again.err) == (5, True), again


def test_a_retry_without_the_app_is_left_for_a_worker(app: holdfast.App, tmp_path: Path, url: str) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    app.start("fails", run_id="f", enqueue=True)
    run("resume", "f", "--store", url, "--app", "failing:make", cwd=tmp_path)
    done = run("retry", "f", "--store", url, "--json", cwd=tmp_path)
    assert (done.code, done.data["left_for_worker"]) == (0, True)
    (tmp_path / "failing.py").write_text(FAILING.replace("raise ValueError('no')", "return 'mended'"))
    run("worker", "--until-idle", "--store", url, "--app", "failing:make", cwd=tmp_path)
    assert app.handle("f").status() == "completed"

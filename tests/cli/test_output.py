"""Output for people and for programs: colours, widths, times, pipes, and errors without tracebacks."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli import exit_codes
from holdfast.cli.format import age
from holdfast.cli.output import ago, columns, duration, one_line, plain, size
from tests.cli import shop
from tests.cli.processes import command as run
from tests.cli.processes import environment
from tests.cli.terminal import Terminal
from tests.store.postgres import shared_servers

COLOUR = "\x1b["


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    with shop.make(f"sqlite:{tmp_path / 'holdfast.db'}") as app:
        app.start("refund", "A-17", run_id="order-17")
    return tmp_path


def test_colours_are_for_terminals_that_want_them(waiting: Path) -> None:
    def shown(*more: str, **env: Any) -> str:
        with Terminal("pause", "order-17", *more, cwd=waiting, **env) as terminal:
            assert terminal.wait() == 0
        return terminal.raw

    assert COLOUR in shown()
    assert COLOUR not in shown(NO_COLOR="1")
    assert COLOUR not in shown(TERM="dumb")
    assert COLOUR not in shown("--no-color")
    assert COLOUR not in run("pause", "order-17", cwd=waiting).out
    assert COLOUR in run("pause", "order-17", "--color", cwd=waiting).out


def test_a_traceback_is_only_shown_to_who_asks_for_it(waiting: Path) -> None:
    done = run("pause", "nobody", cwd=waiting)
    assert "Traceback" not in done.err
    assert "Traceback" in run("pause", "nobody", cwd=waiting, HOLDFAST_DEBUG="1").err


def test_a_defect_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(
        "import holdfast\n"
        "class Odd(holdfast.App):\n"
        "    def pause(self, *a, **k):\n"
        "        raise KeyError('odd')\n"
        "def make(url):\n"
        "    return Odd(url)\n"
    )
    with holdfast.open(f"sqlite:{tmp_path / 'holdfast.db'}") as store:
        store.save("x", {})
    done = run("pause", "x", "--app", "odd:make", "--json", cwd=tmp_path)
    assert (done.code, done.data["error"]["type"]) == (1, "KeyError")
    assert "Traceback" not in done.err


def test_a_reader_that_has_seen_enough_is_no_error(waiting: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "completions", "bash"], cwd=waiting, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    told = process.stderr.read()
    process.stderr.close()
    assert process.wait(240) in (0, 1)
    assert b"Traceback" not in told


def test_a_password_is_never_shown(tmp_path: Path) -> None:
    for url in ("postgresql://ana:s3cret@127.0.0.1:1/x", "postgresql://127.0.0.1:1/x?user=ana&password=s3cret"):
        done = run("pause", "x", "--store", url, "--json", cwd=tmp_path)
        assert done.code == 1, done
        assert "s3cret" not in done.out + done.err


def test_on_postgresql_a_run_is_answered_and_moved_on_by_a_worker(tmp_path: Path) -> None:
    url = shared_servers.new_url()
    with shop.make(url) as app:
        app.start("refund", "A-17", run_id="order-17")
        done = run("answer", "@latest", "approve=no", "note=", "--store", url, "--json", cwd=tmp_path)
        assert (done.code, done.data["status"], done.data["left_for_worker"]) == (0, "ready", True), done.err
        done = run("worker", "--until-idle", "--store", url, "--app", "tests.cli.shop:make", cwd=tmp_path)
        assert done.code == 0, done.err
        assert app.handle("order-17").result(timeout=240) == {"paid": None}


def test_times_sizes_and_ages_for_people() -> None:
    now = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    assert ago(now - dt.timedelta(minutes=3, seconds=20), now) == "3 min ago"
    assert ago(now + dt.timedelta(days=2), now) == "in 2 d"
    assert ago(now + dt.timedelta(days=3) - dt.timedelta(milliseconds=4), now) == "in 3 d"
    assert ago(now + dt.timedelta(minutes=59, seconds=59.9), now) == "in 1 h"
    assert ago(now + dt.timedelta(hours=14), now) == "in 14 h"
    assert ago(now - dt.timedelta(days=3) + dt.timedelta(milliseconds=4), now) == "2 d ago"
    assert duration(0.25) == "250 ms"
    assert [size(999), size(1_500), size(2_000_000)] == ["999 B", "1.5 KB", "2.0 MB"]
    assert age("90min") == dt.timedelta(minutes=90)
    assert age("1.5h") == dt.timedelta(minutes=90)


def test_text_for_a_table_is_one_line_without_control_signs() -> None:
    assert one_line("a\nb\x1b[31mc") == "a b�[31mc"
    assert columns("日本") == 4


def test_values_without_a_word_in_json_become_text() -> None:
    assert plain({"a": (1, {2}), "b": b"\xff", "c": dt.date(2026, 1, 2)}) == {
        "a": [1, [2]], "b": {"$base64": "/w=="}, "c": "2026-01-02"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (holdfast.InvalidInput("x"), 2),
        (holdfast.errors.RunNotFound("x"), 4),
        (holdfast.errors.RunExists("x"), 5),
        (holdfast.errors.Diverged("r", "a", "b", 1), 1),
        (holdfast.errors.StorageFailed("x"), 1),
        (holdfast.DamagedData("a", "b"), 1),
        (exit_codes.NoStore("x"), 4),
        (KeyboardInterrupt(), 130),
        (RuntimeError("x"), 1),
    ],
)
def test_every_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert exit_codes.code_of(error) == code


def test_messages_say_what_to_type_and_not_what_to_call(waiting: Path) -> None:
    with shop.make(f"sqlite:{waiting / 'holdfast.db'}") as app:
        app.start("mail", "ana", run_id="mail-1")
    assert "`holdfast list` lists all runs" in run("pause", "nobody", cwd=waiting).err
    assert "--force leaves them as they are" in run("rollback", "mail-1", "--to", "1", cwd=waiting).err
    assert "name the place to return to with --to" in run("rollback", "mail-1", cwd=waiting).err
    for done in (run("fork", "mail-1~7", cwd=waiting), run("fork", "mail-1", "--at", "900", cwd=waiting)):
        assert "store." not in done.err
        assert "=True" not in done.err


def test_what_a_run_waits_for_is_said(waiting: Path) -> None:
    with shop.make(f"sqlite:{waiting / 'holdfast.db'}") as app:
        app.start("mail", "ana", run_id="mail-1")
    done = run("resume", "mail-1", "--app", "tests.cli.shop:make", cwd=waiting)
    assert "mail-1 is waiting for the event 'read'" in done.out


def test_progress_is_shown_in_a_terminal_and_not_in_a_pipe(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:{tmp_path / 'holdfast.db'}") as store:
        for number in range(30):
            for turn in range(3):
                store.save(f"run-{number}", {"turn": turn, "text": f"{number} {turn} " * 900})
    arguments = ("prune", "--all", "--keep-last", "1", "--yes")
    piped = run(*arguments, "--dry-run", cwd=tmp_path)
    assert "━" not in piped.out + piped.err
    assert len(piped.out.splitlines()) == 32
    with Terminal(*arguments, cwd=tmp_path) as terminal:
        assert terminal.wait() == 0
    assert "pruning ━" in terminal.text
    assert "… and 10 more runs" in terminal.text

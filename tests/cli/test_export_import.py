"""export, import, langgraph, migrate, check, worker, completions and demo, as processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast
from tests.adapters.langgraph.material import chat, said
from tests.adapters.langgraph.sources import Source
from tests.cli.processes import command as run
from tests.cli.processes import environment
from tests.cli.terminal import Terminal
from tests.store.postgres import shared_servers

MAKE = "tests.cli.shop:make"


def test_an_archive_brings_a_run_into_another_store(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("agent", 4, run_id="a/1")
    assert "open gates, timers and state" in " ".join(run("export", "--help", cwd=tmp_path).out.split())
    done = run("export", "a/1", "--store", url, "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.data["runs"][0]["files"] == ["a%2F1.holdfast"]
    assert run("export", "a/1", "--store", url, cwd=tmp_path).code == 5
    assert run("export", "a/1", "--store", url, "--replace", cwd=tmp_path).code == 0
    assert sorted(name for name in os.listdir(tmp_path) if "part" in name) == []
    other = ("--store", "sqlite:other.db", "--json")
    done = run("import", "a%2F1.holdfast", *other, cwd=tmp_path)
    assert (done.code, done.data["runs"][0]["run_id"]) == (0, "a/1")
    assert run("import", "a%2F1.holdfast", *other, cwd=tmp_path).code == 5
    assert run("import", "a%2F1.holdfast", "--as", "b", *other, cwd=tmp_path).code == 0
    with holdfast.open(f"sqlite:{tmp_path / 'other.db'}") as store:
        for name in ("a/1", "b"):
            found, before = store.load(name), app.store.load("a/1")
            assert found is not None
            assert before is not None
            assert found.state == before.state
        assert store.verify().ok


def test_archives_go_through_pipes_and_into_directories(app: holdfast.App, tmp_path: Path) -> None:
    app.store.save("one", {"n": 1})
    app.store.save("two", {"n": 2})
    url = app.store.url
    assert run("export", "one", "two", "-o", "archives", "--store", url, cwd=tmp_path).code == 0
    assert sorted(os.listdir(tmp_path / "archives")) == ["one.holdfast", "two.holdfast"]
    whole = subprocess.run(
        [sys.executable, "-m", "holdfast", "export", "one", "-o", "-", "--store", url],
        cwd=tmp_path, env=environment(), capture_output=True, check=True,
    ).stdout  # fmt: skip
    assert whole.startswith(b"holdfast run 3\n")
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "import", "-", "--store", "sqlite:piped.db"],
        cwd=tmp_path, env=environment(), input=whole, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with Terminal("export", "one", "-o", "-", "--store", url, cwd=tmp_path) as terminal:
        assert terminal.wait() == 2


def test_one_bad_archive_does_not_keep_the_others_out(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:{tmp_path / 'holdfast.db'}") as store:
        store.save("good", {})
        (tmp_path / "good").write_bytes(store.export_run("good"))
    (tmp_path / "bad").write_bytes(b"holdfast run 1\n and then nothing that makes sense" * 3)
    done = run("import", "bad", "good", "--store", "sqlite:new.db", "--json", cwd=tmp_path)
    assert done.code == 1
    assert [(each["file"], each["run_id"]) for each in done.data["runs"]] == [("bad", None), ("good", "good")]
    assert "truncated or altered" in done.data["runs"][0]["error"]
    assert run("import", "missing", cwd=tmp_path).code == 2


PAUSED = {
    "run_id": "run-1", "workflow": {"id": "refund", "name": "Refund", "start": "gate", "stages": [], "edges": []},
    "paused_stage_id": "gate", "prompt": "Refund?", "fields": [
        {"name": "approve", "field_type": "boolean", "required": True}
    ],
    "output_key": "approval", "wf_state": {"order": "A-17"}, "stage_results": [], "completed_stage_ids": [],
    "iterations": 1, "prior_duration_ms": 0.0, "created_at": "2026-08-18T09:41:07.123456789Z",
}  # fmt: skip


def test_files_of_another_system_come_in_and_go_out_again(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "run-1.json").write_text(json.dumps(PAUSED))
    (tmp_path / "runs" / "torn.json").write_text('{"run_id": ')
    done = run("import", "car", "runs", "--json", cwd=tmp_path)
    assert done.code == 1
    assert done.data["runs"] == ["run-1"]
    assert len(done.data["damaged"]) == 1
    assert run("import", "car", "runs", "--json", cwd=tmp_path).data["existing"] == ["run-1"]
    done = run("export", "run-1", "--to", "car", "back", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "back" / "run-1.json").read_text()) == PAUSED
    assert run("export", "run-1", "--to", "nonsense", "back", cwd=tmp_path).code == 2
    assert run("import", "car", "missing", cwd=tmp_path).code == 2


def test_threads_of_langgraph_are_moved_listed_and_thinned_out(tmp_path: Path) -> None:
    source = Source("sqlite", tmp_path, "theirs")
    with source.saver() as saver:
        graph = chat(saver)
        for turn in range(3):
            graph.invoke(said(f"turn {turn}"), {"configurable": {"thread_id": "t-1"}})
    dry = run("langgraph", "import", "theirs.sqlite", "--dry-run", "--json", cwd=tmp_path)
    assert dry.code == 0, dry.err
    assert not (tmp_path / "holdfast.db").exists()
    done = run("langgraph", "import", "theirs.sqlite", "--json", cwd=tmp_path)
    assert (done.data["threads"], done.data["problems"], done.data["verified"]) == (1, [], True)
    listed = run("langgraph", "threads", "--json", cwd=tmp_path)
    assert [each["run_id"] for each in listed.data["threads"]] == ["t-1"]
    assert "t-1" in run("langgraph", "threads", cwd=tmp_path).out
    for arguments in (("--json", "langgraph", "threads"), ("langgraph", "--json", "threads")):
        assert len(run("--store", "sqlite:holdfast.db", *arguments, cwd=tmp_path).data["threads"]) == 1
    assert run("langgraph", "retain", "--last", "1", cwd=tmp_path).code == 2
    done = run("langgraph", "retain", "--last", "1", "--yes", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.data["checkpoints"] > 0
    assert run("langgraph", "import", "missing.sqlite", cwd=tmp_path).code in (1, 2)


def test_migrate_says_what_there_is_and_makes_it(tmp_path: Path, url: str) -> None:
    pending = [1, 2, 3] if url.startswith("sqlite") else [1, 2]
    done = run("migrate", "--dry-run", "--store", url, "--json", cwd=tmp_path)
    assert (done.data["version"], done.data["pending"], done.data["migrated"]) == (0, pending, False)
    assert os.listdir(tmp_path) == []
    assert run("migrate", "--sql", "--store", url, cwd=tmp_path).code == 2
    assert run("migrate", "--store", url, "--json", cwd=tmp_path).data["migrated"] is True
    done = run("migrate", "--store", url, "--json", cwd=tmp_path)
    assert (done.data["version"], done.data["pending"], done.data["migrated"]) == (pending[-1], [], False)


def test_migrate_leaves_other_programs_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "holdfast.db") as other:
        other.execute("CREATE TABLE theirs (a)")
    assert run("migrate", "--dry-run", cwd=tmp_path).code == 1


def test_on_postgresql_migrate_prints_the_sql_that_makes_the_schema(tmp_path: Path) -> None:
    url = shared_servers.new_url()
    looked = run("pause", "x", "--store", url, cwd=tmp_path)
    assert looked.code == 4
    assert "there is no store at postgresql://" in looked.err
    done = run("migrate", "--sql", "--store", url, "--json", cwd=tmp_path)
    assert "CREATE TABLE" in done.data["sql"]
    assert run("migrate", "--dry-run", "--store", url, "--json", cwd=tmp_path).data["version"] == 0
    assert run("migrate", "--store", url, "--json", cwd=tmp_path).data["migrated"] is True
    assert run("pause", "x", "--store", url, cwd=tmp_path).code == 4


def test_check_replays_stored_runs_and_tells_what_diverged(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("refund", "A-17", run_id="order-17")
    app.start("mail", "ana", run_id="mail-1")
    app.store.save("own", {})
    arguments = ("check", "--all", "--store", url, "--json")
    done = run(*arguments, "--app", MAKE, cwd=tmp_path)
    assert done.code == 0, done.err
    assert (done.data["ok"], done.data["diverged"], done.data["skipped"]) == (2, 0, 1)
    (tmp_path / "changed.py").write_text(
        "from tests.cli import shop\n"
        "def make(url):\n"
        "    app = shop.holdfast.App(url)\n"
        "    app.workflow(name='refund')(lambda run, order: run.step(lambda: 1, name='other'))\n"
        "    return app\n"
    )
    done = run(*arguments, "--app", "changed:make", cwd=tmp_path)
    assert done.code == 5
    (diverged,) = [each for each in done.data["runs"] if each["outcome"] == "diverged"]
    assert diverged["run_id"] == "order-17"
    assert "price" in diverged["detail"]
    assert app.handle("order-17").status() == "waiting"
    assert run("check", "--all", "--store", url, cwd=tmp_path).code == 2
    named = run("check", "mail-1", "--store", url, "--app", "changed:make", "--json", cwd=tmp_path)
    assert (named.code, named.data["skipped"]) == (0, 1)


def test_a_worker_needs_an_app_and_sensible_limits(tmp_path: Path) -> None:
    assert run("worker", "--until-idle", cwd=tmp_path).code == 2
    assert run("worker", "--until-idle", "--app", MAKE, "--limit", "refund", cwd=tmp_path).code == 2
    assert run("worker", "--until-idle", "--app", MAKE, "--limit", "nobody=1", cwd=tmp_path).code == 4
    done = run("worker", "--until-idle", "--app", MAKE, "--limit", "refund=1", "--json", cwd=tmp_path)
    assert (done.code, done.data["moved"]) == (0, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_ends_when_it_is_told_to(app: holdfast.App, tmp_path: Path, url: str, number: int) -> None:
    app.start("talk", run_id="t", enqueue=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "worker", "--app", MAKE, "--store", url, "--json"],
        cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until = time.monotonic() + 30
    while app.handle("t").status() != "completed" and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(number)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert json.loads(out) == {"moved": 1, "failed": 0, "until_idle": False}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_for_each_shell(tmp_path: Path, shell: str) -> None:
    done = run("completions", shell, cwd=tmp_path)
    assert done.code == 0
    assert "_HOLDFAST_COMPLETE" in done.out
    assert run("completions", "cmd", cwd=tmp_path).code == 2


def completed(folder: Path, *words: str) -> list[str]:
    """What a shell would offer for the last word."""
    return [line.partition(",")[2] for line in offered(folder, *words)]


def offered(folder: Path, *words: str) -> list[str]:
    """The same as the shell is told it, with the kind of each."""
    done = run(
        cwd=folder, _HOLDFAST_COMPLETE="bash_complete", COMP_WORDS=" ".join(("holdfast", *words)),
        COMP_CWORD=str(len(words)),
    )  # fmt: skip
    assert done.code == 0, done.err
    return [line for line in done.out.splitlines() if line]


def test_verbs_options_runs_and_choices_are_completed(tmp_path: Path) -> None:
    assert completed(tmp_path, "roll") == ["rollback"]
    assert completed(tmp_path, "pause", "or") == []
    assert not (tmp_path / "holdfast.db").exists()
    with holdfast.open(f"sqlite:{tmp_path / 'holdfast.db'}") as store:
        for name in ("order-1", "order-2", "other"):
            store.save(name, {})
    assert sorted(completed(tmp_path, "pause", "ord")) == ["order-1", "order-2"]
    assert completed(tmp_path, "rollback", "--dry") == ["--dry-run"]
    assert completed(tmp_path, "fork", "x", "--effects", "p") == ["perform"]
    assert completed(tmp_path, "--store", "sqlite:none.db", "pause", "ord") == []
    assert completed(tmp_path, "langgraph", "imp") == ["import"]


LOOKING = (("show",), ("log",), ("diff",), ("diff", "other"), ("gates",), ("effects",), ("graph", "migrate"))


@pytest.mark.parametrize("words", LOOKING)
def test_the_verbs_that_look_complete_runs(tmp_path: Path, words: tuple[str, ...]) -> None:
    with holdfast.open(f"sqlite:{tmp_path / 'holdfast.db'}") as store:
        for name in ("order-1", "order-2", "other"):
            store.save(name, {})
    assert sorted(completed(tmp_path, *words, "ord")) == ["order-1", "order-2"]


def test_files_are_left_to_the_shell_and_stand_before_runs(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:{tmp_path / 'holdfast.db'}") as store:
        store.save("order-1", {})
    for words in (("import",), ("graph", "verify"), ("graph", "dry-run"), ("graph", "migrate", "order-1")):
        assert offered(tmp_path, *words, "ord") == ["file,ord"]
    assert offered(tmp_path, "graph", "draw", "ord") == ["file,ord", "plain,order-1"]


@pytest.mark.parametrize("name", ["junk", "empty", "torn", "newer"])
def test_what_is_no_archive_is_told_by_its_name(app: holdfast.App, tmp_path: Path, url: str, name: str) -> None:
    app.store.save("r", {"n": 1})
    whole = app.store.export_run("r")
    data = {"junk": b"no archive", "empty": b"", "torn": whole[:-3], "newer": whole.replace(b"run 3", b"run 9", 1)}
    (tmp_path / name).write_bytes(data[name])
    done = run("import", name, "--store", url, "--as", "new", cwd=tmp_path)
    assert done.code == 1
    said = {"torn": "torn is damaged: it is truncated", "newer": "newer cannot be read: it has an unknown version"}
    assert said.get(name, f"holdfast: {name} is not an archive; `holdfast export` writes archives") in done.err
    assert "verify" not in done.err


def test_a_damaged_store_is_not_taken_for_a_damaged_archive_nor_is_one_made_for_junk(tmp_path: Path) -> None:
    with holdfast.open("memory:") as store:
        store.save("r", {"n": 1})
        (tmp_path / "r.holdfast").write_bytes(store.export_run("r"))
    (tmp_path / "holdfast.db").write_bytes(b"something else entirely, and long enough " * 100)
    done = run("import", "r.holdfast", cwd=tmp_path)
    assert done.code == 1
    assert "holdfast.db is damaged" in done.err
    (tmp_path / "junk").write_bytes(b"no archive")
    assert run("import", "junk", "--store", "sqlite:new.db", cwd=tmp_path).code == 1
    assert not (tmp_path / "new.db").exists()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_itself_completes(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:{tmp_path / 'holdfast.db'}") as store:
        store.save("order-1", {})
    (tmp_path / "script").write_text(run("completions", "bash", cwd=tmp_path).out)
    program = tmp_path / "holdfast"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast "$@"\n')
    program.chmod(0o755)
    for words, word in (
        ("holdfast roll", "rollback"), ("holdfast pause ord", "order-1"), ("holdfast list --status = wa", "waiting"),
        ("holdfast list --status = waiting --prefix = x --wor", "--workflow"),
    ):  # fmt: skip
        line = f"COMP_WORDS=({words}); COMP_CWORD={len(words.split()) - 1}; _holdfast_completion ./holdfast"
        done = subprocess.run(
            ["bash", "--norc", "-c", f'source ./script; {line}; echo "${{COMPREPLY[@]}}"'],
            cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stdout.strip() == word, done.stderr


def test_the_demo_is_shown(tmp_path: Path) -> None:
    done = run("demo", "--json", cwd=tmp_path)
    assert (done.code, done.data) == (0, {"shown": True}), done.err
    assert "The customer reads" in done.err


def test_a_system_that_is_not_known_and_a_directory_without_its_files_are_told(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    wrong = run("import", "cra", "runs", cwd=tmp_path)
    assert wrong.code == 2
    assert "unknown system 'cra'; did you mean 'car'?" in wrong.err
    assert "the systems are car, simple_agents" in run("import", "zzz", "runs", cwd=tmp_path).err
    (tmp_path / "runs" / "run-1.json").write_text("{}")
    empty = run("import", "mur", "runs", cwd=tmp_path)
    assert empty.code == 0
    assert "runs has no files of mur; other systems: car, " in empty.err

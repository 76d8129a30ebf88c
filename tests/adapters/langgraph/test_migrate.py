"""Migration: threads of LangGraph's own savers are the same in a Holdfast store."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver, TypeRefused, migrate
from holdfast.errors import InvalidInput
from tests.adapters.langgraph.material import Delta, chat, said, texts
from tests.adapters.langgraph.sources import (
    THREADS,
    Order,
    Source,
    all_of,
    asking,
    assert_same,
    clean,
    counted,
    filled,
    mixed,
    of,
    shown,
)
from tests.fork_server import LANGGRAPH, run
from tests.store.postgres import shared_servers

_count = itertools.count()


def test_everything_is_the_same_as_in_the_source(source: Source, target: str) -> None:
    filled(source)
    checkpoints, writes = counted(source)
    before = source.file_hashes()
    report = clean(migrate(source.url, target), threads=5, checkpoints=checkpoints, writes=writes, unchanged=0)
    assert source.file_hashes() == before
    assert report.verified
    assert report.source_bytes > 10_000
    assert report.stored_bytes > 0
    assert_same(source, target)


def test_moved_threads_have_the_status_that_their_graphs_left_them_in(source: Source, target: str) -> None:
    filled(source, 2)
    clean(migrate(source.url, target))
    with holdfast.open(target) as store:
        found = {info.run_id: info.status for info in store.runs(workflow="langgraph")}
    assert {name: found[name] for name in THREADS} == dict.fromkeys(THREADS, "completed") | {"waiting": "waiting"}


def test_all_threads_are_listed_in_the_same_order(source: Source, file_target: str) -> None:
    filled(source, 3)
    migrate(source.url, file_target)
    with source.saver() as theirs, HoldfastSaver(file_target, allow=[Order]) as ours:
        expected = [each.config["configurable"] for each in theirs.list(None)]
        assert [each.config["configurable"] for each in ours.list(None)] == expected
        by_step = [each.config["configurable"] for each in ours.list(None, filter={"step": 1})]
        assert by_step == [each.config["configurable"] for each in theirs.list(None, filter={"step": 1})]
        assert by_step


def test_delta_channels_have_the_same_history(source: Source, file_target: str) -> None:
    filled(source, 9)
    clean(migrate(source.url, file_target))
    with source.saver() as theirs, HoldfastSaver(file_target) as ours:
        for found in list(theirs.list(of("delta"))):
            expected = theirs.get_delta_channel_history(config=found.config, channels=["messages"])
            assert ours.get_delta_channel_history(config=found.config, channels=["messages"]) == expected
        states = [chat(saver, Delta).get_state(of("delta")).values["messages"] for saver in (ours, theirs)]
        assert states[0] == states[1]
        assert len(states[0]) == 18


def test_a_moved_thread_continues_like_the_original(source: Source, target: str) -> None:
    filled(source, 3)
    clean(migrate(source.url, target))
    with source.saver() as theirs, HoldfastSaver(target, allow=[Order]) as ours:
        results, versions = [], []
        for saver in (ours, theirs):
            answered = asking(saver).invoke(Command(resume="yes"), of("waiting"))
            talked = chat(saver).invoke(said("and now?"), of("chat"))
            delta = chat(saver, Delta).invoke(said("and now?"), of("delta"))
            results.append((answered, texts(talked["messages"]), texts(delta["messages"])))
            newest = shown(saver.get_tuple(of("chat")))
            versions.append({k: v.partition(".")[0] for k, v in newest["checkpoint"]["channel_versions"].items()})
        assert results[0] == results[1]
        assert results[0][0]["answer"] == "YES"
        assert versions[0] == versions[1]
        history = [
            [(s.metadata["step"], s.next) for s in chat(saver).get_state_history(of("chat"))]
            for saver in (ours, theirs)
        ]
        assert history[0] == history[1]


def test_an_interrupt_of_a_moved_thread_can_be_replaced(source: Source, file_target: str) -> None:
    filled(source, 1)
    clean(migrate(source.url, file_target))
    with source.saver() as theirs, HoldfastSaver(file_target) as ours:
        found = []
        savers: tuple[Any, ...] = (ours, theirs)
        for saver in savers:
            waiting = saver.get_tuple(of("waiting"))
            (task,) = {task for task, channel, _ in waiting.pending_writes if channel == "__interrupt__"}
            saver.put_writes(waiting.config, [("__interrupt__", ["another"])], task)
            found.append(shown(saver.get_tuple(of("waiting")))["writes"])
        assert found[0] == found[1]
        assert (task, "__interrupt__", ["another"]) in found[0]


def test_types_that_are_not_allowed_are_moved_and_nothing_is_imported(source: Source, file_target: str) -> None:
    filled(source, 1)
    script = (
        "import sys; from holdfast.adapters.langgraph import migrate\n"
        f"report = migrate({source.url!r}, {file_target!r})\n"
        "assert not report.problems, report\n"
        "assert not [name for name in sys.modules if name.startswith('tests')]"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=240)
    with HoldfastSaver(file_target, strict=True) as strict, pytest.raises(TypeRefused):
        strict.get_tuple(of("mixed"))
    with HoldfastSaver(file_target, allow=[Order]) as saver:
        state = mixed(saver).get_state(of("mixed")).values
        assert state["order"] == Order(7, "x" * 700)


def test_calling_again_moves_nothing(source: Source, target: str) -> None:
    filled(source, 2)
    migrate(source.url, target)
    with HoldfastSaver(target, allow=[Order]) as saver:
        before = all_of(saver, *THREADS)
        report = clean(migrate(source.url, saver.store), threads=0, checkpoints=0, writes=0, unchanged=5)
        assert "5 threads were moved before" in str(report)
        assert all_of(saver, *THREADS) == before


def test_what_the_source_got_since_is_moved_too(source: Source, target: str) -> None:
    filled(source, 2)
    migrate(source.url, target)
    before, writes_before = counted(source)
    with source.saver() as saver:
        asking(saver).invoke(Command(resume="later"), of("waiting"))  # new writes beside checkpoints that were moved
        chat(saver).invoke(said("more"), of("chat"))
        chat(saver).invoke(said("new"), of("new"))
    after, writes_after = counted(source)
    report = clean(migrate(source.url, target), threads=3, unchanged=3, checkpoints=after - before)
    assert report.writes == writes_after - writes_before
    assert_same(source, target, *THREADS, "new")
    clean(migrate(source.url, target), threads=0, unchanged=6)


def test_a_thread_that_was_continued_in_the_store_is_skipped(source: Source, target: str) -> None:
    filled(source, 2)
    migrate(source.url, target)
    with source.saver() as theirs:
        chat(theirs).invoke(said("there"), of("chat"))
    with HoldfastSaver(target) as ours:
        chat(ours).invoke(said("here"), of("chat"))
        before = all_of(ours, "chat")
        report = migrate(source.url, ours.store)
        assert [re.sub(r"'.*': ", "", text) for text in report.skipped] == ["thread it was continued in the store"]
        assert (report.threads, report.unchanged, report.problems) == (0, 4, [])
        assert all_of(ours, "chat") == before


def test_a_thread_of_another_source_is_skipped(sqlite_source: Source, folder: Path, file_target: str) -> None:
    other = Source("sqlite", folder, f"source-{next(_count)}")
    for each in (sqlite_source, other):
        with each.saver() as saver:
            chat(saver).invoke(said("one"), of("chat"))
    clean(migrate(sqlite_source.url, file_target), threads=1)
    assert "from another source" in migrate(other.url, file_target).skipped[0]
    assert_same(sqlite_source, file_target, "chat")
    with HoldfastSaver(file_target) as ours:  # a copy has the mark of what it was copied from
        ours.copy_thread("chat", "copied")
    columns = "checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata"
    sqlite_source.execute(f"INSERT INTO checkpoints (thread_id, {columns}) SELECT 'copied', {columns} FROM checkpoints")
    assert "from another source" in migrate(sqlite_source.url, file_target).skipped[0]
    with holdfast.open(file_target) as store:
        store.save("new", {"a": 1}, workflow="mine")
        with other.saver() as saver:
            chat(saver).invoke(said("one"), of("new"))
        assert "a run of this id from another source" in "".join(migrate(other.url, store).skipped)


def test_a_claimed_thread_is_skipped(sqlite_source: Source, file_target: str) -> None:
    filled(sqlite_source, 1)
    migrate(sqlite_source.url, file_target)
    with sqlite_source.saver() as theirs:
        chat(theirs).invoke(said("more"), of("chat"))
    with HoldfastSaver(file_target) as ours, ours.claim("chat"):
        report = migrate(sqlite_source.url, file_target)
    assert [text[:14] for text in report.skipped] == ["thread 'chat':"]
    assert report.problems == []
    clean(migrate(sqlite_source.url, file_target), threads=1)


def test_only_the_threads_asked_for_are_moved(source: Source, file_target: str) -> None:
    filled(source, 1)
    report = migrate(source.url, file_target, thread_ids=["chat", "mixed", "nobody"])
    assert report.problems == ["thread 'nobody' is not in the source"]
    assert report.threads == 2
    with HoldfastSaver(file_target, allow=[Order]) as saver:
        assert {each.config["configurable"]["thread_id"] for each in saver.list(None)} == {"chat", "mixed"}
    clean(migrate(source.url, file_target), threads=3, unchanged=2)
    assert_same(source, file_target)


def test_a_dry_run_writes_nothing(source: Source, folder: Path) -> None:
    filled(source, 2)
    checkpoints, writes = counted(source)
    path = folder / f"dry-{next(_count)}.db"
    report = clean(
        migrate(source.url, f"sqlite:{path}", dry_run=True), checkpoints=checkpoints, writes=writes, threads=5
    )
    assert (report.dry_run, report.stored_bytes, path.exists()) == (True, 0, False)
    assert "would be moved" in str(report)
    url = shared_servers.new_url()
    migrate(source.url, url, dry_run=True)
    schema = url.partition("schema=")[2].partition("&")[0]
    with psycopg.connect(url.partition("?schema")[0].partition("&schema")[0]) as link:
        assert link.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone() is None
    clean(migrate(source.url, f"sqlite:{path}"), threads=5)
    clean(migrate(source.url, f"sqlite:{path}", dry_run=True), threads=0, unchanged=5)
    with source.saver() as saver:
        chat(saver).invoke(said("more"), of("chat"))
    with HoldfastSaver(f"sqlite:{path}") as ours:
        before = all_of(ours, "chat")
        clean(migrate(source.url, ours.store, dry_run=True), threads=1, unchanged=4, checkpoints=3)
        assert all_of(ours, "chat") == before


def test_progress_is_reported_and_shown(sqlite_source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    filled(sqlite_source, 1)
    checkpoints, _ = counted(sqlite_source)
    reported: list[tuple[int, int]] = []
    migrate(sqlite_source.url, "memory:", progress=lambda done, total: reported.append((done, total)))
    assert reported[0] == (0, checkpoints)
    assert reported[-1] == (checkpoints, checkpoints)
    assert [done for done, _ in reported] == sorted(done for done, _ in reported)
    migrate(sqlite_source.url, "memory:", progress=True)
    assert f"100% {checkpoints}/{checkpoints} checkpoints" in capsys.readouterr().err


def test_the_command(sqlite_source: Source, file_target: str, folder: Path) -> None:
    filled(sqlite_source, 1)

    def call(*arguments: str) -> tuple[int, str, str]:
        done = run("-m", "holdfast", "langgraph", *arguments, "--store", file_target, loaded=LANGGRAPH)
        return done.returncode, done.stdout, done.stderr

    code, out, _ = call("import", str(sqlite_source.path), "--dry-run", "--thread", "chat")
    assert (code, "1 threads" in out, "would be moved" in out) == (0, True, True)
    code, out, _ = call("import", sqlite_source.url)
    assert (code, "moved and verified" in out) == (0, True)
    code, out, _ = call("import", sqlite_source.url, "--thread", "nobody", "--no-verify")
    assert (code, "problem: thread 'nobody'" in out) == (1, True)
    assert call("import")[0] == 2
    assert call("import", str(folder / "nowhere"))[0] == 2


def test_mistakes_are_refused(sqlite_source: Source, file_target: str) -> None:
    filled(sqlite_source, 1)
    with pytest.raises(InvalidInput, match="list of ids"):
        migrate(sqlite_source.url, file_target, thread_ids="chat")
    with pytest.raises(InvalidInput, match="allow="):
        migrate(sqlite_source.url, file_target, allow=[Order], serde=JsonPlusSerializer())

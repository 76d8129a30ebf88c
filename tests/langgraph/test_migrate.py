"""Migrating: what LangGraph's own savers stored is the same in ours."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver, Migrated, TypeRefused, ValueUnreadable, migrate
from holdfast.errors import DamagedData, InvalidInput
from tests.langgraph.material import Delta, chat, checkpoint, config, described, id_of, said, texts
from tests.langgraph.sources import THREADS, Order, Source, all_of, asking, assert_same, filled, mixed, of
from tests.postgres import places

_count = itertools.count()


@pytest.fixture(params=["sqlite", "postgres"])
def source(request: pytest.FixtureRequest, folder: Path) -> Source:
    """A database of LangGraph's."""
    return Source(request.param, folder, f"source-{next(_count)}")


@pytest.fixture
def sqlite_source(folder: Path) -> Source:
    """One that is a file."""
    return Source("sqlite", folder, f"source-{next(_count)}")


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, folder: Path) -> str:
    """An empty store."""
    return places.new_url() if request.param == "postgres" else f"sqlite:{folder / f'target-{next(_count)}.db'}"


@pytest.fixture
def file_target(folder: Path) -> str:
    """An empty store that is a file."""
    return f"sqlite:{folder / f'target-{next(_count)}.db'}"


def clean(report: Migrated, **expected: Any) -> Migrated:
    assert report.problems == []
    assert report.skipped == []
    for name, value in expected.items():
        assert getattr(report, name) == value, report
    return report


def counted(source: Source) -> tuple[int, int]:
    with source.saver() as saver:
        found = list(saver.list(None))
        return len(found), sum(len(each.pending_writes) for each in found)


def test_everything_is_the_same_as_in_the_source(source: Source, target: str) -> None:
    filled(source)
    checkpoints, writes = counted(source)
    before = source.looks()
    report = clean(migrate(source.url, target), threads=5, checkpoints=checkpoints, writes=writes, unchanged=0)
    assert source.looks() == before
    assert report.verified
    assert report.source_bytes > 10_000
    assert report.stored_bytes > 0
    assert_same(source, target)


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


def test_a_moved_thread_goes_on_like_the_one_left_behind(source: Source, target: str) -> None:
    filled(source, 3)
    clean(migrate(source.url, target))
    with source.saver() as theirs, HoldfastSaver(target, allow=[Order]) as ours:
        results, versions = [], []
        for saver in (ours, theirs):
            answered = asking(saver).invoke(Command(resume="yes"), of("waiting"))
            talked = chat(saver).invoke(said("and now?"), of("chat"))
            delta = chat(saver, Delta).invoke(said("and now?"), of("delta"))
            results.append((answered, texts(talked["messages"]), texts(delta["messages"])))
            newest = saver.get_tuple(of("chat"))
            versions.append({k: v.partition(".")[0] for k, v in newest.checkpoint["channel_versions"].items()})
        assert results[0] == results[1]
        assert results[0][0]["answer"] == "YES"
        assert versions[0] == versions[1]
        history = [
            [(s.metadata["step"], s.next) for s in chat(saver).get_state_history(of("chat"))]
            for saver in (ours, theirs)
        ]
        assert history[0] == history[1]


def test_types_nobody_allowed_are_moved_and_nothing_is_imported(source: Source, file_target: str) -> None:
    filled(source, 1)
    script = (
        "import sys; from holdfast.adapters.langgraph import migrate\n"
        f"report = migrate({source.url!r}, {file_target!r})\n"
        "assert not report.problems, report\n"
        "assert not [name for name in sys.modules if name.startswith('tests')]"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    with HoldfastSaver(file_target) as strict, pytest.raises(TypeRefused):
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


def test_a_thread_that_was_continued_in_the_store_is_left_alone(source: Source, target: str) -> None:
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


def test_a_thread_of_another_source_is_left_alone(sqlite_source: Source, folder: Path, file_target: str) -> None:
    other = Source("sqlite", folder, f"source-{next(_count)}")
    for each in (sqlite_source, other):
        with each.saver() as saver:
            chat(saver).invoke(said("one"), of("chat"))
    clean(migrate(sqlite_source.url, file_target), threads=1)
    assert "from elsewhere" in migrate(other.url, file_target).skipped[0]
    assert_same(sqlite_source, file_target, "chat")
    with holdfast.open(file_target) as store:
        store.save("new", {"a": 1}, workflow="mine")
        with other.saver() as saver:
            chat(saver).invoke(said("one"), of("new"))
        assert "a run of this id from elsewhere" in "".join(migrate(other.url, store).skipped)


def test_a_held_thread_is_left_alone(sqlite_source: Source, file_target: str) -> None:
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
    url = places.new_url()
    migrate(source.url, url, dry_run=True)
    schema = url.partition("schema=")[2].partition("&")[0]
    with psycopg.connect(url.partition("?schema")[0].partition("&schema")[0]) as link:
        assert link.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone() is None
    clean(migrate(source.url, f"sqlite:{path}"), threads=5)
    clean(migrate(source.url, f"sqlite:{path}", dry_run=True), threads=0, unchanged=5)


def test_a_damaged_checkpoint_is_reported_and_the_others_are_moved(source: Source, file_target: str) -> None:
    filled(source, 4)
    with source.saver() as saver:
        damaged = id_of([each.config for each in saver.list(of("chat"))][5])
    if source.kind == "sqlite":
        source.execute("UPDATE checkpoints SET checkpoint = substr(checkpoint, 1, 90) WHERE checkpoint_id = ?", damaged)
    else:
        source.execute("UPDATE checkpoints SET checkpoint = '{\"v\": 4}' WHERE checkpoint_id = ?", damaged)
    for _ in range(2):  # it stays a problem as long as it is one
        report = migrate(source.url, file_target)
        assert len(report.problems) == 1
        assert f"thread 'chat': checkpoint '{damaged}' was not moved" in report.problems[0]
    with HoldfastSaver(file_target) as ours:
        ids = [id_of(each.config) for each in ours.list(of("chat"))]
        assert len(ids) == 11
        assert damaged not in ids
        assert len(chat(ours).get_state(of("chat")).values["messages"]) == 8


@pytest.mark.parametrize("statement", [
    "UPDATE checkpoints SET metadata = X'7b' WHERE thread_id = 'chat'",
    "UPDATE checkpoints SET checkpoint = NULL, type = NULL WHERE thread_id = 'chat'",
    "UPDATE checkpoints SET checkpoint_id = 'x' || checkpoint_id WHERE thread_id = 'chat'",
    "UPDATE checkpoints SET type = 'pickle' WHERE thread_id = 'chat'",
    "UPDATE checkpoints SET thread_id = 'a' || char(10) WHERE thread_id = 'chat'",
])  # fmt: skip
def test_rows_that_make_no_sense_are_reported(sqlite_source: Source, file_target: str, statement: str) -> None:
    with sqlite_source.saver() as saver:
        chat(saver).invoke(said("one"), of("chat"))
        chat(saver).invoke(said("one"), of("fine"))
    sqlite_source.execute(statement)
    report = migrate(sqlite_source.url, file_target)
    assert report.problems
    assert report.threads == 1
    assert_same(sqlite_source, file_target, "fine")
    with HoldfastSaver(file_target) as ours:
        assert {each.config["configurable"]["thread_id"] for each in ours.list(None)} == {"fine"}


def test_a_missing_parent_is_told_apart_from_a_missing_ancestor_of_differences(
    source: Source, file_target: str
) -> None:
    filled(source, 3)
    gone: list[str] = []
    with source.saver() as saver:
        for thread in ("chat", "delta"):
            gone += [id_of(each.config) for each in saver.list(of(thread))][1:]
    for checkpoint_id in gone:
        source.execute("DELETE FROM checkpoints WHERE checkpoint_id = ?", checkpoint_id)
    report = migrate(source.url, file_target)
    assert len(report.problems) == 1
    assert re.search(r"thread 'delta': .*incomplete.*'messages'", report.problems[0])
    with HoldfastSaver(file_target) as ours:
        assert len(chat(ours).invoke(said("more"), of("chat"))["messages"]) == 8
        history = ours.get_delta_channel_history(config=of("chat"), channels=["nothing"])
        assert history == {"nothing": {"writes": []}}
        with pytest.raises(DamagedData, match="missing"):
            ours.get_delta_channel_history(config=of("delta"), channels=["messages"])


def test_pickled_values_are_kept_and_never_loaded(source: Source, file_target: str) -> None:
    with source.saver() as saver:
        saved = saver.put(config("odd"), checkpoint({"a": [1]}, "1"), described(), {"a": "1"})
        saver.put_writes(saved, [("b", 1), ("c", 2)], "task")
    table, column = ("writes", "value") if source.kind == "sqlite" else ("checkpoint_writes", "blob")
    bomb = b"cos\nsystem\n(S'exit 7'\ntR."
    source.execute(f"UPDATE {table} SET type = 'pickle', {column} = ? WHERE channel = 'b'", bomb)
    report = migrate(source.url, file_target)
    assert len(report.problems) == 1
    assert "channel 'b' has pickled values" in report.problems[0]
    assert report.writes == 2
    with HoldfastSaver(file_target) as ours, pytest.raises(ValueUnreadable, match="pickle"):
        ours.get_tuple(of("odd"))


def test_metadata_of_old_versions_may_be_long(source: Source, file_target: str) -> None:
    with source.saver() as saver:
        saver.put(config("old"), checkpoint({"a": 1}, "1"), described(writes={}, long={"x": ["y" * 100] * 400}), {})
    clean(migrate(source.url, file_target), checkpoints=1)
    assert_same(source, file_target, "old")


def test_long_namespaces_and_many_channels(source: Source, file_target: str) -> None:
    with source.saver() as saver:
        values: dict[str, Any] = {f"channel-{n}": [n, "x" * n] for n in range(70)}
        for namespace in ("", "n" * 600, "n" * 601):
            parent = config("odd", namespace)
            for step in range(3):
                versions = dict.fromkeys(values, f"{step + 1:032}.0")
                new = checkpoint({**values, "step": step}, f"{step + 1:032}.0")
                parent = saver.put(parent, new, described(step), {**versions, "step": "1"})
    clean(migrate(source.url, file_target), checkpoints=9)
    assert_same(source, file_target, "odd")


def test_checkpoints_in_json_of_old_versions(sqlite_source: Source, file_target: str) -> None:
    with sqlite_source.saver() as saver:
        chat(saver).invoke(said("first"), of("old"))
        rows = []
        for found in saver.list(of("old")):
            old = {**found.checkpoint, "v": 1, "pending_sends": []}
            rows.append((json.dumps(old, default=lambda message: message.to_json()), id_of(found.config)))
    for row in rows:
        sqlite_source.execute("UPDATE checkpoints SET type = 'json', checkpoint = ? WHERE checkpoint_id = ?", *row)
    clean(migrate(sqlite_source.url, file_target), checkpoints=3)
    assert_same(sqlite_source, file_target, "old")


def test_a_database_from_before_task_paths(sqlite_source: Source, file_target: str) -> None:
    filled(sqlite_source, 2)
    sqlite_source.execute("ALTER TABLE writes DROP COLUMN task_path")
    before = sqlite_source.looks()
    clean(migrate(sqlite_source.url, file_target), threads=5)
    assert sqlite_source.looks() == before
    assert_same(sqlite_source, file_target)  # whose saver adds the column, empty


def test_sends_of_old_postgres_checkpoints_are_found_with_the_parent(folder: Path, file_target: str) -> None:
    source = Source("postgres", folder, "")
    filled(source, 1)
    source.execute("UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{v}', '3')")
    clean(migrate(source.url, file_target), threads=5)
    assert_same(source, file_target)
    with HoldfastSaver(file_target, allow=[Order]) as ours:
        assert any("__pregel_tasks" in each.checkpoint["channel_values"] for each in ours.list(of("mixed")))


def test_postgres_tables_on_the_search_path(folder: Path, file_target: str) -> None:
    source = Source("postgres", folder, "")
    filled(source, 1)
    url = f"{source.plain}{'&' if '?' in source.plain else '?'}options=-csearch_path%3D{source.schema}"
    clean(migrate(url, file_target), threads=5)
    assert_same(source, file_target)


def test_what_is_no_database_of_langgraph_is_refused(folder: Path, file_target: str) -> None:
    empty, foreign, text = (folder / f"{name}-{next(_count)}" for name in ("empty", "foreign", "text"))
    empty.touch()
    text.write_text("no database at all, but long enough to be taken for one" * 40)
    with holdfast.open(f"sqlite:{foreign}") as store:
        store.save("a", {})
    for path, what in (
        (empty, "'checkpoints', 'writes' were looked for"),
        (foreign, "were looked for"),
        (text, "no SQLite"),
    ):
        with pytest.raises(InvalidInput, match=what):
            migrate(str(path), file_target)
    with pytest.raises(InvalidInput, match="there is no SQLite database"):
        migrate(f"sqlite:{folder / 'nowhere'}", file_target)
    with pytest.raises(InvalidInput, match="'checkpoint_blobs', 'checkpoint_writes' were looked for"):
        migrate(places.new_url(), file_target)
    with pytest.raises(InvalidInput, match="same file"):
        migrate(str(foreign), f"sqlite:{foreign}")
    assert not Path(file_target.removeprefix("sqlite:")).exists()


def test_a_database_without_threads(source: Source, file_target: str) -> None:
    with source.saver() as saver:
        saver.get_tuple(of("-"))
    report = clean(migrate(source.url, file_target), threads=0, checkpoints=0, unchanged=0)
    assert str(report).startswith("0 threads, 0 checkpoints, 0 writes moved")


def test_a_store_that_lost_something_is_noticed(sqlite_source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.adapters.langgraph.migrating import parts, stored

    filled(sqlite_source, 1)
    real_kept, real_map = stored.kept, parts._map

    def spoiled(value: Any) -> Any:
        return real_kept((value[0], value[1][:-1] + b"!")) if value[1].endswith(b"e") else real_kept(value)

    with monkeypatch.context() as patch:
        patch.setattr(stored, "kept", spoiled)
        assert any("the checkpoint's bytes" in text for text in migrate(sqlite_source.url, "memory:").problems)
    with monkeypatch.context() as patch:
        patch.setattr(stored, "attachments", lambda writes: {})
        assert any("the pending writes" in text for text in migrate(sqlite_source.url, "memory:").problems)

    def forgetful(body: bytes) -> Any:
        return {key: raw for key, raw in real_map(body).items() if key != "raw"}

    with monkeypatch.context() as patch:  # a value lost on the very road on which the checkpoint is read
        patch.setattr(parts, "_map", forgetful)
        assert any("the checkpoint's bytes" in text for text in migrate(sqlite_source.url, "memory:").problems)


def test_progress_is_told_and_shown(sqlite_source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    filled(sqlite_source, 1)
    checkpoints, _ = counted(sqlite_source)
    told: list[tuple[int, int]] = []
    migrate(sqlite_source.url, "memory:", progress=lambda done, total: told.append((done, total)))
    assert told[0] == (0, checkpoints)
    assert told[-1] == (checkpoints, checkpoints)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    migrate(sqlite_source.url, "memory:", progress=True)
    assert f"100% {checkpoints}/{checkpoints} checkpoints" in capsys.readouterr().err


def test_the_command(sqlite_source: Source, file_target: str, folder: Path) -> None:
    filled(sqlite_source, 1)

    def call(*arguments: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "holdfast.adapters.langgraph", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    code, out, _ = call("migrate", str(sqlite_source.path), file_target, "--dry-run", "--thread", "chat")
    assert (code, "1 threads" in out, "would be moved" in out) == (0, True, True)
    code, out, err = call("migrate", sqlite_source.url, file_target)
    assert (code, "moved and verified" in out, "100%" in err) == (0, True, True)
    code, out, _ = call("migrate", sqlite_source.url, file_target, "--thread", "nobody", "--no-verify")
    assert (code, "problem: thread 'nobody'" in out) == (1, True)
    assert call("migrate", sqlite_source.url)[0] == 2
    assert call("migrate", str(folder / "nowhere"), file_target)[0] == 2


def test_mistakes_are_refused(sqlite_source: Source, file_target: str) -> None:
    filled(sqlite_source, 1)
    with pytest.raises(InvalidInput, match="list of ids"):
        migrate(sqlite_source.url, file_target, thread_ids="chat")
    with pytest.raises(InvalidInput, match="allow="):
        migrate(sqlite_source.url, file_target, allow=[Order], serde=SqliteSaver.serde)

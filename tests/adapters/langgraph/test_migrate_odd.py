"""Migration of old, unusual and damaged databases, and of files that are not LangGraph databases."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver, ValueUnreadable, migrate
from holdfast.errors import DamagedData, InvalidInput
from tests.adapters.langgraph.material import chat, checkpoint, config, described, id_of, said
from tests.adapters.langgraph.sources import Order, Source, assert_same, clean, filled, of
from tests.store.postgres import shared_servers

_count = itertools.count()


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


def test_a_checkpoint_that_comes_late_does_not_become_the_newest(sqlite_source: Source, file_target: str) -> None:
    with sqlite_source.saver() as saver:
        for turn in range(3):
            chat(saver).invoke(said(f"{turn}"), of("chat"))
        late = id_of([each.config for each in saver.list(of("chat"))][4])
    sqlite_source.execute("UPDATE checkpoints SET type = 'lost' WHERE checkpoint_id = ?", late)
    assert len(migrate(sqlite_source.url, file_target).problems) == 1
    sqlite_source.execute("UPDATE checkpoints SET type = 'msgpack' WHERE checkpoint_id = ?", late)
    report = migrate(sqlite_source.url, file_target)
    assert len(report.problems) == 1
    assert "1 checkpoints are older than the newest" in report.problems[0]
    with sqlite_source.saver() as theirs, HoldfastSaver(file_target) as ours:
        expected = [id_of(each.config) for each in theirs.list(of("chat"))]
        expected.remove(late)
        assert [id_of(each.config) for each in ours.list(of("chat"))] == expected


@pytest.mark.parametrize("statement", [
    "UPDATE checkpoints SET metadata = X'7b' WHERE thread_id = 'chat'",
    "UPDATE checkpoints SET checkpoint = NULL, type = NULL WHERE thread_id = 'chat'",
    "UPDATE checkpoints SET checkpoint_id = 'x' || checkpoint_id WHERE thread_id = 'chat'",
    "UPDATE checkpoints SET type = 'pickle' WHERE thread_id = 'chat'",
    "UPDATE checkpoints SET thread_id = 'a' || char(10) WHERE thread_id = 'chat'",
])  # fmt: skip
def test_invalid_rows_are_reported(sqlite_source: Source, file_target: str, statement: str) -> None:
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


def test_a_missing_parent_is_distinguished_from_a_missing_delta_ancestor(source: Source, file_target: str) -> None:
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
    before = sqlite_source.file_hashes()
    clean(migrate(sqlite_source.url, file_target), threads=5)
    assert sqlite_source.file_hashes() == before
    assert_same(sqlite_source, file_target)  # whose saver adds the column, empty


def test_sends_of_old_postgres_checkpoints_are_found_with_the_parent(folder: Path, file_target: str) -> None:
    source = Source("postgres", folder, "")
    filled(source, 1)
    source.execute(
        "UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint #- '{channel_versions,__pregel_tasks}', '{v}', '3')"
    )
    source.execute("DELETE FROM checkpoint_blobs WHERE channel = '__pregel_tasks'")
    clean(migrate(source.url, file_target), threads=5)
    assert_same(source, file_target)
    with HoldfastSaver(file_target, allow=[Order]) as ours:
        assert any("__pregel_tasks" in each.checkpoint["channel_values"] for each in ours.list(of("mixed")))


def test_channels_that_old_postgres_savers_marked_as_empty(folder: Path, file_target: str) -> None:
    source = Source("postgres", folder, "")
    filled(source, 1)
    source.execute("UPDATE checkpoint_blobs SET type = 'empty', blob = NULL WHERE channel = 'order'")
    clean(migrate(source.url, file_target), threads=5)
    assert_same(source, file_target)


def test_postgres_tables_on_the_search_path(folder: Path, file_target: str) -> None:
    source = Source("postgres", folder, "")
    filled(source, 1)
    url = f"{source.plain}{'&' if '?' in source.plain else '?'}options=-csearch_path%3D{source.schema}"
    clean(migrate(url, file_target), threads=5)
    assert_same(source, file_target)


def test_a_database_that_is_not_langgraphs_is_refused(folder: Path, file_target: str) -> None:
    empty, foreign, text = (folder / f"{name}-{next(_count)}" for name in ("empty", "foreign", "text"))
    empty.touch()
    text.write_text("no database at all, but long enough to be taken for one" * 40)
    with holdfast.open(f"sqlite:{foreign}") as store:
        store.save("a", {})
    for path, what in (
        (empty, "which has the tables 'checkpoints', 'writes': it has no table 'checkpoints'"),
        (foreign, "which has the tables 'checkpoints', 'writes': its table 'checkpoints' has no"),
        (text, "is not a SQLite database"),
    ):
        with pytest.raises(InvalidInput, match=what):
            migrate(str(path), file_target)
    with pytest.raises(InvalidInput, match="no SQLite database at"):
        migrate(f"sqlite:{folder / 'nowhere'}", file_target)
    with pytest.raises(InvalidInput, match="'checkpoint_blobs', 'checkpoint_writes': it has no table"):
        migrate(shared_servers.new_url(), file_target)
    with pytest.raises(InvalidInput, match="same file"):
        migrate(str(foreign), f"sqlite:{foreign}")
    assert not Path(file_target.removeprefix("sqlite:")).exists()


def test_a_database_without_threads(source: Source, file_target: str) -> None:
    with source.saver() as saver:
        saver.get_tuple(of("-"))
    report = clean(migrate(source.url, file_target), threads=0, checkpoints=0, unchanged=0)
    assert str(report).startswith("0 threads, 0 checkpoints, 0 writes moved")


def test_a_store_that_lost_data_is_detected(sqlite_source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.adapters.langgraph.migration import convert

    filled(sqlite_source, 1)
    to_stored, real_map = convert.to_stored, convert._map

    def spoiled(value: Any) -> Any:
        return to_stored((value[0], value[1][:-1] + b"!")) if value[1].endswith(b"e") else to_stored(value)

    with monkeypatch.context() as patch:
        patch.setattr(convert, "to_stored", spoiled)
        assert any("the checkpoint's bytes" in text for text in migrate(sqlite_source.url, "memory:").problems)
    with monkeypatch.context() as patch:
        patch.setattr(convert, "attachments", lambda writes: {})
        assert any("the pending writes" in text for text in migrate(sqlite_source.url, "memory:").problems)

    def forgetful(body: bytes) -> Any:
        return {key: raw for key, raw in real_map(body).items() if key != "raw"}

    with monkeypatch.context() as patch:  # a value that is lost while the checkpoint is read
        patch.setattr(convert, "_map", forgetful)
        assert any("the checkpoint's bytes" in text for text in migrate(sqlite_source.url, "memory:").problems)

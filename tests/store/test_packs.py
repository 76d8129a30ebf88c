"""Packs beside writers, sweeps and forks, damaged packs, and packs that cannot be made."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import Keep, Store
from holdfast.errors import DamagedData, RunNotFound, StorageBusy
from holdfast.limits import PACK_BYTES_MAX
from holdfast.operations.packs import PACK_EVERY, StoredChunks, pack_loose, rewrite_sparse
from holdfast.state.compression import Compressor, beginning
from holdfast.store.packs import NewPack, PackedChunks
from tests.store.postgres.shared_servers import new_url


def conversation(turns: int, about: str = "") -> dict[str, Any]:
    return {"messages": [{"content": f"{about} {i} " + f"word{i * 7919 % 997} and more " * 25} for i in range(turns)]}


def family_of(store: Store, run_id: str) -> int:
    row = store.port.run(run_id)
    assert row is not None
    return row.family


def pack_all(store: Store, run_id: str) -> int:
    return pack_loose(store.access.core, family_of(store, run_id), 100, chunks_min=1)


def pack_all_if_allowed(store: Store, run_id: str) -> None:
    with contextlib.suppress(DamagedData):
        pack_all(store, run_id)


# --- races -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_packs_beside_writers_sweeps_and_forks_lose_nothing(tmp_path: Path, kind: str) -> None:
    url = f"sqlite:{tmp_path / 'runs.db'}" if kind == "sqlite" else new_url()
    done, errors, packs = threading.Event(), [], []

    def save(name: str) -> None:
        with holdfast.open(url) as store:
            for turns in range(1, 31):
                state = conversation(turns, name if turns % 3 else "")
                saved = store.save(name, state)
                loaded = store.load(name, checkpoint_id=saved.checkpoint_id)
                assert loaded is None or loaded.state == state  # a prune may have removed it

    def beside(work: Any) -> None:
        with holdfast.open(url) as store:
            number = 0
            while not done.is_set():
                number += 1
                work(store, number)

    def pack(store: Store, _number: int) -> None:
        packs.append(pack_all(store, "one"))

    def prune(store: Store, number: int) -> None:
        report = store.prune(("one", "two")[number % 2], Keep(last=1 + number % 3))
        assert report.damage is None

    def fork(store: Store, number: int) -> None:
        name = f"fork-{number}"
        try:
            store.fork("one", name)
            loaded, source = store.load(name), store.history("one")
            assert loaded is not None
            assert source
            store.delete(name)
        except (holdfast.Conflict, RunNotFound, holdfast.NotFound):  # what it forks was pruned meanwhile
            return

    def run(work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            errors.append(error)
            done.set()

    with holdfast.open(url) as store:
        store.save("one", conversation(1))
        store.fork("one", "two")
        savers = [threading.Thread(target=run, args=(save, name)) for name in ("one", "two")]
        others = [threading.Thread(target=run, args=(beside, work)) for work in (pack, prune, fork)]
        for thread in savers + others:
            thread.start()
        for thread in savers:
            thread.join()
        done.set()
        for thread in others:
            thread.join()
        assert errors == []
        assert sum(packs) > 0
        for name in ("one", "two"):
            assert store.load(name).state == conversation(30)  # type: ignore[union-attr]
            for info in store.history(name):
                assert store.load(name, checkpoint_id=info.checkpoint_id) is not None
            store.prune(name, Keep(last=1))
        report = store.verify()
        assert (report.problems, report.unused_chunks) == ([], 0)


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def packed(tmp_path: Path) -> str:
    """A file with a run in two packs, and another run."""
    path = str(tmp_path / "runs.db")
    with holdfast.open(f"sqlite:{path}") as store:
        for turns in (20, 40):
            for turn in range(turns - 19, turns + 1):
                store.save("run", conversation(turn))
            assert pack_all(store, "run") == 1
        store.save("other", conversation(30, "other"))
        pack_all(store, "other")
    return path


def change(path: str, statement: str) -> None:
    connection = apsw.Connection(path)
    try:
        connection.execute(statement)
    finally:
        connection.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE packs SET body = substr(body, 1, length(body) / 2) WHERE pack = 2",
        "UPDATE packs SET body = CAST(x'01' || randomblob(500) AS BLOB) WHERE pack = 2",
        "UPDATE packs SET body = x'' WHERE pack = 2",
        "UPDATE packed SET start = start + 1 WHERE pack = 2",
        "UPDATE packed SET size = 2000000 WHERE pack = 2",
        "DELETE FROM packs WHERE pack = 2",
    ],
)
def test_a_damaged_pack_is_reported_with_its_chunks_and_hides_nothing_else(packed: str, damage: str) -> None:
    with holdfast.open(f"sqlite:{packed}") as store:
        family = family_of(store, "run")
        names = [name for name, place in StoredChunks(store.port, family).places.items() if place.pack == 2]
    change(packed, damage)
    with holdfast.open(f"sqlite:{packed}") as store:
        (problem,) = [each for each in store.verify().problems if each.place.startswith("pack ")]
        assert problem.place == f"pack 2 of family {family}"
        for name in names:
            assert name.hex() in problem.reason
        with pytest.raises(DamagedData):
            store.load("run")
        for info in list(store.history("run"))[:20]:
            loaded = store.load("run", checkpoint_id=info.checkpoint_id)
            assert loaded is not None
            assert loaded.state == conversation(info.number)
        assert store.load("other").state == conversation(30, "other")  # type: ignore[union-attr]
        assert store.prune("other", Keep(last=1)).damage is None
        assert {name for name in names if name in StoredChunks(store.port, family).names} == set(names)


def test_a_damaged_chunk_is_not_packed(packed: str) -> None:
    change(packed, "DELETE FROM packs")
    change(packed, "DELETE FROM packed")
    with holdfast.open(f"sqlite:{packed}") as store:
        for turn in range(1, 20):
            store.save("run", conversation(turn, "again"))
        change(packed, "UPDATE chunks SET body = x'00ff' WHERE id = (SELECT max(id) FROM chunks)")
        assert pack_all(store, "run") == 0
        assert StoredChunks(store.port, family_of(store, "run")).places == {}


@pytest.mark.parametrize("at", [4, 20])
def test_nothing_is_removed_beside_a_damaged_pack_of_a_directory(tmp_path: Path, at: int) -> None:
    with holdfast.open(f"dir:{tmp_path / 'runs'}") as store:
        for turn in range(1, 31):
            store.save("run", conversation(turn))
            if turn in (15, 30):
                assert pack_all(store, "run") == 1
    path = max(tmp_path.glob("runs/families/*/packs/*"), key=lambda each: each.stat().st_size)
    content = path.read_bytes()
    path.write_bytes(content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :])  # the array, or a chunk's name
    with holdfast.open(f"dir:{tmp_path / 'runs'}") as store:
        before = StoredChunks(store.port, family_of(store, "run")).names
        report = store.prune("run", Keep(last=20))
        assert report.damage is not None
        assert path.name in report.damage
        store.save("run", conversation(31))
        pack_all_if_allowed(store, "run")
        assert before <= StoredChunks(store.port, family_of(store, "run")).names
        assert any(path.name in problem.reason for problem in store.verify().problems)
    path.write_bytes(content)
    with holdfast.open(f"dir:{tmp_path / 'runs'}") as store:
        assert store.prune("run", Keep(last=20)).damage is None
        assert store.load("run").state == conversation(31)  # type: ignore[union-attr]
        checked = store.verify()
        assert (checked.problems, checked.unused_chunks) == ([], 0)


@pytest.mark.parametrize("size", [-1, PACK_BYTES_MAX + 1, 2**62])
def test_no_more_than_a_pack_is_decompressed(size: int) -> None:
    bomb = Compressor().body(bytes(8 * PACK_BYTES_MAX))
    with pytest.raises(DamagedData, match="up to byte"):
        beginning(bomb, size, "a pack")


# --- saves -----------------------------------------------------------------------------------------------------------


def test_a_pack_that_cannot_be_made_does_not_affect_the_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.open(f"sqlite:{tmp_path / 'runs.db'}") as store:
        tried: list[NewPack] = []

        def fail(_family: int, pack: NewPack) -> bool:
            tried.append(pack)
            raise StorageBusy("another process writes")

        monkeypatch.setattr(store.port, "pack", fail)
        for turn in range(PACK_EVERY + 1):
            saved = store.save("run", conversation(turn + 1))
            assert saved.number == turn + 1
        assert len(tried) == 1
        assert store.load("run").state == conversation(PACK_EVERY + 1)  # type: ignore[union-attr]


def test_a_save_that_is_durable_does_not_fail_because_of_its_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    async def work(store: Store) -> list[int]:
        def refuse(_function: object) -> asyncio.Future[object]:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")

        monkeypatch.setattr(store.access.core.awaiting.io, "read", refuse)
        return [(await store.aio.save("async", conversation(turn))).number for turn in range(1, PACK_EVERY + 1)]

    def fail(_family: int, _pack: NewPack) -> bool:
        raise MemoryError

    with holdfast.open(f"sqlite:{tmp_path / 'runs.db'}") as store:
        monkeypatch.setattr(store.port, "pack", fail)
        numbers = [store.save("run", conversation(turn)).number for turn in range(1, PACK_EVERY + 1)]
        assert numbers == asyncio.run(work(store)) == list(range(1, PACK_EVERY + 1))


def test_packing_does_not_read_the_packs_that_exist(packed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.open(f"sqlite:{packed}") as store:
        store.save("run", conversation(9, "new"))
        monkeypatch.setattr(store.port, "packs", lambda family: pytest.fail(f"family {family} has many"))
        assert pack_all(store, "run") == 1


def test_an_empty_pack_is_not_stored(packed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.open(f"sqlite:{packed}") as store:
        family, core = family_of(store, "run"), store.access.core
        stored = StoredChunks(store.port, family)
        sparse = StoredChunks(store.port, family)
        sparse.places = dict(list(sparse.places.items())[:1])
        monkeypatch.setattr("holdfast.operations.packs.StoredChunks", lambda *_: sparse)
        monkeypatch.setattr(store.port, "packed", lambda *_: PackedChunks({}, {}))  # a sweep was first
        assert rewrite_sparse(core, family) == 0
        assert store.port.packs(family).packs == stored.packs


def test_an_async_save_packs_too(tmp_path: Path) -> None:
    import asyncio

    async def work(store: Store) -> None:
        for turn in range(PACK_EVERY):
            await store.aio.save("run", conversation(turn + 1))

    with holdfast.open(f"sqlite:{tmp_path / 'runs.db'}") as store:
        asyncio.run(work(store))
        stored = StoredChunks(store.port, family_of(store, "run"))
        assert len(stored.places) > len(stored.loose)


def test_a_reader_asks_for_a_limited_number_of_packs(packed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.operations.packs.PACK_CHUNKS_MAX", 3)
    with holdfast.open(f"sqlite:{packed}") as store:
        names, packed_of, asked = StoredChunks(store.port, family_of(store, "run")).places, store.port.packed, []

        def count(family: int, hashes: Sequence[bytes], held: Collection[int] = ()) -> PackedChunks:
            asked.append(len(hashes))
            return packed_of(family, hashes, held)

        monkeypatch.setattr(store.port, "packed", count)
        assert store.access.core.fetch(family_of(store, "run"))(list(names)).keys() == names.keys()
        assert sum(asked) == len(names) > 3 == max(asked)


def test_a_reader_keeps_only_some_packs(packed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.operations.packs.PACKS_READ_BYTES_MAX", 1)
    with holdfast.open(f"sqlite:{packed}") as store:
        for info in store.history("run"):
            loaded = store.load("run", checkpoint_id=info.checkpoint_id)
            assert loaded is not None
            assert loaded.state == conversation(info.number)

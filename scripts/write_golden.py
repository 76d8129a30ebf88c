"""Write the golden data of a version: every stored format, as this code writes it, and what it reads from it.

    .venv/bin/python scripts/write_golden.py 0.2.0

Makes tests/golden/<version>. A directory that exists is never touched: later versions must read it as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import socket
import sqlite3
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.golden import foreign, threads  # noqa: E402
from tests.golden.contents import read_run, read_store  # noqa: E402
from tests.golden.coverage import NAMES, gaps  # noqa: E402
from tests.golden.stores import ARCHIVED, KINDS, SCHEMA, opened, url_of, write_store  # noqa: E402
from tests.store.postgres.server import newest  # noqa: E402
from tests.store.postgres.shared_servers import shared  # noqa: E402

import holdfast  # noqa: E402
from holdfast import App  # noqa: E402
from holdfast.adapters.langgraph import HoldfastSaver  # noqa: E402
from holdfast.store.postgres.migrations import sql_text  # noqa: E402
from holdfast.testing import CountedIds, ManualClock  # noqa: E402


def main() -> None:
    """Write everything into a new directory, and put it in its place when all of it is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    target = ROOT / "tests" / "golden" / parser.parse_args().version
    if target.exists():
        sys.exit(f"{target} exists; golden data is written once")
    with tempfile.TemporaryDirectory() as folder, _without_traces_of_the_machine():
        made = Path(folder) / "made"
        expected = [_write_store(kind, made / kind, Path(folder) / kind) for kind in KINDS]
        assert all(found == expected[0] for found in expected), "the stores do not hold the same; try again"
        _write_expected(made, expected[0])
        shutil.copy(ROOT / "tests" / "golden" / "names.json", made)
        _write_archives(made)
        _write_foreign(made / "formats")
        _write_threads(made / "langgraph", Path(folder))
        for empty in [path for path in made.rglob("*") if path.is_dir() and not any(path.iterdir())]:
            empty.rmdir()  # git keeps no empty directories
        shutil.copytree(made, target)


class _Ticks(threading.local):
    """A clock that every call of a thread moves on by 1234 microseconds."""

    now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 1_234_000
        return self.now_ns


@contextlib.contextmanager
def _without_traces_of_the_machine() -> Iterator[None]:
    """Stored errors, owners and durations do not depend on this machine. Of a traceback only the end is kept."""
    shown = traceback.format_exception

    def shortened(*args: Any, **options: Any) -> list[str]:
        return [line.replace(f"{ROOT}/", "") for line in shown(*args, **options)[-2:]]

    with (
        mock.patch.object(traceback, "format_exception", shortened),
        mock.patch.object(socket, "gethostname", return_value="golden"),
        mock.patch.object(time, "perf_counter_ns", _Ticks()),
    ):
        yield


# --- stores ----------------------------------------------------------------------------------------------------------


def _write_store(kind: str, made: Path, folder: Path) -> dict[str, Any]:
    """Write one store, and take it while a run is under way: it is what a killed process leaves behind.

    Returns what is read from it, which is the same for all stores.
    """
    made.mkdir(parents=True)
    folder.mkdir()
    now_us = write_store(url_of(kind, folder), folder, lambda: _take(kind, folder, made))
    if kind == "sqlite":
        lacking = gaps(made / "runs.db", NAMES)
        assert not lacking, lacking
    with opened(kind, made, folder / "copy", now_us) as copy:
        return {"now_us": now_us, "runs": read_store(copy.app)}


def _take(kind: str, folder: Path, made: Path) -> None:
    shutil.copy(folder / "shop.db", made)
    if kind == "sqlite":
        _take_sqlite(folder, made)
    elif kind == "dir":
        shutil.copytree(folder / "runs", made / "runs")
    else:
        (made / "runs.sql").write_text(_dump(), encoding="utf-8")


def _take_sqlite(folder: Path, made: Path) -> None:
    with contextlib.closing(sqlite3.connect(folder / "runs.db")) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    shutil.copy(folder / "runs.db", made)
    shutil.copytree(folder / "runs.db-owners", made / "runs.db-owners")


def _dump() -> str:
    """All rows of a schema as SQL that any client can run."""
    lines = [sql_text(SCHEMA)]
    with shared(newest()).connect() as connection:
        tables = [
            row[0]
            for row in connection.execute(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = %s ORDER BY table_name", [SCHEMA]
            )
        ]
        for table in tables:
            cursor = connection.execute(f"SELECT * FROM {SCHEMA}.{table} t ORDER BY t".encode())
            columns = ", ".join(column.name for column in cursor.description or ())
            rows = ",\n".join(f"  ({', '.join(map(_literal, row))})" for row in cursor)
            if rows and table != "schema_version":
                lines.append(f"INSERT INTO {SCHEMA}.{table} ({columns}) VALUES\n{rows};\n")
        last = connection.execute(f"SELECT last_value FROM {SCHEMA}.run_numbers".encode()).fetchone()
    assert last is not None
    return "\n".join([*lines, f"SELECT setval('{SCHEMA}.run_numbers', {last[0]});\n"])


def _literal(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value)
    return "'\\x" + value.hex() + "'" if isinstance(value, bytes) else "'" + value.replace("'", "''") + "'"


# --- the other formats -----------------------------------------------------------------------------------------------


def _write_archives(made: Path) -> None:
    folder = made / "archives"
    folder.mkdir()
    expected = {}
    with opened("sqlite", made / "sqlite", made.parent / "exporting", ManualClock().now_us()) as copy:
        for run_id in ARCHIVED:
            data = copy.store.export_run(run_id)
            (folder / f"{run_id}.holdfast").write_bytes(data)
            with App(holdfast.open("memory:", clock=ManualClock())) as other:
                other.store.import_run(data)
                expected[run_id] = read_run(other, run_id)
    _write_expected(folder, {"runs": expected})


def _write_foreign(folder: Path) -> None:
    written = folder.parent.parent / "foreign"
    foreign.write_directories(written)
    shutil.copytree(written, folder)
    copy = shutil.copytree(folder, folder.parent.parent / "foreign-copy")
    _write_expected(folder, foreign.read_directories(copy))


def _write_threads(made: Path, folder: Path) -> None:
    made.mkdir()
    clock = ManualClock()
    with holdfast.open(f"sqlite:{folder / 'threads.db'}", clock=clock, ids=CountedIds()) as store:
        threads.write_threads(store)
    shutil.copy(folder / "threads.db", made)
    with HoldfastSaver(f"sqlite:{folder / 'threads.db'}") as saver:
        _write_expected(made, {"now_us": clock.now_us(), "threads": threads.read_threads(saver)})


def _write_expected(folder: Path, expected: Any) -> None:
    text = json.dumps(expected, separators=(",", ":"), ensure_ascii=False)
    (folder / "expected.json").write_text(text.replace('},"', '},\n"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Names that are on disk, collected from what this code writes."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

import holdfast
from holdfast import graphs
from holdfast.adapters.langgraph.migration.convert import MARK, Mark
from holdfast.operations.archive import Archive
from holdfast.store.directory.change_codec import ROWS
from holdfast.store.postgres.migrations import sql_text
from tests.golden import foreign, threads
from tests.golden.stores import url_of, write_store

Names = dict[str, list[Any]]
_REFUSALS = (holdfast.InvalidInput, holdfast.Conflict, holdfast.NotFound)


def collect_names(folder: Path) -> Names:
    """All names on disk, by where they are."""
    files: Names = {}
    for kind in ("dir", "sqlite"):
        (folder / kind).mkdir()
        note = partial(lambda kind: files.update({f"{kind} files": _files(folder / kind)}), kind)
        write_store(url_of(kind, folder / kind), folder / kind, note)
    foreign.write_directories(folder / "foreign")
    return {
        **files, **_in_directory(folder / "dir" / "runs"), **_in_tables(folder / "sqlite" / "runs.db", "sqlite"),
        **_in_tables(folder / "sqlite" / "shop.db", "shop"), **_in_postgres(), **_in_runs(folder / "sqlite"),
        **_in_threads(folder),
        **_in_graphs(), **_in_foreign(folder / "foreign"),
        "archive": list(Archive.__struct_fields__), "migration mark": [MARK, *Mark.__struct_fields__],
        "refused errors": sorted(
            name for name in holdfast.errors.__all__ if issubclass(getattr(holdfast.errors, name), _REFUSALS)
        ),
    }  # fmt: skip


def _union(found: Iterable[dict[str, Any]]) -> list[str]:
    """The keys of all dicts, in the order of their first appearance."""
    return list(dict.fromkeys(key for each in found for key in each))


def _files(folder: Path) -> list[str]:
    """The paths below a folder, with what depends on ids replaced."""
    paths = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    return sorted({re.sub(r"[0-9a-f]{32}", "HASH", _WORDS.sub("WORDS", path)) for path in paths})


_WORDS = re.compile(r"(?<=/)\d{8}-[^/]*(?=/)|(?<=/)[^/]*-(?=[0-9a-f]{32}\.)")


def _in_directory(folder: Path) -> Names:
    journals = [path.read_text("utf-8") for path in sorted(folder.rglob("*.journal"))]
    lines = [[json.loads(line) for line in text.splitlines()] for text in journals]
    every = [line for journal in lines for line in journal]
    rows: dict[str, list[dict[str, Any]]] = {}
    for line in every:
        for key, found in line.items():
            if isinstance(found, list) and isinstance(found[0], dict):
                rows.setdefault(key, []).extend(found)
    fields = {f"directory {key}": _fields(key, found) for key, found in sorted(rows.items())}
    newest = next(folder.rglob("*.newest.json"))
    note = (folder / "lock").read_text("utf-8")
    return {
        "message kinds": sorted({str(row["kind"]) for row in rows["messages"]}),
        "directory lines": sorted(_union(every)),
        "directory run": [name for name in lines[0][0]["run"] if name != "shows"], **fields,
        "directory mark": [json.loads((folder / "holdfast.json").read_text())],
        "directory journal": [lines[0][0]["format"], lines[0][0]["version"]],
        "directory counter": list(json.loads((folder / "last-run.json").read_text())),
        "directory newest.json": list(json.loads(newest.read_text("utf-8"))),
        "directory lock": list(json.loads(note)),
        "gate": _union(row["shows"] for row in rows["gates"]),
        "form": _union(row["shows"]["form"] for row in rows["gates"]),
        "form field": sorted(_union(field for row in rows["gates"] for field in row["shows"]["form"]["fields"])),
        "effect call": sorted(_union(row.get("shows_call") or {} for row in rows["effects"])),
    }  # fmt: skip


def _fields(key: str, rows: list[dict[str, Any]]) -> list[str]:
    """The fields of the rows in a list of lines. A row has those that are not empty, in the order of all of them."""
    names = list(ROWS[key].__struct_fields__)
    for row in rows:
        found = [name for name in row if not name.startswith("shows")]
        assert found == [name for name in names if name in found], key
    return names


def _in_tables(path: Path, name: str) -> Names:
    with contextlib.closing(sqlite3.connect(path)) as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        found: Names = {
            f"{name} {table}": [row[1] for row in db.execute(f"PRAGMA table_info({table})")] for table in tables
        }
        if name == "sqlite":
            found["sqlite pragmas"] = [db.execute(f"PRAGMA {pragma}").fetchone()[0]
                                       for pragma in ("application_id", "user_version", "journal_mode")]  # fmt: skip
            for table, column in (("runs", "status"), ("effects", "state"), ("gates", "state"), ("entries", "kind"),
                                  ("inbox", "kind")):  # fmt: skip
                rows = db.execute(f"SELECT DISTINCT {column} FROM {table} ORDER BY 1")
                found[f"{table}.{column}"] = [row[0] for row in rows]
    return found


def _in_postgres() -> Names:
    text = sql_text("golden")
    found = re.findall(r'CREATE TABLE "golden"\.(\w+) \((.*?)^\)', text, re.DOTALL | re.MULTILINE)
    return {f"postgres {table}": re.findall(r"^    (?!PRIMARY)(\w+)", body, re.MULTILINE) for table, body in found}


def _in_runs(folder: Path) -> Names:
    """The keys of journal entries, of recorded errors, and of what checkpoints say that they need."""
    entries: dict[str, list[dict[str, Any]]] = {}
    needs: list[dict[str, Any]] = []
    with holdfast.open(url_of("sqlite", folder)) as store:
        for run in store.runs(limit=1000):
            for entry in store.journal(run.run_id):
                entries.setdefault(entry.kind, []).append(entry.data)
            needs += [info.metadata for info in store.history(run.run_id) if "holdfast" in info.metadata]
    errors = [entry["error"] for found in entries.values() for entry in found if entry.get("error")]
    return {
        **{f"entry {kind}": sorted(_union(found)) for kind, found in sorted(entries.items())},
        "error": sorted(_union(errors)),
        "checkpoint needs": sorted(_union(each["holdfast"] for each in needs)),
        "loop": _union(loop for each in needs for loop in each["holdfast"].get("loops", ())),
    }


def _in_threads(folder: Path) -> Names:
    states: list[dict[str, Any]] = []
    keys: set[str] = set()
    with holdfast.open(f"sqlite:{folder / 'threads.db'}") as store:
        threads.write_threads(store)
        for run in store.runs(limit=1000):
            for info in store.history(run.run_id):
                loaded = store.load(run.run_id, checkpoint_id=info.checkpoint_id, lane=info.lane)
                assert loaded is not None
                states.append(loaded.state)
                attached = store.attachments(run.run_id, info.checkpoint_id, lane=info.lane)
                keys |= {key.partition(":")[0] for key in attached}
        workflow = store.runs()[0].workflow
    return {"langgraph state": sorted(_union(states)), "langgraph attachments": sorted(keys), "langgraph": [workflow]}


def _in_graphs() -> Names:
    parts = {name: getattr(graphs, name) for name in dir(graphs)}
    found: Names = {}
    for name, part in sorted(parts.items()):
        is_part = isinstance(part, type) and issubclass(part, msgspec.Struct) and part.__struct_config__.omit_defaults
        if is_part and part is not graphs.Stage:
            config = part.__struct_config__
            kind = f"{config.tag_field} {config.tag}" if config.tag else name
            found[f"graph {kind}"] = [field.encode_name for field in msgspec.structs.fields(part)]
    return found


def _in_foreign(folder: Path) -> Names:
    claim = json.loads((folder / "car/.holdfast/claims/claimed.json").read_text())
    results = next((folder / "brainwires/.holdfast/results").iterdir()).read_text().splitlines()
    workflow = next((folder / "mur/.holdfast/workflows").iterdir()).read_text()
    return {
        "foreign files": _files(folder), "car claim": list(claim), "brainwires result": list(json.loads(results[0])),
        "brainwires result file": list(json.loads(results[0])["file"]), "mur workflow": list(json.loads(workflow)),
    }  # fmt: skip

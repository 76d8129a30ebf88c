"""Runs move between kinds of stores through archives, and come back the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.store.postgres.shared_servers import new_url

KINDS = ["memory", "sqlite", "dir"]


def opened(kind: str, directory: Path) -> holdfast.Store:
    if kind == "postgres":
        return holdfast.open(new_url())
    return holdfast.open({"memory": "memory:"}.get(kind, f"{kind}:{directory / kind}"))


def fill(store: holdfast.Store) -> None:
    for n in range(12):
        state = {"n": n, "messages": [f"message {i} " * 60 for i in range(n * 4)], "pair": (n, {"é": b"\x00\xff"})}
        store.save("run", state, workflow="w", metadata={"n": n, "k": "v"}, next_node=f"node {n}")
        store.append("run", [{"kind": "a", "n": n}, {"kind": "b", "big": 2**80 + n}])
    store.save("run", "side", lane="side", checkpoint_id="c1")
    store.attach("run", "c1", "k", {"value": [1] * 2000}, lane="side")
    store.mark_intent("run", "in doubt", tool="t", target="x")
    store.mark_done("run", "done", result={"ok": True})


def everything(store: holdfast.Store) -> list[Any]:
    """What a reader sees of the run; the store's own numbers of it are left out."""
    infos = list(store.history("run"))
    states = [store.load("run", checkpoint_id=info.checkpoint_id, lane=info.lane) for info in infos]
    listed = store.runs(metadata={"k": "v"})
    return [
        [(s.checkpoint_id, s.lane, s.step, s.parent_id, s.next_node, s.status, s.covers, s.state) for s in states if s],
        [entry.data for entry in store.journal("run")],
        [(effect.key, effect.state, effect.tool, effect.target, effect.result) for effect in store.effects("run")],
        store.attachments("run", "c1", lane="side"),
        [(run.run_id, run.workflow, run.status, run.metadata) for run in listed],
    ]


@pytest.mark.parametrize("other", KINDS)
def test_a_run_goes_from_any_store_to_postgresql_and_back(other: str, tmp_path: Path) -> None:
    with opened(other, tmp_path) as first, opened("postgres", tmp_path) as second:
        fill(first)
        before = everything(first)
        archive = first.export_run("run")
        second.import_run(archive)
        assert everything(second) == before
        back = second.export_run("run")
        first.delete("run")
        first.import_run(back)
        assert everything(first) == before
        assert first.verify().problems == second.verify().problems == []
        second.save("run", {"goes": "on"})
        assert second.load("run").step == 13  # type: ignore[union-attr]


def test_a_run_made_on_postgresql_can_be_copied_and_forked_there(tmp_path: Path) -> None:
    with opened("postgres", tmp_path) as store:
        fill(store)
        store.copy("run", "copy")
        store.fork("run", "fork", step=5)
        assert store.load("fork").state["n"] == 4  # type: ignore[union-attr]
        assert len(list(store.history("copy"))) == 13
        assert store.verify().problems == []
        store.delete("run")
        assert store.load("copy").state["n"] == 11  # type: ignore[union-attr]
        assert store.verify().problems == []

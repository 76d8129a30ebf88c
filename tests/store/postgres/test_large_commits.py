"""Large commits on PostgreSQL: more than a socket takes at once, and more than one message holds."""

from __future__ import annotations

import os

import pytest

import holdfast
from holdfast.store.postgres import write_batch
from tests.store.postgres.shared_servers import new_url


def test_a_pipeline_that_the_socket_does_not_take_at_once_is_sent_whole() -> None:
    noise = os.urandom(8 * 1024 * 1024)
    with holdfast.open(new_url()) as store:
        assert store.mark_done("run", "key", result=noise)
        assert store.effects("run", key="key")[0].result == noise


def test_a_commit_larger_than_one_statement_may_be_is_cut_and_stays_one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_batch, "_STATEMENT_BYTES", 100_000)
    parts = [os.urandom(60_000) for _ in range(7)] + [os.urandom(300_000)] + [b"small"] * 3
    with holdfast.open(new_url()) as store:
        store.append("run", [{"kind": "part", "data": part} for part in parts])
        store.save("run", {"parts": parts})
        other = store.import_run(store.export_run("run"), run_id="copy")
        for run_id in ("run", other.run_id):
            assert [entry.data["data"] for entry in store.journal(run_id)] == parts
            found = store.load(run_id)
            assert found is not None
            assert found.state == {"parts": parts}
        assert store.verify().problems == []

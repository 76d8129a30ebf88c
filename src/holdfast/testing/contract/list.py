"""The contract of `runs`, `stats` and `verify`."""

from __future__ import annotations

import datetime as dt
from typing import Any

from holdfast.errors import InvalidCursor, InvalidInput
from holdfast.testing.contract.base import ContractBase, Values, each, raises

HOSTILE_TEXTS = [
    "x') OR '1'='1", "'; DROP TABLE runs; --", "$.a", "a.b", "a[0]", '"', "\\", "%", "_", "$ne", "", "\x00", "\n", "é",
    "e\u0301", "x" * 500,
]  # fmt: skip


class ListContract(ContractBase):
    """Runs are found by what they are; keys and values are data."""

    def ids(self, **query: Any) -> list[str]:
        return [run.run_id for run in self.store.runs(**query)]

    def test_runs_are_listed_newest_first_with_what_they_are(self) -> None:
        self.store.save("a", 1, workflow="triage", status="running", metadata={"team": "x"})
        self.clock.advance(5)
        self.store.append("b", [{"kind": "n"}])
        saved = self.store.save("a", 2)
        b, a = self.store.runs()
        assert (a.run_id, a.workflow, a.status, a.metadata) == ("a", "triage", "running", {"team": "x"})
        assert (a.step, a.checkpoint_id, a.position, a.owner, a.forked_from) == (2, saved.checkpoint_id, 0, None, None)
        assert a.updated_at - a.created_at == dt.timedelta(seconds=5)
        assert (b.run_id, b.status, b.checkpoint_id, b.position, b.terminal) == ("b", "ready", None, 1, False)

    def test_runs_are_found_by_status_and_workflow(self) -> None:
        for i, (status, workflow) in enumerate([("waiting", "w"), ("failed", "w"), ("waiting", "v"), ("paused", "v")]):
            self.store.save(f"r{i}", 1, status=status, workflow=workflow)
        assert self.ids(status="waiting") == ["r2", "r0"]
        assert self.ids(status=("waiting", "failed")) == ["r2", "r1", "r0"]
        assert self.ids(workflow="w") == ["r1", "r0"]
        assert self.ids(status="waiting", workflow="w") == ["r0"]
        assert self.ids(status="completed") == []
        self.store.save("r0", 2, status="completed")
        assert self.ids(status="waiting") == ["r2"]
        assert self.ids(status="completed") == ["r0"]

    def test_runs_are_found_by_metadata_exactly(self) -> None:
        values: Values = [1, 1.0, True, "1", None, [1], {"b": 1, "a": (2,)}, "x" * 300, b"1", dt.date(2026, 1, 1)]
        for i, value in enumerate(values):
            self.store.save(f"r{i}", 1, metadata={"key": value, "team": "a"})
        for i, value in enumerate(values):
            assert self.ids(metadata={"key": value}) == [f"r{i}"], value
            assert self.ids(metadata={"key": value, "team": "a"}) == [f"r{i}"]
            assert self.ids(metadata={"key": value, "team": "b"}) == []
        assert self.ids(metadata={"key": {"a": (2,), "b": 1}}) == ["r6"]
        assert self.ids(metadata={"nokey": 1}) == []
        assert len(self.ids(metadata={})) == len(values)

    def test_metadata_is_merged_and_found_as_it_is_now(self) -> None:
        self.store.save("run", 1, metadata={"team": "a", "n": 1})
        self.store.save("run", 2, metadata={"team": "b"})
        self.store.save("run", 3)
        assert self.store.runs()[0].metadata == {"team": "b", "n": 1}
        assert self.loaded("run", step=2).metadata == {"team": "b"}
        assert self.loaded("run", step=3).metadata == {}
        assert self.ids(metadata={"team": "a"}) == []
        assert self.ids(metadata={"team": "b", "n": 1}) == ["run"]
        self.store.delete("run")
        assert self.ids(metadata={"team": "b"}) == []

    def test_metadata_keys_and_values_are_data(self) -> None:
        for i, text in enumerate(HOSTILE_TEXTS):
            self.store.save(f"r{i}", 1, metadata={text: "value", "key": text})
        for i, text in enumerate(HOSTILE_TEXTS):
            assert self.ids(metadata={text: "value"}) == [f"r{i}"], text
            assert self.ids(metadata={"key": text}) == [f"r{i}"], text
            assert self.store.runs(metadata={"key": text})[0].metadata == {text: "value", "key": text}
        assert self.ids(metadata={"value": "key"}) == []

    def test_pages_follow_one_another_and_miss_nothing(self) -> None:
        for i in range(25):
            self.store.save(f"r{i:02}", 1, status="waiting" if i % 2 else "ready")
        page = self.store.runs(limit=10)
        assert len(page) == 10
        self.store.save("later", 1)
        seen = list(page)
        while page.cursor is not None:
            page = self.store.runs(limit=10, after=page.cursor)
            seen += page
        assert [run.run_id for run in seen] == [f"r{i:02}" for i in range(24, -1, -1)]
        assert self.ids(status="waiting", limit=3, after=seen[10].cursor) == ["r13", "r11", "r09"]

    def test_a_malformed_list_cursor_is_an_error(self) -> None:
        self.store.save("run", 1)
        wrong: Values = ["", "1", "runs.", "runs.x", "runs.-1", "runs.0", "journal.1", 1, b"runs.1", "runs.1 OR 1=1"]
        for cursor in wrong:
            with raises(InvalidCursor):
                self.store.runs(after=cursor)

    def test_wrong_filters_are_refused(self) -> None:
        metadata = [{"a": object()}, {1: 1}]
        for query in each(limit=[0, 1001, "5"], status=["done"], workflow=[""], metadata=metadata):
            with raises(InvalidInput):
                self.store.runs(**query)

    def test_stats_count_what_there_is(self) -> None:
        self.store.save("a", self.conversation(40), status="waiting")
        self.store.append("b", [{"kind": "n"}] * 3)
        self.store.mark_done("b", "key")
        self.store.attach("a", "c", "k", 1)
        stats = self.store.stats()
        assert stats.runs == {"waiting": 1, "ready": 1}
        assert (stats.checkpoints, stats.entries, stats.effects, stats.attachments) == (1, 3, 1, 1)
        assert stats.chunks > 0
        assert stats.state_bytes > 1000

    def test_a_sound_store_has_no_problems(self) -> None:
        assert self.store.verify().problems == []
        self.store.save("a", self.conversation(60), metadata={"x": 1})
        self.store.save("a", self.conversation(60, changed=3), lane="side")
        self.store.append("a", [{"kind": "n"}] * 3)
        self.store.mark_intent("a", "key")
        self.store.attach("a", "c", "k", self.conversation(10))
        report = self.store.verify()
        assert report.ok
        assert report.problems == []
        assert (report.runs, report.checkpoints, report.entries, report.unused_chunks) == (1, 2, 3, 0)

    def test_no_status_at_all_is_no_run(self) -> None:
        self.store.save("run", 1)
        assert list(self.store.runs(status=[])) == []

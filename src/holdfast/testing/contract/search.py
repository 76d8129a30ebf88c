"""The contract of searches: order, pages, filters, prefixes.

Keys and values are data, never a part of a query.
"""

from __future__ import annotations

from typing import Any

from holdfast.errors import InvalidInput
from holdfast.model.rows import AttachmentRow, CheckpointRow, RunRow
from holdfast.operations.views import metadata_pairs
from holdfast.store.port import CheckpointQuery, RunQuery
from holdfast.store.search import tag_needle
from holdfast.testing.contract.base import Arguments, ContractBase, PortContractBase, Values, raises

HOSTILE = [
    "' OR 1=1 --", "'; DROP TABLE checkpoints; --", '$.a"', "$.a", "a.b", "a[0]", '"', "'", "\\", "%", "_", "?", "%s",
    "$1", "", "\n", "é", "e\u0301", "😀", "k", "ke", "key", "x" * 300,
]  # fmt: skip
Found = list[tuple[RunRow, CheckpointRow]]


class SearchContract(PortContractBase):
    """A search finds all that matches, and nothing else."""

    def find(self, *, metadata: Arguments | None = None, **query: Any) -> Found:
        tags = metadata_pairs(metadata) if metadata else ()
        return self.store.port.find_checkpoints(CheckpointQuery(tags=tags, **query))

    def states(self, **query: Any) -> Values:
        """The states of what is found; a state says where it belongs."""
        found = self.find(**query)
        return [self.state(run.run_id, checkpoint_id=c.checkpoint_id, lane=c.lane) for run, c in found]

    def paged(self, limit: int, **query: Any) -> Values:
        """The same, page by page."""
        states: Values = []
        before: tuple[int, int] | None = None
        while page := self.find(limit=limit, before=before, **query):
            assert len(page) <= limit
            states += [self.state(r.run_id, checkpoint_id=c.checkpoint_id, lane=c.lane) for r, c in page]
            run, last = page[-1]
            is_of_one = query.get("run_id") is not None
            before = (0, last.number) if is_of_one else (last.created_us, run.run << 32 | last.number)
        return states

    def paged_by_id(self, limit: int, **query: Any) -> Values:
        """The same in the order of ids."""
        states: Values = []
        place = ("~", 0)
        while page := self.find(limit=limit, by_id=place, **query):
            assert len(page) <= limit
            states += [self.state(r.run_id, checkpoint_id=c.checkpoint_id, lane=c.lane) for r, c in page]
            run, last = page[-1]
            number = last.number if query.get("run_id") is not None else run.run << 32 | last.number
            place = (last.checkpoint_id, number)
        return states

    # --- checkpoints of one run --------------------------------------------------------------------------------------

    def test_the_checkpoints_of_a_run_are_found_newest_first_as_they_are_stored(self) -> None:
        for n in range(5):
            self.store.save("run", n, lane=("", "side")[n % 2])
            self.store.save("other", -1)
        found = self.find(run_id="run")
        row = self.row()
        assert found == [(row, each) for each in reversed(self.store.port.rows(CheckpointRow, row.run))]
        assert [c.number for _, c in found] == [5, 4, 3, 2, 1]
        assert self.states(run_id="run", lane="") == [4, 2, 0]
        assert self.states(run_id="run", lane="side") == [3, 1]
        assert self.states(run_id="run", lane="none") == []
        assert self.find(run_id="none") == []

    def test_pages_of_a_run_follow_one_another_and_miss_nothing(self) -> None:
        self.store.save("before", -1)
        for n in range(13):
            self.store.save("run", n, lane=("", "side", "")[n % 3], metadata={"odd": n % 2})
        self.store.save("behind", -1)
        for limit in (1, 2, 5, 13, 50):
            assert self.paged(limit, run_id="run") == list(range(12, -1, -1))
            assert self.paged(limit, run_id="run", lane="side") == [10, 7, 4, 1]
            assert self.paged(limit, run_id="run", metadata={"odd": 1}) == [11, 9, 7, 5, 3, 1]
        assert self.states(run_id="run", limit=3) == [12, 11, 10]
        assert self.states(run_id="run", limit=0) == []
        assert len(self.states(run_id="run", limit=-1)) == 13
        assert self.states(run_id="run", before=(0, 3)) == [1, 0]
        assert self.states(run_id="run", before=(0, 1)) == self.states(run_id="run", before=(0, 0)) == []
        assert len(self.states(run_id="run", before=(0, 2**33))) == 13, "a cursor does not lead out of the run"

    def test_one_checkpoint_is_found_by_its_id(self) -> None:
        own = self.store.save("run", "own").checkpoint_id
        for lane in ("", "side"):
            self.store.save("run", f"c{lane}", checkpoint_id="c", lane=lane, metadata={"a": 1}, workflow="w")
        self.store.save("other", "other", checkpoint_id="c")
        assert self.states(run_id="run", checkpoint_id="c", lane="side") == ["cside"]
        assert self.states(run_id="run", checkpoint_id="c") == ["cside", "c"]
        assert self.states(run_id="run", checkpoint_id=own, lane="") == ["own"]
        assert self.states(run_id="run", checkpoint_id=own) == ["own"]
        assert self.states(run_id="run", checkpoint_id=own, lane="side") == []
        assert self.states(checkpoint_id="c") == ["other", "cside", "c"]
        narrowed: list[Arguments] = [{"metadata": {"a": 2}}, {"before": (0, 2)}, {"by_id": ("c", 0)}]
        narrowed += [{"workflow": "v"}, {"limit": 0}, {"checkpoint_id": "d"}]
        for narrow in narrowed:
            assert self.states(**{"run_id": "run", "checkpoint_id": "c", "lane": "", **narrow}) == [], narrow
        sound = {"metadata": {"a": 1}, "before": (0, 3), "by_id": ("d", 0), "workflow": "w"}
        assert self.states(run_id="run", checkpoint_id="c", lane="", **sound) == ["c"]

    def test_ids_sort_by_their_bytes(self) -> None:
        names = ["Z", "a", "a-1", "a.1", "az", "aé", "b", "ß", "é", "\uffee", "😀"]
        for name in names[::2] + names[1::2]:
            self.store.save("run", name, checkpoint_id=name)
        for at, name in enumerate(names):
            assert self.states(run_id="run", by_id=(name, 0)) == names[:at][::-1], name
            assert self.states(by_id=(name, 0)) == names[:at][::-1], name
        assert self.states(run_id="run", by_id=("b", 0), limit=2) == ["aé", "az"]
        assert self.states(run_id="run", by_id=("b", 0), before=(0, 4)) == ["az", "a-1", "Z"]

    def test_pages_by_id_follow_one_another_and_miss_nothing(self) -> None:
        names = ["b", "e", "a", "d", "c"]
        for n, name in enumerate(names):
            for lane in ("", "side"):
                self.store.save("run", f"{name}{lane}", checkpoint_id=name, lane=lane, metadata={"odd": n % 2})
            self.store.save("other", f"{name}other", checkpoint_id=name, metadata={"odd": n % 2})
        everywhere = [f"{name}{lane}" for name in "edcba" for lane in ("other", "side", "")]
        for limit in (1, 2, 3, 50):
            of_run = self.paged_by_id(limit, run_id="run")
            assert of_run == [state for state in everywhere if "other" not in state]
            assert self.paged_by_id(limit, run_id="run", lane="side") == [f"{name}side" for name in "edcba"]
            assert self.paged_by_id(limit, run_id="run", lane="", metadata={"odd": 1}) == ["e", "d"]
            assert sorted(self.paged_by_id(limit)) == sorted(everywhere)
            assert [state[0] for state in self.paged_by_id(limit)] == [state[0] for state in everywhere]

    # --- checkpoints of all runs -------------------------------------------------------------------------------------

    def test_the_checkpoints_of_all_runs_are_found_newest_first(self) -> None:
        self.store.save("a", 1, workflow="w")
        self.store.save("b", 2, workflow="v")
        self.clock.advance(1)
        self.store.save("b", 3)
        self.store.save("a", 4, lane="side")
        self.clock.advance(1)
        self.store.save("c", 5)
        assert self.states() == [5, 3, 4, 2, 1]
        assert self.states(lane="side") == [4]
        assert self.states(workflow="w") == [4, 1]
        assert self.states(workflow="v") == [3, 2]
        assert self.states(workflow="w", run_id="a", lane="") == [1]
        assert self.states(workflow="w", run_id="b") == self.states(workflow="none") == []
        assert [run.workflow for run, _ in self.find()] == ["", "v", "w", "v", "w"]

    def test_pages_of_all_runs_follow_one_another_and_miss_nothing(self) -> None:
        for n in range(14):
            self.store.save(f"r{n % 4}", n, workflow=f"w{n % 2}", metadata={"third": n % 3})
            if n % 3:  # several of one moment, of one run and of several
                self.clock.advance(1)
        whole, of_one, tagged = self.states(), self.states(workflow="w1"), self.states(metadata={"third": 0})
        assert (sorted(whole), sorted(of_one)) == (list(range(14)), list(range(1, 14, 2)))
        assert sorted(tagged) == [0, 3, 6, 9, 12]
        for limit in (1, 2, 3, 14):
            assert self.paged(limit) == whole
            assert self.paged(limit, workflow="w1") == of_one
            assert self.paged(limit, metadata={"third": 0}) == tagged

    def test_a_deleted_or_pruned_checkpoint_is_not_found(self) -> None:
        for n in range(3):
            self.store.save("run", n, metadata={"a": 1})
        self.store.save("gone", 9, metadata={"a": 1})
        self.store.delete("gone")
        self.store.port.prune("run", lambda _rows, _effects: [2])
        assert self.states(metadata={"a": 1}) == self.states(run_id="run", metadata={"a": 1}) == [2, 0]

    # --- by metadata -------------------------------------------------------------------------------------------------

    def test_metadata_of_a_checkpoint_is_compared_exactly(self) -> None:
        values: Values = [1, 1.0, True, "1", None, [1], {"b": 1, "a": (2,)}, "x" * 300, b"1", "", b"", -1, 2**40]
        for n, value in enumerate(values):
            self.store.save("run", n, metadata={"key": value, "team": "a"})
        self.store.save("run", "none")
        for n, value in enumerate(values):
            for run_id in ("run", None):
                assert self.states(run_id=run_id, metadata={"key": value}) == [n], value
                assert self.states(run_id=run_id, metadata={"key": value, "team": "a"}) == [n]
                assert self.states(run_id=run_id, metadata={"key": value, "team": "b"}) == []
        assert self.states(run_id="run", metadata={"nokey": 1}) == []
        assert len(self.states(run_id="run", metadata={"team": "a"})) == len(values)

    def test_the_metadata_is_the_checkpoints_and_not_the_runs(self) -> None:
        self.store.save("run", 1, metadata={"a": 1})
        self.store.save("run", 2, metadata={"b": 2})
        self.store.save("run", 3)
        assert self.states(metadata={"a": 1}) == [1]
        assert self.states(metadata={"b": 2}) == [2]
        assert self.states(metadata={"a": 1, "b": 2}) == []

    def test_keys_and_values_are_data(self) -> None:
        for n, text in enumerate(HOSTILE):
            self.store.save("run", n, metadata={text: "value", "same": text})
        for n, text in enumerate(HOSTILE):
            for run_id in ("run", None):
                assert self.states(run_id=run_id, metadata={text: "value"}) == [n], text
                assert self.states(run_id=run_id, metadata={"same": text}) == [n], text
        assert self.states(metadata={"value": "same"}) == []
        for text in HOSTILE[:14]:
            odd: list[Arguments] = [{"lane": text}, {"checkpoint_id": text}, {"workflow": text}, {"run_id": text}]
            for query in odd:
                assert self.find(**query) == []
        assert len(self.find()) == len(HOSTILE)

    def test_what_only_looks_like_the_metadata_is_not_found_and_makes_no_page_short(self) -> None:
        ((key, value),) = metadata_pairs({"k": 1})
        looks = tag_needle(key, value)
        crafted: list[Arguments] = [{"other": looks, "k": 2}, {"other": {"deep": [looks]}}]
        for n in range(12):
            self.store.save("run", n, metadata=crafted[n % 2] if n % 3 else {"k": 1, "n": n})
        for limit in (1, 2, 3, 4, 100):
            assert self.paged(limit, run_id="run", metadata={"k": 1}) == [9, 6, 3, 0]
            assert self.paged(limit, metadata={"k": 1}) == [9, 6, 3, 0]
            assert self.states(run_id="run", metadata={"k": 1}, limit=limit) == [9, 6, 3, 0][:limit]
            assert self.states(metadata={"k": 1}, limit=limit) == [9, 6, 3, 0][:limit]
        assert self.states(run_id="run", metadata={"k": 1, "n": 6}) == [6]
        both = (*metadata_pairs({"k": 1}), *metadata_pairs({"k": 2}))
        for run_id in ("run", None):
            assert self.store.port.find_checkpoints(CheckpointQuery(run_id, tags=both)) == []

    # --- attachments of several checkpoints --------------------------------------------------------------------------

    def test_the_attachments_of_several_checkpoints_come_in_order(self) -> None:
        for lane in ("side", ""):
            for checkpoint_id in ("d", "c", "é", "b"):
                self.store.attach_all("run", checkpoint_id, {"z": 1, "a": [lane, checkpoint_id]}, lane=lane)
        self.store.attach_all("other", "c", {"a": 1})
        run = self.row().run
        everything = self.store.port.rows(AttachmentRow, run)
        assert [(r.lane, r.checkpoint_id, r.key) for r in everything] == [
            (lane, c, key) for lane in ("", "side") for c in ("b", "c", "d", "é") for key in ("a", "z")
        ]

        def found(*places: tuple[str, str]) -> Values:
            rows = self.store.port.rows(AttachmentRow, run, keys=places)
            assert rows == [row for row in everything if (row.lane, row.checkpoint_id) in places]
            return [(row.lane, row.checkpoint_id, row.key) for row in rows]

        assert found(("side", "c"), ("", "é"), ("", "c"), ("", "c"), ("", "none"), ("none", "c")) == [
            (*place, key) for place in (("", "c"), ("", "é"), ("side", "c")) for key in "az"
        ]
        assert found() == []
        assert found(("", "' OR 1=1 --"), ('"', "["), ("", "")) == []
        assert len(found(*{(row.lane, row.checkpoint_id) for row in everything})) == 16
        assert self.store.port.rows(AttachmentRow, 2**30, keys=[("", "c")]) == []


HIGHEST = "\U0010ffff"
"""The highest code point there is."""


class PrefixContract(ContractBase):
    """Runs are found by the beginning of their ids."""

    def beginning(self, prefix: str, **query: Any) -> list[str]:
        return [run.run_id for run in self.store.runs(prefix=prefix, **query)]

    def begun(self, *run_ids: str) -> None:
        for run_id in run_ids:
            self.store.save(run_id, 1)

    def test_runs_are_found_by_how_their_ids_begin_newest_first(self) -> None:
        self.begun("order-1", "order", "order-2", "orde", "Order-3", "borders", "ordes")
        assert self.beginning("order") == ["order-2", "order", "order-1"]
        assert self.beginning("order-") == ["order-2", "order-1"]
        assert self.beginning("order-2") == ["order-2"]
        assert self.beginning("order-22") == []
        assert len(self.beginning("")) == 7

    def test_a_prefix_is_data_and_no_pattern(self) -> None:
        self.begun("100%", "100x", "a_b", "axb", "a*b", "a?b", "[a]b", "a\\%b", "x') OR '1'='1")
        assert self.beginning("100%") == ["100%"]
        assert self.beginning("%") == []
        assert self.beginning("a_") == ["a_b"]
        assert self.beginning("_") == []
        assert self.beginning("a*") == ["a*b"]
        assert self.beginning("[a]") == ["[a]b"]
        assert self.beginning("a\\%") == ["a\\%b"]
        assert self.beginning("x') OR") == ["x') OR '1'='1"]
        assert self.beginning("x' OR") == []

    def test_a_prefix_is_compared_as_it_is_written(self) -> None:
        self.begun("é1", "e\u03011", "Ä", "ä", "ß", "ss", "\u0131", "i", "日本", "日", "🙂a", "🙃a")
        assert self.beginning("é") == ["é1"]
        assert self.beginning("e") == ["e\u03011"]
        assert self.beginning("ä") == ["ä"]
        assert self.beginning("ß") == ["ß"]
        assert self.beginning("i") == ["i"]
        assert self.beginning("日") == ["日", "日本"]
        assert self.beginning("🙂") == ["🙂a"]

    def test_ids_at_the_borders_of_the_code_points_are_found(self) -> None:
        self.begun("a\ud7ff1", "a\ue0001", f"a{HIGHEST}", f"a{HIGHEST}1", "b", HIGHEST, f"{HIGHEST * 2}1")
        self.begun(HIGHEST * 128)
        assert self.beginning("a\ud7ff") == ["a\ud7ff1"]
        assert self.beginning("a\ue000") == ["a\ue0001"]
        assert self.beginning(f"a{HIGHEST}") == [f"a{HIGHEST}1", f"a{HIGHEST}"]
        assert self.beginning("a") == [f"a{HIGHEST}1", f"a{HIGHEST}", "a\ue0001", "a\ud7ff1"]
        assert self.beginning(HIGHEST) == [HIGHEST * 128, f"{HIGHEST * 2}1", HIGHEST]
        assert self.beginning(HIGHEST * 2) == [HIGHEST * 128, f"{HIGHEST * 2}1"]
        assert self.beginning(HIGHEST * 128) == [HIGHEST * 128]

    def test_a_prefix_goes_together_with_every_other_filter(self) -> None:
        for i in range(12):
            self.store.save(
                f"{'ab'[i % 2]}{i:02}",
                1,
                status="waiting" if i % 3 else "failed",
                workflow="v" if i % 4 < 2 else "w",
                metadata={"team": i % 4, "even": i % 2 == 0},
            )
        assert self.beginning("a") == ["a10", "a08", "a06", "a04", "a02", "a00"]
        assert self.beginning("a", status="failed") == ["a06", "a00"]
        assert self.beginning("a", status=["failed", "waiting"], limit=2) == ["a10", "a08"]
        assert self.beginning("a", workflow="w") == ["a10", "a06", "a02"]
        assert self.beginning("a", metadata={"team": 2}) == ["a10", "a06", "a02"]
        assert self.beginning("a", metadata={"team": 2, "even": True}, status="failed") == ["a06"]
        assert self.beginning("a", metadata={"even": False}) == []
        assert self.beginning("a0", workflow="w", metadata={"team": 2}, status="waiting") == ["a02"]

    def test_pages_of_a_prefix_follow_one_another(self) -> None:
        self.begun(*(f"{'ab'[i % 2]}{i:02}" for i in range(20)))
        page = self.store.runs(prefix="a", limit=4)
        seen = list(page)
        while page.cursor is not None:
            page = self.store.runs(prefix="a", limit=4, after=page.cursor)
            seen += page
        assert [run.run_id for run in seen] == [f"a{i:02}" for i in range(18, -1, -2)]

    def test_the_port_takes_a_prefix_as_well(self) -> None:
        self.begun("order-1", "other")
        assert [row.run_id for row in self.store.port.runs(RunQuery(prefix="or"))] == ["order-1"]
        assert len(self.store.port.runs(RunQuery())) == 2

    def test_the_port_lists_the_runs_of_a_family(self) -> None:
        self.begun("a", "other", "b")
        self.store.fork("a", "a2")
        self.store.fork("a2", "a3")
        self.store.save("a2", 2, status="failed")
        port = self.store.port
        run = self.row("a")
        assert [row.run_id for row in port.runs(RunQuery(family=run.family))] == ["a3", "a2", "a"]
        assert [row.run_id for row in port.runs(RunQuery(family=run.family, limit=1, before=run.run + 1))] == ["a"]
        assert [row.run_id for row in port.runs(RunQuery(("failed",), family=run.family, prefix="a"))] == ["a2"]

    def test_a_prefix_that_no_id_can_have_is_refused(self) -> None:
        self.begun("a")
        wrong: Values = ["\x00", "a\n", "\ud800", "x" * 513, 1, b"a"]
        for prefix in wrong:
            with raises(InvalidInput):
                self.store.runs(prefix=prefix)

"""The contract of `runs(prefix=…)`: ids are found by how they begin, as data, byte by byte."""

from __future__ import annotations

from typing import Any

from holdfast.errors import InvalidInput
from holdfast.store.port import RunQuery
from holdfast.testing.contract.base import ContractBase, raises

HIGHEST = "\U0010ffff"
"""The highest code point there is."""


class PrefixesContract(ContractBase):
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
                f"{'ab'[i % 2]}{i:02}", 1, status="waiting" if i % 3 else "failed", workflow="v" if i % 4 < 2 else "w",
                metadata={"team": i % 4, "even": i % 2 == 0},
            )  # fmt: skip
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
        run = port.run("a")
        assert run is not None
        assert [row.run_id for row in port.runs(RunQuery(family=run.family))] == ["a3", "a2", "a"]
        assert [row.run_id for row in port.runs(RunQuery(family=run.family, limit=1, before=run.run + 1))] == ["a"]
        assert [row.run_id for row in port.runs(RunQuery(("failed",), family=run.family, prefix="a"))] == ["a2"]

    def test_a_prefix_that_no_id_can_have_is_refused(self) -> None:
        self.begun("a")
        wrong: list[Any] = ["\x00", "a\n", "\ud800", "x" * 513, 1, b"a"]
        for prefix in wrong:
            with raises(InvalidInput):
                self.store.runs(prefix=prefix)

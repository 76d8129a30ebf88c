"""The contract of parents: the lane's newest checkpoint, one that is named, or none."""

from __future__ import annotations

from holdfast.errors import CheckpointConflict, InvalidId
from holdfast.testing.contract.base import ContractBase, raises


class DescendingContract(ContractBase):
    """Every checkpoint has the parent its writer meant."""

    def parents(self, run_id: str = "run") -> list[tuple[str, str | None]]:
        return [(info.checkpoint_id, info.parent_id) for info in self.store.history(run_id)]

    def test_an_empty_parent_means_none(self) -> None:
        first = self.store.save("run", 1).checkpoint_id
        root = self.store.save("run", 2, parent_id="").checkpoint_id
        below = self.store.save("run", 3).checkpoint_id
        self.store.save("run", 4, parent_id="", checkpoint_id="named")
        self.store.save("run", 5, parent_id="", lane="side")
        self.store.save("run", 6, parent_id="", lane="side", checkpoint_id="aside")
        assert [parent for _, parent in self.parents()] == [None, None, root, None, None, None]
        found = self.loaded("run", checkpoint_id=root)
        assert (found.parent_id, found.step) == (None, 2)
        self.store.save("run", 7, parent_id=first)
        assert self.loaded("run").parent_id == first
        assert self.loaded("run", checkpoint_id=below).parent_id == root

    def test_a_run_may_begin_with_one_that_has_none(self) -> None:
        self.store.save("a", 1, parent_id="")
        self.store.save("b", 1, parent_id="", checkpoint_id="c")
        assert (self.loaded("a").parent_id, self.loaded("b").parent_id) == (None, None)

    def test_no_parent_saved_again_is_a_no_op_and_instead_of_one_a_conflict(self) -> None:
        self.store.save("run", 1, checkpoint_id="root", parent_id="")
        self.store.save("run", 2, checkpoint_id="child")
        again = self.store.save("run", 1, checkpoint_id="root", parent_id="")
        assert (again.number, again.bytes_added) == (1, 0)
        for checkpoint_id, state, parent_id in (("child", 2, ""), ("root", 1, "child")):
            with raises(CheckpointConflict):
                self.store.save("run", state, checkpoint_id=checkpoint_id, parent_id=parent_id)
        assert self.parents() == [("root", None), ("child", "root")]

    def test_replace_can_take_the_parent_away(self) -> None:
        self.store.save("run", 1, checkpoint_id="root")
        self.store.save("run", 2, checkpoint_id="child")
        self.store.save("run", 2, checkpoint_id="child", parent_id="", replace=True)
        assert self.parents() == [("root", None), ("child", None)]
        self.store.save("run", 3, checkpoint_id="child", replace=True)
        assert self.parents() == [("root", None), ("child", None)]
        self.store.save("run", 3, checkpoint_id="child", parent_id="root", replace=True)
        self.store.save("run", 4, checkpoint_id="child", replace=True)
        assert self.parents() == [("root", None), ("child", "root")]
        assert self.store.verify().problems == []

    def test_copies_forks_and_archives_keep_roots_apart(self) -> None:
        for root in ("one", "two"):
            self.store.save("run", root, checkpoint_id=root, parent_id="")
            self.store.save("run", root)
        self.store.save("run", "side", parent_id="", lane="side")
        own = self.store.save("run", "own", parent_id="").checkpoint_id
        self.store.copy("run", "copied")
        self.store.import_run(self.store.export_run("run"), run_id="imported")
        assert [parent for _, parent in self.parents()] == [None, "one", None, "two", None, None]
        assert self.parents("copied") == self.parents("imported") == self.parents()
        self.store.save("run", "needs", metadata={"holdfast": {"needs": ["two", own]}})
        self.store.fork("run", "forked")
        assert [parent for _, parent in self.parents("forked")] == [None, None, own]

    def test_a_parent_is_an_id_or_empty(self) -> None:
        for wrong in ("\x00", "\n", "x" * 513, 7, b""):
            with raises(InvalidId):
                self.store.save("run", 1, parent_id=wrong)  # type: ignore[arg-type]
        assert self.store.runs() == []

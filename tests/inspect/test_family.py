"""A family as a tree."""

from __future__ import annotations

from typing import Any

import holdfast
from holdfast.inspect.family import family, split_origin
from holdfast.inspect.views import as_data


def test_forks_stand_behind_what_they_were_forked_from() -> None:
    with holdfast.open("memory:") as store:
        store.save("other", 0)
        first = store.save("a", 1)
        store.save("a", 2)
        store.fork("a", "b", step=1)
        store.fork("a", "c")
        store.fork("b", "b2")
        store.save("b", 3, next_node="think")
        found = family(store, "b2")
        assert [(branch.run_id, branch.depth, branch.forked_from) for branch in found.branches] == [
            ("a", 0, None), ("b", 1, "a"), ("b2", 2, "b"), ("c", 1, "a"),
        ]  # fmt: skip
        by_name = {branch.run_id: branch for branch in found.branches}
        assert by_name["b"].forked_at == first.checkpoint_id
        assert by_name["b"].nodes[-1].next_node == "think"
        assert [node.step for node in by_name["a"].nodes] == [1, 2]
        assert as_data(found)["branches"][0]["run_id"] == "a"


def test_only_the_newest_checkpoints_are_listed_and_the_others_counted() -> None:
    with holdfast.open("memory:") as store:
        for n in range(10):
            store.save("a", n)
        (branch,) = family(store, "a", checkpoints=3).branches
        assert ([node.step for node in branch.nodes], branch.left_out) == ([8, 9, 10], 7)


def test_a_fork_whose_source_is_gone_stands_for_itself() -> None:
    with holdfast.open("memory:") as store:
        store.save("a", 1)
        store.fork("a", "b")
        store.delete("a")
        (branch,) = family(store, "b").branches
        assert (branch.run_id, branch.depth, branch.forked_from) == ("b", 0, "a")


def test_rollbacks_are_marked_and_so_is_what_they_took_back() -> None:
    app = holdfast.App("memory:")

    @app.workflow
    def work(run: Any) -> Any:
        for turn in run.loop():
            run.state["turn"] = turn
            run.step(str, turn)
            if turn == 4:
                break
        return run.ask("Sure?", {"ok": bool})

    app.start(work, run_id="r")
    app.rollback("r", to="loop#1[3]/str#1")
    (branch,) = family(app.store, "r").branches
    kinds = [(node.kind, node.taken_back) for node in branch.nodes]
    assert kinds[:5] == [
        ("checkpoint", False), ("checkpoint", False), ("checkpoint", True), ("checkpoint", True), ("rollback", False),
    ]  # fmt: skip
    app.close()


def test_an_origin_is_taken_apart_where_a_run_is_known() -> None:
    assert split_origin(None) == (None, None)
    assert split_origin("a@1.x") == ("a", "1.x")
    assert split_origin("a@b@c", {"a"}) == ("a", "b@c")
    assert split_origin("a@b@c", {"a@b"}) == ("a@b", "c")
    assert split_origin("a@b@c") == ("a@b", "c")

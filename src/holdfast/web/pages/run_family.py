"""The relatives of a run: parents, children and forks; and the picture of a declared workflow."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from holdfast.errors import DamagedData, HoldfastError, NotFound
from holdfast.graphs.definition import Graph
from holdfast.inspect.family import Branch, Family, Node, Relative, Relatives, family, relatives
from holdfast.model.rows import COMPLETED, FAILED, PAUSED, TERMINAL
from holdfast.operations.read import load_checkpoint
from holdfast.store.port import Select
from holdfast.web.graph_svg import StageState, describe, draw
from holdfast.web.routes import Page
from holdfast.web.run_header import OpenRun, open_run
from holdfast.web.site import Context

_CHECKPOINTS: Final = 20
"""How many checkpoints of each fork are listed."""
_DEPTH_MAX: Final = 8


class RunLink(NamedTuple):
    """A related run."""

    run_id: str
    url: str
    status: str
    workflow: str
    about: str
    created_at: dt.datetime | None


class BranchView(NamedTuple):
    """A run of the family, with its newest checkpoints."""

    link: RunLink
    depth: int
    is_here: bool
    nodes: list[tuple[str, str, str, dt.datetime]]
    """Of each checkpoint: its id, its address, what it is, and when it was saved."""
    left_out: int


def show_family(c: Context) -> Response:
    """Show parents, children and forks."""
    run = open_run(c, "family")
    found, related, problem = (
        Family(branches=(), more_runs=False),
        Relatives(parents=(), children=(), more_children=False),
        "",
    )
    try:
        related = relatives(c.store, run.run_id)
        found = family(c.store, run.run_id, checkpoints=_CHECKPOINTS)
    except DamagedData as error:
        problem = run.masker.text(str(error))
    data = run.data(
        f"Family of {run.run_id}",
        parents=[link for one in related.parents if (link := _relative(c, one)) is not None],
        children=[link for one in related.children if (link := _relative(c, one)) is not None],
        more_children=related.more_children,
        branches=[_branch(c, run, branch) for branch in found.branches if c.user.can_see(branch.workflow)],
        more_runs=found.more_runs,
        problem=problem,
    )
    return c.page("run_family.html", data)


def _relative(c: Context, one: Relative) -> RunLink | None:
    """A parent or child; None if the user may not see it."""
    about = f"{'started detached' if one.detached else 'started'} by {one.call}" if one.call else ""
    if one.info is None:
        return RunLink(one.run_id, "", "", "", f"{about}; not in this store", None) if c.user.sees_all else None
    if not c.user.can_see(one.info.workflow):
        return None
    info = one.info
    return RunLink(one.run_id, c.run_url(one.run_id), info.status, info.workflow, about, info.created_at)


def _branch(c: Context, run: OpenRun, branch: Branch) -> BranchView:
    about = f"forked at {branch.forked_at}" if branch.forked_from else ""
    link = RunLink(branch.run_id, c.run_url(branch.run_id), branch.status, branch.workflow, about, branch.created_at)
    nodes = [_node(c, branch, node) for node in reversed(branch.nodes)]
    return BranchView(link, min(branch.depth, _DEPTH_MAX), branch.run_id == run.run_id, nodes, branch.left_out)


def _node(c: Context, branch: Branch, node: Node) -> tuple[str, str, str, dt.datetime]:
    facts = [f"step {node.step}", f"covers {node.covers}"]
    facts += [f"next {node.next_node}"] if node.next_node else []
    facts += [f"lane {node.lane}"] if node.lane else []
    back = "retried from here" if node.is_retry else "rolled back to here"
    facts += [back] if node.kind == "rollback" else ["rolled back"] if node.taken_back else []
    url = c.run_url(branch.run_id, "state", checkpoint=node.checkpoint_id, lane=node.lane)
    return node.checkpoint_id, url, ", ".join(facts), node.created_at


# --- the graph -------------------------------------------------------------------------------------------------------


def show_graph(c: Context) -> Response:
    """Show the stages of a declared workflow, and where the run is."""
    run = open_run(c, "graph")
    try:
        graph = c.app.graph_of(run.run_id)
    except DamagedData:
        raise
    except HoldfastError as error:
        raise NotFound(f"there is no graph of this run: {error}") from error
    states = _stage_states(run, graph)
    data = run.data(f"Graph of {run.run_id}", graph=graph, picture=draw(graph, states), stages=describe(graph, states))
    return c.page("run_graph.html", data)


def _stage_states(run: OpenRun, graph: Graph) -> dict[str, StageState]:
    """What the run has done with each stage, by its newest checkpoint."""
    core = run.c.store.access.core
    try:
        found = load_checkpoint(core, run.run_id, Select()) if run.row.head else None
    except DamagedData:
        found = None
    state: Any = found.state if found is not None else {}
    outcomes = state.get("stage") if isinstance(state, dict) else None
    states: dict[str, StageState] = {}
    for stage, facts in (outcomes if isinstance(outcomes, dict) else {}).items():
        if isinstance(facts, dict):
            word = {"succeeded": "done", "failed": "failed", "skipped": "skipped"}.get(str(facts.get("status")), "")
            times = facts.get("iteration")
            states[str(stage)] = StageState(word, times if type(times) is int else 0)
    progress = state.get("graph") if isinstance(state, dict) else None
    at = progress.get("at") if isinstance(progress, dict) else None
    current = at if isinstance(at, str) else graph.start or graph.stages[0].id
    status = run.row.status
    word = {COMPLETED: "done", FAILED: "failed", PAUSED: "paused"}.get(status, "" if status in TERMINAL else "current")
    if word and run.row.position:
        states[current] = StageState(word, states[current].times if current in states else 0)
    return states


PAGES: Final = [
    Page("GET", "/runs/{run_id}/family", show_family),
    Page("GET", "/runs/{run_id}/graph", show_graph),
]

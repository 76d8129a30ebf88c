"""The state of a run at each checkpoint, as a tree with search; and the changes between any two checkpoints."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, cast

from markupsafe import Markup
from starlette.responses import Response

from holdfast.errors import CheckpointNotFound, DamagedData, NotFound
from holdfast.inspect.refs import Located, changes_between
from holdfast.inspect.threads import THREADS, stored_state
from holdfast.limits import NUMBER_MAX
from holdfast.model.rows import CheckpointRow, RunRow
from holdfast.operations.context import StoreContext
from holdfast.operations.read import known_run, load_checkpoint, retry_if_changed
from holdfast.operations.views import checked_checkpoint, checkpoint_info, run_info
from holdfast.state.json_preview import to_jsonable
from holdfast.store.port import CheckpointQuery, RunQuery, Select
from holdfast.web.change_view import change_view
from holdfast.web.mask import Masker
from holdfast.web.pages.run import position_in
from holdfast.web.routes import Page
from holdfast.web.run_header import OpenRun, is_visible, open_run
from holdfast.web.site import Context
from holdfast.web.tree import Path, Tree, crumbs, find, pointer, search

CHECKPOINTS: Final = 50
CHANGES: Final = 100
_CHOICES: Final = 100
_FAMILY_RUNS: Final = 10
_FAMILY_CHOICES: Final = 20
_SEARCH_CHARS: Final = 200


class CheckpointView(NamedTuple):
    """A checkpoint in the list."""

    number: int
    checkpoint_id: str
    step: int
    lane: str
    next_node: str
    status: str
    covers: int
    created_at: dt.datetime | None
    url: str
    diff: str
    """The changes since the checkpoint before it."""
    problem: str


class Chosen(NamedTuple):
    """A checkpoint that a user chose, and its run."""

    run: RunRow
    row: CheckpointRow

    @property
    def value(self) -> str:
        """How an address names it, if its run is not the one of the page."""
        return f"{self.row.number}@{self.run.run_id}"


# --- state -----------------------------------------------------------------------------------------------------------


def show_state(c: Context) -> Response:
    """Show the state of a checkpoint."""
    run = open_run(c, "state")
    core = c.store.access.core
    chosen = _chosen(core, run.row, c.query("checkpoint"), c.query("lane"))
    value, problem = _read_state(core, chosen, run.masker)
    q, at = c.query("q").strip()[:_SEARCH_CHARS], position_in(c, "at") or 0
    tree, found, path = Markup(), None, cast(Path, ())
    if chosen is not None and not problem:
        link = _linker(c, run, chosen)
        try:
            path, part = find(value, c.query("path"))
        except KeyError:
            raise NotFound(f"the state has no part {c.query('path')[:200]!r}") from None
        found = search(part, q) if q else None
        shown = Tree(link, None if found is None else [(*path, *one) for one in found.paths])
        tree = shown.render(part, path, at if found is None else 0)
    older = position_in(c, "older")
    listed = _list_checkpoints(c, run, older)
    data = run.data(
        f"State of {run.run_id}",
        chosen=None if chosen is None else _checkpoint_view(c, run, chosen.row),
        is_newest=chosen is not None and chosen.row.number == run.row.head,
        problem=problem,
        tree=tree,
        crumbs=crumbs(path, _linker(c, run, chosen)) if path and chosen is not None else Markup(),
        path=c.query("path"),
        q=q,
        found=found,
        checkpoints=listed[:CHECKPOINTS],
        older=_older_url(c, run, listed),
        download="" if chosen is None else c.run_url(run.run_id, "state.json", checkpoint=chosen.row.number),
        compare="" if chosen is None else c.run_url(run.run_id, "diff", b=chosen.row.number),
    )
    return c.page("run_state.html", data)


def download_state(c: Context) -> Response:
    """The state of a checkpoint as JSON, masked."""
    run = OpenRun(c, c.run_id(), "state", 1)
    core = c.store.access.core
    chosen = _chosen(core, run.row, c.query("checkpoint"), c.query("lane"))
    if chosen is None:
        raise CheckpointNotFound(run.run_id, "yet")
    value, problem = _read_state(core, chosen, run.masker)
    if problem:
        raise DamagedData(f"checkpoint {chosen.row.checkpoint_id!r} of run {run.run_id!r}", problem)
    text = json.dumps(to_jsonable(value), ensure_ascii=False, indent=2)
    return Response(
        text.encode("utf-8", "replace"), media_type="application/json", headers={"Cache-Control": "no-store"}
    )


def _linker(c: Context, run: OpenRun, chosen: Chosen | None) -> Any:
    number = chosen.row.number if chosen is not None else None

    def link(path: Path, at: int | None = None) -> str:
        return c.run_url(run.run_id, "state", checkpoint=number, path=pointer(path), at=at)

    return link


def _chosen(core: StoreContext, run: RunRow, text: str, lane: str = "") -> Chosen | None:
    """The checkpoint that a text names by its number or its id; the newest if it is empty. None: there is none yet."""
    if not text:
        found = core.port.checkpoint(run.run_id, Select(lane))
        row = None if found is None else found.checkpoint
        if row is None and not lane:
            rows = core.port.find_checkpoints(CheckpointQuery(run.run_id, limit=1))
            row = rows[0][1] if rows else None
        return None if row is None else Chosen(run, row)
    if text.isascii() and text.isdigit() and len(text) < 12 and 0 < int(text) <= NUMBER_MAX:
        rows = core.port.find_checkpoints(CheckpointQuery(run.run_id, before=(0, int(text) + 1), limit=1))
        if rows and rows[0][1].number == int(text):
            return Chosen(run, rows[0][1])
    found = core.port.checkpoint(run.run_id, Select(lane, text))
    if found is not None and found.checkpoint is not None:
        return Chosen(run, found.checkpoint)
    rows = core.port.find_checkpoints(CheckpointQuery(run.run_id, checkpoint_id=text, limit=1))
    if not rows:
        raise CheckpointNotFound(run.run_id, repr(text[:200]))
    return Chosen(run, rows[0][1])


def _read_state(core: StoreContext, chosen: Chosen | None, masker: Masker) -> tuple[Any, str]:
    """The masked state of a checkpoint, or what prevents reading it."""
    if chosen is None:
        return None, ""
    run, row = chosen

    def read() -> Any:
        if run.workflow == THREADS:
            return stored_state(core, run, checked_checkpoint(run, row))
        found = load_checkpoint(core, run.run_id, Select(row.lane, row.checkpoint_id))
        if found is None:
            raise CheckpointNotFound(run.run_id, repr(row.checkpoint_id))
        return found.state

    try:
        return masker.value(retry_if_changed(core, run.run_id, read)), ""
    except DamagedData as error:
        return None, masker.text(str(error))


# --- the list of checkpoints -----------------------------------------------------------------------------------------


def _list_checkpoints(c: Context, run: OpenRun, older: int | None) -> list[CheckpointView]:
    """A page of checkpoints, newest first, and one more if there is a next page."""
    before = None if older is None else (0, older)
    rows = c.store.port.find_checkpoints(CheckpointQuery(run.run_id, before=before, limit=CHECKPOINTS + 1))
    return [_checkpoint_view(c, run, row) for _, row in rows]


def _checkpoint_view(c: Context, run: OpenRun, row: CheckpointRow) -> CheckpointView:
    try:
        info, problem = checkpoint_info(run.row, checked_checkpoint(run.row, row)), ""
    except DamagedData as error:
        info, problem = None, run.masker.text(str(error))
    return CheckpointView(
        number=row.number,
        checkpoint_id=row.checkpoint_id,
        step=row.step,
        lane=row.lane,
        next_node=row.next_node or "",
        status=row.status,
        covers=row.covers,
        created_at=None if info is None else info.created_at,
        url=c.run_url(run.run_id, "state", checkpoint=row.number),
        diff=c.run_url(run.run_id, "diff", b=row.number) if row.parent_id and info is not None else "",
        problem=problem,
    )


def _older_url(c: Context, run: OpenRun, listed: list[CheckpointView]) -> str:
    if len(listed) <= CHECKPOINTS:
        return ""
    return c.run_url(run.run_id, "state", checkpoint=c.query("checkpoint"), older=listed[CHECKPOINTS - 1].number)


# --- changes ---------------------------------------------------------------------------------------------------------


class Choice(NamedTuple):
    """A checkpoint to choose."""

    value: str
    label: str
    run_id: str


def show_diff(c: Context) -> Response:
    """Show what changed between two checkpoints, of this run or of another."""
    run = open_run(c, "state")
    core = c.store.access.core
    new = _end(c, run, c.query("b"))
    old = _end(c, run, c.query("a")) if c.query("a") else _before(core, new)
    at = position_in(c, "at") or 0
    problem, changes = "", []
    if old is not None and new is not None:
        try:
            found = changes_between(c.store, _located(old), _located(new))
            changes = run.masker.changes(found)
        except DamagedData as error:
            problem = run.masker.text(str(error))
    ends = {"a": _value(run, old), "b": _value(run, new)}
    data = run.data(
        f"Changes in {run.run_id}",
        old=old,
        new=new,
        ends=ends,
        choices=list(_choices(c, run, [one for one in (old, new) if one is not None])),
        changes=[change_view(change) for change in changes[at : at + CHANGES]],
        count=len(changes),
        at=at,
        more=c.run_url(run.run_id, "diff", **ends, at=at + CHANGES) if at + CHANGES < len(changes) else "",
        problem=problem,
        swapped=c.run_url(run.run_id, "diff", a=ends["b"], b=ends["a"]),
    )
    return c.page("run_diff.html", data)


def _end(c: Context, run: OpenRun, text: str) -> Chosen | None:
    """A checkpoint that is written as its number or id, or as `number@run` for one of another run."""
    core = c.store.access.core
    number, sign, other = text.partition("@")
    if sign and number.isascii() and number.isdigit():
        c.visible(other)
        return _chosen(core, known_run(core, other), number)
    return _chosen(core, run.row, text, c.query("lane"))


def _before(core: StoreContext, new: Chosen | None) -> Chosen | None:
    """The parent of a checkpoint; if it is not stored, as in a fork, the one before it on its lane."""
    if new is None:
        return None
    run_id, lane = new.run.run_id, new.row.lane
    selects = [Select(lane, new.row.parent_id)] if new.row.parent_id else []
    for select in (*selects, Select(lane, before=new.row.number)):
        found = core.port.checkpoint(run_id, select)
        if found is not None and found.checkpoint is not None:
            return Chosen(new.run, found.checkpoint)
    return None


def _located(chosen: Chosen) -> Located:
    info = checkpoint_info(chosen.run, checked_checkpoint(chosen.run, chosen.row))
    return Located(run=run_info(chosen.run), checkpoint=info)


def _value(run: OpenRun, chosen: Chosen | None) -> str:
    if chosen is None:
        return ""
    return str(chosen.row.number) if chosen.run.run == run.row.run else chosen.value


def _choices(c: Context, run: OpenRun, chosen: list[Chosen]) -> Iterator[Choice]:
    """The newest checkpoints of the run and of its family, and those that are chosen."""
    core = c.store.access.core
    rows = [run.row, *[row for row in _family(core, run.row) if is_visible(c, row.run_id)]]
    seen: set[str] = set()
    for one in rows:
        limit = _CHOICES if one.run == run.row.run else _FAMILY_CHOICES
        found = [Chosen(one, row) for _, row in core.port.find_checkpoints(CheckpointQuery(one.run_id, limit=limit))]
        found += [end for end in chosen if end.run.run == one.run]
        for end in found:
            value = _value(run, end)
            if value not in seen:
                seen.add(value)
                yield Choice(value, _choice_label(end), one.run_id)
    for end in chosen:
        if _value(run, end) not in seen:
            yield Choice(_value(run, end), _choice_label(end), end.run.run_id)


def _choice_label(end: Chosen) -> str:
    row = end.row
    facts = [
        f"step {row.step}",
        *([f"next {row.next_node}"] if row.next_node else []),
        *([row.lane] if row.lane else []),
    ]
    return f"{row.checkpoint_id} ({', '.join(facts)})"


def _family(core: StoreContext, run: RunRow) -> list[RunRow]:
    rows = core.port.runs(RunQuery(family=run.family, limit=_FAMILY_RUNS + 1))
    return [row for row in rows if row.run != run.run][:_FAMILY_RUNS]


PAGES: Final = [
    Page("GET", "/runs/{run_id}/state", show_state),
    Page("GET", "/runs/{run_id}/state.json", download_state),
    Page("GET", "/runs/{run_id}/diff", show_diff),
]

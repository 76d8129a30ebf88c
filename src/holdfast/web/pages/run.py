"""The page of a run: its timeline, newest part first, with finished turns folded; and its live updates."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final, NamedTuple

from markupsafe import Markup
from starlette.responses import Response

from holdfast.errors import DamagedData, InvalidInput
from holdfast.ids import display_name
from holdfast.inspect.attempts import describe_attempt
from holdfast.inspect.rows import error_text
from holdfast.inspect.timeline_page import ENTRIES, TimelinePage, read_window
from holdfast.inspect.views import AttemptRow, Row
from holdfast.limits import NUMBER_MAX
from holdfast.web.markdown import plain_line
from holdfast.web.render import duration
from holdfast.web.routes import Page
from holdfast.web.run_header import OpenRun, is_visible, mark_of, open_run
from holdfast.web.site import Context
from holdfast.web.timeline_svg import STRIPES, Scale
from holdfast.web.tree import one_line, preview

_TIMED: Final = frozenset(
    {"step", "effect", "ask", "sleep", "wait", "child", "map", "gather", "loop", "turn", "turns", "stage", "stages"}
    | {"rollback", "compensate", "gap", "skipped"}
)
"""Kinds of rows that show how long they took."""
_FOLDED: Final = frozenset({"turns", "stages", "skipped"})
_PLACES: Final = frozenset({"step", "effect", "ask", "sleep", "wait", "child", "map", "gather", "stage", "turn"})
"""Kinds of rows before which a run can be rolled back or forked."""
_NAMED_BY_KIND: Final = frozenset({"started", "ended", "log", "stage", "pruned", "forked", "entry"})
_DEPTH_MAX: Final = 8
_TEXT_CHARS: Final = 240
_RESULT_NODES: Final = 80
_RESULT_CHARS: Final = 1_200
_TRACE_CHARS: Final = 6_000


class RowView(NamedTuple):
    """A row as the page shows it."""

    id: str
    kind: str
    depth: int
    label: str
    state: str
    took: str
    facts: list[str]
    """Attempts, branches, who answered."""
    text: str
    bar: Markup
    position: int
    started_at: dt.datetime | None
    result: str
    is_cut: bool
    error: str
    attempts: list[str]
    effect: list[tuple[str, str]]
    links: list[tuple[str, str]]
    opens: str
    """The address of what a folded row stands for."""
    child: str
    """The address of the child run."""


def show_run(c: Context) -> Response:
    """Show the timeline."""
    if c.request.path_params["run_id"] == "bulk" and c.store.port.run("bulk") is None:
        return c.redirect("/runs")  # the address of the form that changes several runs
    run = open_run(c, "", entries=ENTRIES)
    first, last = _range(c)
    page, problem = run.page, ""
    if first is not None and page is not None:
        try:
            page = read_window(c.store, run.run_id, first=first)
        except DamagedData as error:
            page, problem = None, run.masker.text(str(error))
    rows = [] if page is None else [row for row in page.timeline.rows if last is None or row.first <= last]
    now = dt.datetime.now(dt.UTC)
    scale = Scale(rows, now)
    seen: dict[str, int] = {}
    views = [_view(run, row, scale, seen) for row in rows]
    data = run.data(
        run.run_id if first is None else f"{run.run_id} from entry {page.first if page else first}",
        rows=views,
        page=page,
        is_window=first is not None,
        window_problem=problem,
        stripes=STRIPES,
        folds=[f"{duration(fold.seconds)}" for fold in scale.folds],
        links=_links(run, page, first, last),
    )
    return c.page("run.html", data)


def live_run(c: Context) -> Response:
    """Report changes of a run; once it is deleted, the mark is another word."""
    run_id, port = c.run_id(), c.store.port

    def mark() -> str:
        row = port.run(run_id)
        return "deleted" if row is None else mark_of(row.commit_id)

    return c.site.live.response(f"run {run_id}", mark, c.query("mark"))


# --- pages -----------------------------------------------------------------------------------------------------------


def position_in(c: Context, name: str) -> int | None:
    """A journal position in the query; InvalidInput if it is not one."""
    text = c.query(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 12 and 1 <= int(text) <= NUMBER_MAX):
        raise InvalidInput(f"{name} must be a position in the journal, not {text[:40]!r}")
    return int(text)


def _range(c: Context) -> tuple[int | None, int | None]:
    """Where the page starts, and the last position it shows; None: the newest page."""
    first, last = position_in(c, "from"), position_in(c, "to")
    if first is None and last is not None:
        return max(1, last - ENTRIES + 1), last
    return first, last


class Links(NamedTuple):
    """Addresses of other parts of the timeline; empty if there are none."""

    newest: str = ""
    all: str = ""
    earlier: str = ""
    later: str = ""


def _links(run: OpenRun, page: TimelinePage | None, first: int | None, last: int | None) -> Links:
    def url(start: int | None, end: int | None = None) -> str:
        return run.c.run_url(run.run_id, **{"from": start, "to": end})

    if page is None:
        return Links()
    later = ""
    if page.later:
        later = url(page.last + 1, last if last is not None and page.last < last else None)
    is_workflow = bool(run.rows) and run.rows[0].kind == "started"
    return Links(
        newest=url(None) if first is not None else "",
        all=url(1) if page.is_folded else "",
        earlier=url(None, page.first - 1) if page.earlier and page.first > 1 and is_workflow else "",
        later=later,
    )


# --- rows ------------------------------------------------------------------------------------------------------------


def _view(run: OpenRun, row: Row, scale: Scale, seen: dict[str, int]) -> RowView:
    masker = run.masker
    name = f"row-{row.kind}-{row.first}"
    seen[name] = seen.get(name, 0) + 1
    shown = masker.input(_result(row)) if row.kind == "started" else masker.value(_result(row))
    result, is_cut = ("", False) if shown is None else preview(shown, nodes=_RESULT_NODES, chars=_RESULT_CHARS)
    return RowView(
        id=name if seen[name] == 1 else f"{name}-{seen[name]}",
        kind=row.kind,
        depth=min(row.depth, _DEPTH_MAX),
        label=_label(row),
        state="" if row.kind == "gap" else row.state,
        took=duration(row.duration_us / 1e6) if row.duration_us is not None and row.kind in _TIMED else "",
        facts=_facts(row),
        text=(plain_line if row.kind == "ask" else one_line)(masker.text(row.text), _TEXT_CHARS),
        bar=scale.bar(row),
        position=row.first,
        started_at=row.started_at,
        result=result,
        is_cut=is_cut,
        error=_error(run, row),
        attempts=[_attempt(run, one) for one in row.attempt_rows],
        effect=_effect(row),
        links=_row_links(run, row),
        opens=run.c.run_url(run.run_id, **{"from": row.first, "to": row.last}) if row.kind in _FOLDED else "",
        child=_child_url(run, row),
    )


def _label(row: Row) -> str:
    if row.kind == "gap":
        what = f" ({display_name(row.name)})" if row.name else ""
        return f"{row.text}{what}" + (", until now" if row.ended_at is None else "")
    if row.kind in ("turn", "turns", "stages", "definition", "skipped", "rollback"):
        return row.name
    if row.kind in _NAMED_BY_KIND:
        return row.kind if row.name == row.kind or row.kind in ("pruned", "forked") else f"{row.kind} {row.name}"
    call = display_name(row.call) or row.name
    return call if call.partition("#")[0] == row.kind else f"{row.kind} {call}"


def _facts(row: Row) -> list[str]:
    found = [f"{row.attempts} attempts"] if row.attempts > 1 else []
    if row.kind in ("map", "gather"):
        found.append(f"{row.count:,} branch{'es' if row.count != 1 else ''}")
    elif row.kind == "loop" and row.count:
        here = " on this page" if row.state == "continues" else ""
        found.append(f"{row.count:,} turn{'s' if row.count != 1 else ''}{here}")
    found += [f"by {row.by}" + (f" via {row.via}" if row.via else "")] if row.by else []
    found += [f"next {row.next_node}"] if row.next_node and row.kind in ("checkpoint", "stage", "turn") else []
    return found


def _result(row: Row) -> Any:
    """The value that a row shows."""
    if row.kind in ("rollback", "diverged", "compensate"):
        return None
    if row.kind == "started" and isinstance(row.result, dict):
        return {name: part for name in ("args", "kwargs") if (part := row.result.get(name))} or None
    return row.result


def _child_url(run: OpenRun, row: Row) -> str:
    """The page of the child run that a row is about."""
    if row.kind != "child":
        return ""
    child = row.text.removesuffix(f": {error_text(row.error)}") if row.error is not None else row.text
    return run.c.run_url(child) if child and is_visible(run.c, child) else ""


def _error(run: OpenRun, row: Row) -> str:
    """The traceback of an error, or its message."""
    error = run.masker.value(row.error)
    if not isinstance(error, dict):
        return ""
    trace = error.get("trace")
    text = trace if isinstance(trace, str) and trace else f"{error.get('type', 'error')}: {error.get('message', '')}"
    text = run.masker.text(text)
    return text if len(text) <= _TRACE_CHARS else f"…{text[-_TRACE_CHARS:]}"


def _attempt(run: OpenRun, one: AttemptRow) -> str:
    error = error_text(run.masker.value(one.error))
    return one_line(run.masker.text(describe_attempt(one, error, lambda us: duration(us / 1e6))), _TEXT_CHARS)


def _effect(row: Row) -> list[tuple[str, str]]:
    effect = row.effect
    if effect is None:
        return []
    found = [("ledger", effect.state.replace("_", " ")), ("key", effect.key)]
    found += [("idempotency key", effect.idempotency_key)] if effect.idempotency_key else []
    found += [("target", effect.target)] if effect.target else []
    return [*found, ("undo", "possible" if effect.reversible else "not possible")]


def _row_links(run: OpenRun, row: Row) -> list[tuple[str, str]]:
    c, run_id = run.c, run.run_id
    found = []
    if row.first and row.kind not in ("gap", "skipped", "checkpoint"):
        found.append(("Entries", c.run_url(run_id, "journal", at=row.first, order="oldest")))
    if row.checkpoint_id:
        found.append(("State", c.run_url(run_id, "state", checkpoint=row.checkpoint_id)))
    if row.kind in _PLACES and row.call and row.state != "taken_back" and c.user.has_role("operator"):
        found.append(("Roll back to before this", c.run_url(run_id, "rollback", to=row.first - 1)))
        found.append(("Fork from before this", c.run_url(run_id, "fork", at=row.first - 1)))
    return found


PAGES: Final = [
    Page("GET", "/runs/{run_id}", show_run),
    Page("GET", "/runs/{run_id}/live", live_run),
]

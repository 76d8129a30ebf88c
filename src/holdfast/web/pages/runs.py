"""The list of runs: filters, counts, pages, and what each run waits for."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from holdfast.errors import HoldfastError
from holdfast.inspect.run_list import PAGE, RunFilter, RunLine, RunPage, read_marks, run_page
from holdfast.model.rows import RunRow as StoredRun
from holdfast.model.views import Counts, RunInfo
from holdfast.notifications.events import WORKFLOW as NOTIFY
from holdfast.store.port import RunQuery
from holdfast.web.gate_view import info_url
from holdfast.web.markdown import plain_line
from holdfast.web.mask import Masker
from holdfast.web.routes import Page
from holdfast.web.run_filter import CREATED, PERSON, FilterText, filter_text, read_filter
from holdfast.web.site import Context
from holdfast.web.tree import one_line

STATUSES: Final = ("waiting", "running", "ready", "paused", "rolling_back", "failed", "completed", "cancelled")
"""All statuses, in the order of the chips."""
OWN_COUNTED_MAX: Final = 1_000
"""With more runs that Holdfast started itself, the others are not counted."""
_TRAIL_MAX: Final = 20
_NUMBER_CHARS: Final = 18
_METADATA_SHOWN: Final = 3
_IDS_SHOWN: Final = 5


def list_runs(c: Context) -> Response:
    """Show the list."""
    c.section = "Runs"
    now = dt.datetime.now(dt.UTC)
    text = filter_text(_values(c))
    wanted, wrong = read_filter(c, text, now)
    before, trail = _number(c.query("before")), _trail(c.query("trail"))
    mark = "" if wrong else _mark(c, wanted, before)
    page = RunPage(lines=(), following=None) if wrong else run_page(c.store, wanted, before=before)
    masker = Masker(c.site.mask)
    query, own = text.query(), _own_runs(c)
    data: dict[str, Any] = {
        "title": "Runs",
        "text": text,
        "wrong": wrong,
        "chips": _chips(c, text, _shown_counts(c, text, own) if text.is_by_status else {}),
        "has_own": bool(own),
        "quick": _quick(c, text),
        "rows": [_row(c, line, masker) for line in page.lines],
        "page": page,
        "older": _older(c, query, page, before, trail),
        "newer": _newer(c, query, before, trail),
        "begun": _begun(c, text) if text.q and before is None else [],
        "workflows": _workflows(c),
        "created": CREATED,
        "mark": mark,
        "live": "" if wrong else c.url("/live/runs", mark=mark, before=before, **query),
    }
    return c.page("runs.html", data, status=400 if wrong else 200)


def live_runs(c: Context) -> Response:
    """Report changes of the list."""
    text = filter_text(_values(c))
    wanted, _ = read_filter(c, text, dt.datetime.now(dt.UTC))
    before = _number(c.query("before"))
    key = f"runs {sorted(text.query().items())} {before} {sorted(c.user.workflows)}"
    return c.site.live.response(key, lambda: _mark(c, wanted, before), c.query("mark"))


def _values(c: Context) -> dict[str, list[str]]:
    given = c.request.query_params
    return {name: given.getlist(name) for name in given}


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) <= _NUMBER_CHARS and int(text) > 0
    return int(text) if is_number else None


def _trail(text: str) -> list[int]:
    """The starts of the pages before this one; 0 is the first page."""
    return [int(part) for part in text.split(".") if part.isascii() and part.isdigit() and len(part) <= _NUMBER_CHARS]


def _mark(c: Context, wanted: RunFilter, before: int | None) -> str:
    """Changes if the shown runs, or the counts, change. Runs that only a search finds are not watched one by one."""
    counts = read_counts(c)
    shown = sorted(counts.runs.items()) if counts else ""
    parts = [*read_marks(c.store, wanted, before=before, limit=PAGE), str(shown)]
    return hashlib.blake2s("\n".join(parts).encode(), digest_size=12).hexdigest()


def read_counts(c: Context) -> Counts | None:
    """How many runs there are of each status; None if the user may not see all of them."""
    return c.store.counts() if c.user.sees_all else None


def _own_runs(c: Context) -> list[StoredRun]:
    """The newest runs that Holdfast started itself, one more than are counted."""
    return c.store.port.runs(RunQuery(workflow=NOTIFY, limit=OWN_COUNTED_MAX + 1)) if c.user.can_see(NOTIFY) else []


def _shown_counts(c: Context, text: FilterText, own: list[StoredRun]) -> dict[str, str]:
    """How many of the listed runs there are of each status, as text; empty if that is not known."""
    counts = read_counts(c)
    if counts is None or (not text.own and len(own) > OWN_COUNTED_MAX):
        return {}
    runs = Counter(counts.runs)
    if not text.own:
        runs -= Counter(row.status for row in own)
    return {status: _count_text(runs[status], is_estimated=status in counts.estimated) for status in STATUSES}


def _count_text(count: int, *, is_estimated: bool) -> str:
    """A number as people read it; an estimate is rounded to two digits: about 990,000."""
    return f"about {round(count, 2 - len(str(count))):,}" if is_estimated else f"{count:,}"


# --- links -----------------------------------------------------------------------------------------------------------


class Chip(NamedTuple):
    """A link that sets or removes a filter."""

    name: str
    label: str
    runs: str
    """How many there are; empty if that is not counted."""
    url: str
    is_on: bool


def _chips(c: Context, text: FilterText, counts: dict[str, str]) -> list[Chip]:
    found = []
    for status in STATUSES:
        is_on = status in text.status
        chosen = [one for one in text.status if one != status] if is_on else [*text.status, status]
        url = c.url("/runs", **{**text.query(), "status": chosen})
        found.append(Chip(status, status.replace("_", " "), counts.get(status, ""), url, is_on))
    return found


def _quick(c: Context, text: FilterText) -> list[Chip]:
    plain = {name: value for name, value in text.query().items() if name not in ("status", "waits", "created")}
    wanted: list[tuple[str, dict[str, Any]]] = [
        ("All", {}),
        ("Waiting for a person", {"waits": PERSON}),
        ("Failed", {"status": ["failed"]}),
        ("Running", {"status": ["running"]}),
    ]
    now = {"status": list(text.status), "waits": text.waits}
    now = {name: value for name, value in now.items() if value}
    age = {"created": text.created} if text.created else {}
    return [Chip("", label, "", c.url("/runs", **plain, **age, **more), now == more) for label, more in wanted]


def _older(c: Context, query: dict[str, Any], page: RunPage, before: int | None, trail: list[int]) -> str:
    if page.following is None:
        return ""
    further = ".".join(map(str, [*trail, before or 0][-_TRAIL_MAX:]))
    return c.url("/runs", **query, before=page.following, trail=further)


def _newer(c: Context, query: dict[str, Any], before: int | None, trail: list[int]) -> str:
    if before is None:
        return ""
    last = trail[-1] if trail else 0
    return c.url("/runs", **query, before=last or None, trail=".".join(map(str, trail[:-1])) if last else "")


def _workflows(c: Context) -> list[str]:
    """The names to choose from: published workflows that the user may see."""
    try:
        names = {one.name for one in c.store.workflows()} | set(c.app.registry.workflows)
    except HoldfastError:
        return []
    return sorted(name for name in names if c.user.can_see(name))


def _begun(c: Context, text: FilterText) -> list[str]:
    """Ids that begin with the text, however old the runs are."""
    rows = c.store.port.runs(RunQuery(prefix=text.q, limit=10 * _IDS_SHOWN))
    return [row.run_id for row in rows if c.user.can_see(row.workflow)][:_IDS_SHOWN]


# --- rows ------------------------------------------------------------------------------------------------------------


class RunRow(NamedTuple):
    """A row of the list."""

    number: int
    run_id: str
    info: RunInfo | None
    problem: str
    text: str
    gate: str
    """The address of the first open gate."""
    more: int
    until: dt.datetime | None
    metadata: list[str]


def _row(c: Context, line: RunLine, masker: Masker) -> RunRow:
    info = line.info
    if info is None:
        return RunRow(line.number, line.run_id, None, line.problem, "", "", 0, None, [])
    metadata = masker.value(info.metadata)
    shown = [f"{key}={one_line(part, 40)}" for key, part in list(metadata.items())[:_METADATA_SHOWN]]
    shown += ["…"] if len(metadata) > _METADATA_SHOWN else []
    if line.gates:
        gate = masker.gate(line.gates[0])
        link = info_url(c, gate)
        text, more = plain_line(gate.prompt, 140), len(line.gates) - 1
        return RunRow(line.number, line.run_id, info, "", text, link, more, gate.expires_at, shown)
    text = one_line(masker.text(line.text), 160)
    return RunRow(line.number, line.run_id, info, line.problem, text, "", 0, line.until, shown)


PAGES: Final = [Page("GET", "/runs", list_runs), Page("GET", "/live/runs", live_runs)]

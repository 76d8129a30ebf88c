"""The journal of a run, its log lines and its ledger, page by page; and the journal as a file."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from starlette.responses import Response, StreamingResponse

from holdfast.errors import HoldfastError
from holdfast.ids import display_name
from holdfast.inspect.calls import FACTS, KINDS, is_retry, text_of
from holdfast.inspect.journal_page import EntryLine, JournalPage, LedgerLine, journal_page, ledger_page
from holdfast.model.views import Entry, GateInfo
from holdfast.operations.read import known_run
from holdfast.state.json_preview import to_jsonable
from holdfast.web.gate_view import info_url
from holdfast.web.mask import Masker
from holdfast.web.pages.run import position_in
from holdfast.web.routes import Page
from holdfast.web.run_header import OpenRun, open_run
from holdfast.web.site import Context
from holdfast.web.tree import one_line, preview

_CHOICES: Final = tuple(
    sorted(
        {*KINDS, *FACTS, "log", "turn", "compensated"}
        | {"rolling_back", "undoing", "undone", "undo_failed", "rolled_back"}
    )
)
"""The kinds to choose from."""
_ABOUT: Final = frozenset({"kind", "call", "in", "digest", "parts", "keyed", "us", "position"})
"""Keys of an entry that are not part of its line."""
_NODES: Final = 400
_CHARS: Final = 8_000
_DOWNLOAD_BATCH: Final = 50


class EntryView(NamedTuple):
    """An entry as the page shows it."""

    position: int
    last: int
    kind: str
    call: str
    created_at: dt.datetime | None
    summary: str
    data: str
    is_cut: bool
    size: int
    is_left_out: bool
    problem: str


def show_journal(c: Context) -> Response:
    """Show entries, newest or oldest first."""
    run = open_run(c, "journal")
    newest_first = c.query("order") != "oldest"
    kind = c.query("kind").strip()[:100]
    page = journal_page(c.store, run.run_id, start=position_in(c, "at"), newest_first=newest_first, kind=kind)
    order = "" if newest_first else "oldest"
    data = run.data(
        f"Journal of {run.run_id}",
        entries=[_entry(run.masker, line) for line in page.lines],
        kind=kind,
        kinds=_CHOICES if not kind or kind in _CHOICES else (kind, *_CHOICES),
        order=order,
        page=page,
        following=_following(c, run, "journal", page, kind=kind, order=order),
        first=c.run_url(run.run_id, "journal", kind=kind, order=order) if c.query("at") else "",
        download=c.run_url(run.run_id, "journal.json"),
    )
    return c.page("run_journal.html", data)


def _following(c: Context, run: OpenRun, path: str, page: JournalPage, **query: str) -> str:
    return "" if page.following is None else c.run_url(run.run_id, path, at=page.following, **query)


def _entry(masker: Masker, line: EntryLine) -> EntryView:
    data = masker.value(line.data)
    facts = data if isinstance(data, dict) else {}
    text, is_cut = preview(data, nodes=_NODES, chars=_CHARS) if data is not None else ("", False)
    call = "/".join(part for part in (text_of(facts.get("in")), text_of(facts.get("call"))) if part)
    call = call or ("retry" if is_retry(line.kind, facts) else "")
    about = {key: part for key, part in facts.items() if key not in _ABOUT}
    return EntryView(
        position=line.position,
        last=line.last,
        kind=line.kind,
        call=call,
        created_at=line.created_at,
        summary=one_line(about, 140) if about else "",
        data=text,
        is_cut=is_cut,
        size=line.size,
        is_left_out=line.is_left_out,
        problem=masker.text(line.problem),
    )


def download_journal(c: Context) -> Response:
    """The whole journal as a JSON array, sent while it is read."""
    run_id = c.run_id()
    run = OpenRun(c, run_id, "journal", 1)
    name = "".join(sign if sign.isascii() and (sign.isalnum() or sign in "-_.") else "_" for sign in run_id)[:100]
    headers = {"Content-Disposition": f'attachment; filename="journal-{name}.json"', "Cache-Control": "no-store"}
    return StreamingResponse(_lines(c, run_id, run.masker), media_type="application/json", headers=headers)


def _lines(c: Context, run_id: str, masker: Masker) -> Iterator[str]:
    """The parts of the file. If the run disappears meanwhile, the last element says so."""
    after, begin = 0, "[\n"
    while True:
        try:
            entries = c.store.journal(run_id, after=after, limit=_DOWNLOAD_BATCH)
            known_run(c.store.access.core, run_id)
        except HoldfastError as error:
            yield begin + json.dumps({"error": masker.text(str(error))}, ensure_ascii=False) + "\n]\n"
            return
        parts = [json.dumps(_plain(masker, entry), ensure_ascii=False) for entry in entries]
        if parts:
            yield begin + ",\n".join(parts)
            begin, after = ",\n", _last_position(entries[-1])
        if len(entries) < _DOWNLOAD_BATCH:
            yield "[]\n" if begin == "[\n" else "\n]\n"
            return


def _plain(masker: Masker, entry: Entry) -> dict[str, Any]:
    data = to_jsonable(masker.value(entry.data))
    return {"position": entry.position, "kind": entry.kind, "created_at": entry.created_at.isoformat(), "data": data}


def _last_position(entry: Entry) -> int:
    """The last position that an entry stands for; a pruned entry stands for several."""
    through = entry.data.get("through") if entry.kind == "pruned" else None
    return through if type(through) is int else entry.position


# --- logs ------------------------------------------------------------------------------------------------------------


class LogView(NamedTuple):
    """A log line as the page shows it."""

    position: int
    created_at: dt.datetime | None
    level: str
    message: str
    call: str
    data: str
    problem: str


def show_logs(c: Context) -> Response:
    """Show the lines that the code of the run has logged."""
    run = open_run(c, "logs")
    text, level = c.query("q").strip()[:200], c.query("level").strip()[:50]
    wanted = text.casefold()

    def fits(line: EntryLine) -> bool:
        view = _log(run.masker, line)
        if level and view.level != level:
            return False
        return not wanted or wanted in f"{view.message}\n{view.data}".casefold()

    page = journal_page(
        c.store, run.run_id, start=position_in(c, "at"), kind="log", wanted=fits if wanted or level else None
    )
    data = run.data(
        f"Logs of {run.run_id}",
        lines=[_log(run.masker, line) for line in page.lines],
        q=text,
        level=level,
        levels=("debug", "info", "warning", "error", "critical"),
        page=page,
        following=_following(c, run, "logs", page, q=text, level=level),
        first=c.run_url(run.run_id, "logs", q=text, level=level) if c.query("at") else "",
    )
    return c.page("run_logs.html", data)


def _log(masker: Masker, line: EntryLine) -> LogView:
    data = masker.value(line.data)
    facts = data if isinstance(data, dict) else {}
    more = facts.get("data")
    return LogView(
        position=line.position,
        created_at=line.created_at,
        level=text_of(facts.get("level")) or "info",
        message=masker.text(text_of(facts.get("message"))),
        call=text_of(facts.get("in")),
        data=preview(more, nodes=100, chars=2_000)[0] if more else "",
        problem=masker.text(line.problem) or ("too large to show" if line.is_left_out else ""),
    )


# --- the ledger ------------------------------------------------------------------------------------------------------


class EffectView(NamedTuple):
    """A line of the ledger as the page shows it."""

    number: int
    key: str
    name: str
    state: str
    facts: list[tuple[str, str]]
    arguments: str
    result: str
    created_at: dt.datetime | None
    updated_at: dt.datetime | None
    gate: str
    problem: str


def show_ledger(c: Context) -> Response:
    """Show the effects, newest first."""
    run = open_run(c, "ledger")
    page = ledger_page(c.store, run.run_id, start=position_in(c, "at"))
    gates = () if run.page is None else run.page.timeline.gates
    asked = {_effect_key(gate): gate for gate in gates if gate.purpose == "in_doubt"}
    views = [_effect(run, line, asked.get(line.key)) for line in page.lines]
    following = "" if page.following is None else c.run_url(run.run_id, "ledger", at=page.following)
    first = c.run_url(run.run_id, "ledger") if c.query("at") else ""
    data = run.data(f"Ledger of {run.run_id}", effects=views, page=page, following=following, first=first)
    return c.page("run_ledger.html", data)


def _effect_key(gate: GateInfo) -> str:
    return text_of(gate.show.get("key")) if isinstance(gate.show, dict) else ""


def _effect(run: OpenRun, line: LedgerLine, gate: GateInfo | None) -> EffectView:
    effect, masker = line.effect, run.masker
    if effect is None:
        return EffectView(line.number, line.key, line.key, "", [], "", "", None, None, "", masker.text(line.problem))
    facts = [("tool", effect.tool)] if effect.tool else []
    facts += [("target", masker.text(effect.target))] if effect.target else []
    facts += [("key", line.key)]
    facts += [("idempotency key", effect.idempotency_key)] if effect.idempotency_key else []
    facts += [("undo", line.undo or "possible")] if effect.reversible else [("undo", "not possible")]
    given: dict[str, Any] = {"args": line.arguments} if line.arguments else {}
    given |= {"kwargs": line.keywords} if line.keywords else {}
    return EffectView(
        number=line.number,
        key=line.key,
        name=display_name(line.key),
        state=effect.state,
        facts=facts,
        arguments=preview(masker.value(given), nodes=200, chars=4_000)[0] if given else "",
        result="" if effect.result is None else preview(masker.value(effect.result), nodes=200, chars=4_000)[0],
        created_at=effect.created_at,
        updated_at=effect.updated_at,
        gate="" if gate is None else info_url(run.c, gate),
        problem="",
    )


PAGES: Final = [
    Page("GET", "/runs/{run_id}/journal", show_journal),
    Page("GET", "/runs/{run_id}/journal.json", download_journal),
    Page("GET", "/runs/{run_id}/logs", show_logs),
    Page("GET", "/runs/{run_id}/ledger", show_ledger),
]

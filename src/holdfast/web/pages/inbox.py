"""The inbox: the open gates of all runs, longest waiting first."""

from __future__ import annotations

import json
from typing import Final

from starlette.responses import Response

from holdfast.runtime.answers import place_of
from holdfast.web.gate_list import COUNT_MAX, Filter, GateList, GatePage
from holdfast.web.gate_view import GateView, typed_gates
from holdfast.web.routes import Page
from holdfast.web.site import Context

SCAN_AGE_S: Final = 1.0
"""All live views with a filter share one reading of the open gates in this time."""


def inbox(c: Context) -> Response:
    """List open gates."""
    c.section = "Inbox"
    gates, choice, after = GateList.of(c.site), _filter(c), c.query("after")
    page = gates.page(c.user, choice, after)
    gone = gates.shown.note(c.user, c.here, page.entries)
    entries = list(page.entries)
    if c.request.headers.get("HX-Request") == "true":  # a live update: nothing that a user types into disappears
        listed = {(entry.run_id, entry.gate) for entry in entries}
        kept = [gates.find(*place) for place in dict.fromkeys([*gone, *typed_gates(c)]) if place not in listed]
        entries += [entry for entry in kept if entry is not None and c.user.can_see(entry.workflow)]
        entries.sort(key=lambda entry: entry.place)
    views = [GateView(c, entry) for entry in entries]
    return c.page(
        "inbox.html",
        {
            "title": "Inbox",
            "mark": page.mark,
            "live": c.url("/live/inbox", mark=page.mark, after=after, **choice.query),
            "gates": views,
            "interrupts": [GateView(c, entry) for entry in page.interrupts],
            "choice": choice,
            "is_filtered": choice != Filter(),
            "after": after,
            "next": None if page.next is None else c.url("/", after=page.next, **choice.query),
            "first": c.url("/", **choice.query) if after else None,
            "summary": _summary(page, choice),
            "can_batch": any(view.can_batch for view in views),
            "workflows": sorted({info.name for info in c.store.workflows() if c.user.can_see(info.name)}),
        },
    )


def _filter(c: Context) -> Filter:
    return Filter.from_query(c.request.query_params)


def _summary(page: GatePage, choice: Filter) -> str:
    """How many gates there are, in words."""
    total = f"{page.total:,}" if page.total >= 0 else f"more than {COUNT_MAX:,}"
    if choice == Filter():
        return f"{total} open {'gate' if page.total == 1 else 'gates'}"
    fitting = f"{page.fitting:,}" if page.fitting <= COUNT_MAX else f"more than {COUNT_MAX:,}"
    return f"{fitting} of {total} open {'gate' if page.total == 1 else 'gates'}"


def live(c: Context) -> Response:
    """Report changes of the list."""
    gates, choice, after, user = GateList.of(c.site), _filter(c), c.query("after"), c.user
    place_of(after or None)  # refuses an invalid cursor now
    identity = [user.name, user.groups] if choice.mine else []
    key = json.dumps(["inbox", choice, after, user.workflows, identity])

    def mark() -> str:
        return gates.page(user, choice, after, max_age_s=SCAN_AGE_S).mark

    return c.site.live.response(key, mark, c.query("mark"))


PAGES = [Page("GET", "/", inbox), Page("GET", "/live/inbox", live)]

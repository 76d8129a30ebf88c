"""The filter of the list of runs: how it is written in an address or a form, and the runs that fit it."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.errors import HoldfastError, InvalidInput
from holdfast.ids import check_id
from holdfast.inspect.run_list import PAGE, RunFilter, run_page
from holdfast.model.rows import STATUSES
from holdfast.notifications.events import WORKFLOW as NOTIFY
from holdfast.operations.views import metadata_pairs
from holdfast.web.mask import Masker, covers_masked

if TYPE_CHECKING:
    from holdfast.web.site import Context, Values

PERSON: Final = "person"
CREATED: Final = {"hour": "last hour", "today": "today"}
NAMES: Final = ("status", "workflow", "meta", "prefix", "q", "created", "since", "until", "waits", "own")
"""The names of the filter's values in an address."""
_TEXT_MAX: Final = 500
_METAS_MAX: Final = 20
_WILDCARDS: Final = frozenset("*?[")


class FilterText(msgspec.Struct, frozen=True, kw_only=True):
    """A filter as it is written."""

    status: tuple[str, ...] = ()
    workflow: str = ""
    meta: tuple[str, ...] = ()
    """`key=value`, where the value is JSON or else text."""
    prefix: str = ""
    q: str = ""
    created: str = ""
    """`today` or `hour`."""
    since: str = ""
    until: str = ""
    waits: str = ""
    """`person`: only runs with an open gate."""
    own: str = ""
    """`1`: also the runs that Holdfast starts itself, to send notifications."""

    def query(self) -> dict[str, Any]:
        """The values of an address."""
        found = {name: getattr(self, name) for name in NAMES}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items() if value}

    @property
    def is_empty(self) -> bool:
        """Whether it lists all runs."""
        return not self.query()

    @property
    def is_by_status(self) -> bool:
        """Whether it is about nothing but the status."""
        return not {name for name in self.query() if name not in ("status", "own")}


def filter_text(values: Values) -> FilterText:
    """The filter in the values of a query or a form. Unknown statuses are ignored."""

    def one(name: str) -> str:
        return next((value.strip()[:_TEXT_MAX] for value in reversed(values.get(name, ())) if value.strip()), "")

    metas = [meta.strip()[:_TEXT_MAX] for meta in values.get("meta", ()) if meta.strip()]
    return FilterText(
        status=tuple(status for status in dict.fromkeys(values.get("status", ())) if status in STATUSES),
        workflow=one("workflow"),
        meta=tuple(metas[:_METAS_MAX]),
        prefix=one("prefix"),
        q=one("q"),
        created=one("created") if one("created") in CREATED else "",
        since=one("since"),
        until=one("until"),
        waits=PERSON if one("waits") == PERSON else "",
        own="1" if one("own") == "1" else "",
    )


def read_filter(c: Context, text: FilterText, now: dt.datetime) -> tuple[RunFilter, dict[str, str]]:
    """The filter, and what is wrong with it, by the names of its fields."""
    wrong: dict[str, str] = {}
    masker = Masker(c.site.mask)
    times: dict[str, dt.datetime | None] = {}
    for name in ("since", "until"):
        try:
            times[name] = _moment(getattr(text, name))
        except (ValueError, OverflowError):
            wrong[name] = "Write a time such as 2026-11-16 09:00, in UTC."
    if text.created:
        quick = now - dt.timedelta(hours=1) if text.created == "hour" else now.replace(hour=0, minute=0, second=0)
        given = times.get("since")
        times["since"] = max(quick, given) if given is not None else quick
    metadata: dict[str, Any] = {}
    try:
        metadata = _metadata(text.meta, c.site.mask)
    except HoldfastError as error:
        wrong["meta"] = _sentence(error)
    for name in ("workflow", "prefix"):
        try:
            check_id(name, getattr(text, name)) if getattr(text, name) else None
        except InvalidInput as error:
            wrong[name] = _sentence(error)
    patterns = c.user.workflows
    found = RunFilter(
        statuses=("waiting",) if text.waits and not text.status else text.status,
        workflow=text.workflow,
        metadata=metadata,
        prefix=text.prefix,
        text=text.q,
        since=times.get("since"),
        until=times.get("until"),
        can_see=None if c.user.sees_all else c.user.can_see,
        names=() if any(_WILDCARDS & set(pattern) for pattern in patterns) else tuple(dict.fromkeys(patterns)),
        has_gates=text.waits == PERSON,
        hidden=() if text.own or text.workflow == NOTIFY else (NOTIFY,),
        shown=masker.value,
    )
    return found, wrong


def _sentence(error: HoldfastError) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def _moment(text: str) -> dt.datetime | None:
    if not text:
        return None
    found = dt.datetime.fromisoformat(text)
    return found.replace(tzinfo=dt.UTC) if found.tzinfo is None else found.astimezone(dt.UTC)


def _metadata(metas: Sequence[str], masked: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for meta in metas:
        key, sign, value = meta.partition("=")
        if not sign or not key:
            raise InvalidInput(f"{meta!r} has no value; write key=value")
        try:
            found[key] = json.loads(value)
        except (ValueError, RecursionError):
            found[key] = value
    check_metadata(found, masked)
    metadata_pairs(found)
    return found


def check_metadata(metadata: Mapping[str, Any], masked: tuple[str, ...]) -> None:
    """Refuse a filter by masked metadata: whether runs fit it would show what their values are."""
    for key, value in metadata.items():
        if covers_masked(value, (key,), masked):
            raise InvalidInput(f"the metadata {key!r} is masked, or a part of it, so runs cannot be found by it")


def matching_runs(c: Context, values: Mapping[str, list[str]], limit: int) -> tuple[list[str], bool]:
    """The newest runs that fit a filter, and whether there may be more. Raises InvalidInput for a wrong filter.

    Example:
        run_ids, more = matching_runs(c, c.form, 500)
    """
    wanted, wrong = read_filter(c, filter_text(dict(values)), dt.datetime.now(dt.UTC))
    if wrong:
        raise InvalidInput(next(iter(wrong.values())))
    found: list[str] = []
    before: int | None = None
    while True:
        page = run_page(c.store, wanted, before=before, limit=min(PAGE, limit - len(found)))
        found += [line.run_id for line in page.lines if line.info is not None]
        before = page.following
        if before is None or page.is_cut or len(found) >= limit:
            return found, before is not None

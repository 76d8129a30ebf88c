"""Templates, and the filters they use. Everything is escaped unless it was made here as markup."""

from __future__ import annotations

import datetime as dt
import functools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import jinja2
from markupsafe import Markup

from holdfast import __version__
from holdfast.state.json_preview import to_jsonable

if TYPE_CHECKING:
    from holdfast.web.site import Context

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def duration(seconds: float | None) -> str:
    """A duration in at most two units: `2 h 5 min`, `1.2 s`, `35 ms`."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for at, (size, unit) in enumerate(_UNITS):
        if whole >= size:
            rest = _UNITS[at + 1 : at + 2]
            parts = [f"{whole // size} {unit}"]
            if rest and whole % size >= rest[0][0]:
                parts.append(f"{whole % size // rest[0][0]} {rest[0][1]}")
            return " ".join(parts)
    return "0 s"


def ago(moment: dt.datetime | None, now: dt.datetime | None = None) -> Markup:
    """A moment as `4 s ago` or `in 3 min`, with the exact time for machines and as a title."""
    if moment is None:
        return Markup()
    seconds = ((now or dt.datetime.now(dt.UTC)) - moment).total_seconds()
    text = f"in {duration(-seconds)}" if seconds < 0 else "now" if seconds < 1 else f"{duration(seconds)} ago"
    return Markup('<time datetime="{}" title="{:%Y-%m-%d %H:%M:%S} UTC">{}</time>').format(
        moment.isoformat(timespec="milliseconds"), moment.astimezone(dt.UTC), text
    )


def as_json(value: object, indent: int | None = 2) -> str:
    """A value of the user as JSON text."""
    return json.dumps(to_jsonable(value), ensure_ascii=False, indent=indent)


class Renderer:
    """Renders templates."""

    def __init__(self) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.PackageLoader("holdfast.web"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {"ago": ago, "duration": duration, "json": as_json}

    def add_filter(self, name: str, function: Any) -> None:
        """Add a filter for templates."""
        self._environment.filters[name] = function

    def render(self, template: str, context: Context, data: Mapping[str, Any]) -> str:
        """Render a template for a request. Templates see `context` as `c`."""
        found = self._environment.get_template(template)
        return found.render({"c": context, "version": __version__, **data})


@functools.cache
def renderer() -> Renderer:
    """The renderer of this process; templates are compiled once."""
    return Renderer()

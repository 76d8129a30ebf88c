"""Values of the user as trees of HTML, and as text of limited length.

Whatever the size of a value, a page shows a limited part of it: the first items of a container, the beginning of a
text. Links lead to the rest. Values are masked before they get here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from markupsafe import Markup, escape

from holdfast.state.json_preview import to_jsonable

Path = tuple[str | int, ...]

ITEMS: Final = 50
"""How many items of a container a page shows."""
CHARS: Final = 2_000
"""How much of a text a tree shows."""
PAGE_CHARS: Final = 20_000
"""How much of a text its own page shows."""
_NODES_MAX: Final = 1_000
_LEVELS_MAX: Final = 30
_OPEN_LEVELS: Final = 2
_MATCHES_MAX: Final = 200
_VISITED_MAX: Final = 2_000_000

Link = Callable[..., str]
"""The address of a part of the value: `link(path)`, `link(path, at=50)`."""


def shorten(value: object, *, nodes: int = 200, chars: int = CHARS) -> tuple[Any, bool]:
    """A value as JSON data of limited size, and whether something was left out."""
    budget = _Budget(nodes, chars)
    return budget.shorten(to_shallow(value), 0), budget.is_cut


def preview(value: object, *, nodes: int = 200, chars: int = CHARS) -> tuple[str, bool]:
    """A value as JSON text of limited length, and whether something was left out."""
    shown, is_cut = shorten(value, nodes=nodes, chars=chars)
    return json.dumps(shown, ensure_ascii=False, indent=2), is_cut


def one_line(value: object, chars: int = 120) -> str:
    """A value as one line of JSON; a text as it is."""
    shown, _ = shorten(value, nodes=30, chars=chars)
    text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= chars else f"{text[: chars - 1]}…"


def to_shallow(value: object) -> Any:
    """A value as JSON can express it, of which only the outermost container is converted."""
    if isinstance(value, (dict, list)):
        return value
    if isinstance(value, tuple):
        return {"$tuple": list(value)}
    return to_jsonable(value)


class _Budget:
    """Counts what is left of the size of a text."""

    def __init__(self, nodes: int, chars: int) -> None:
        self._nodes = nodes
        self._chars = chars
        self.is_cut = False

    def shorten(self, value: Any, level: int) -> Any:
        self._nodes -= 1
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            items = list(_head(value.items(), self._room(len(value), level)))
            shown = {self._text(str(key)): self.shorten(to_shallow(part), level + 1) for key, part in items}
            return self._more(shown, len(value) - len(items), "key")
        if isinstance(value, list):
            count = self._room(len(value), level)
            parts = [self.shorten(to_shallow(part), level + 1) for part in value[:count]]
            left = len(value) - count
            return [*parts, f"… {left:,} more"] if left else parts
        return value

    def _room(self, count: int, level: int) -> int:
        room = 0 if level >= _LEVELS_MAX else max(0, min(count, self._nodes))
        self.is_cut = self.is_cut or room < count
        return room

    def _text(self, text: str) -> str:
        room = max(20, self._chars)
        self._chars -= min(len(text), room)
        if len(text) <= room:
            return text
        self.is_cut = True
        return f"{text[:room]}… {len(text) - room:,} more characters"

    @staticmethod
    def _more(shown: dict[str, Any], left: int, what: str) -> dict[str, Any]:
        return {**shown, "…": f"{left:,} more {what}{'s' if left > 1 else ''}"} if left else shown


def _head(items: Any, count: int) -> Iterator[Any]:
    for _, item in zip(range(count), items, strict=False):
        yield item


# --- paths -----------------------------------------------------------------------------------------------------------


def pointer(path: Sequence[str | int]) -> str:
    """A path as a JSON Pointer."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def find(value: object, text: str) -> tuple[Path, Any]:
    """The part of a value at a JSON Pointer, with its path. KeyError if there is none."""
    path: list[str | int] = []
    part = to_shallow(value)
    if text and not text.startswith("/"):
        raise KeyError(text)
    for piece in text.split("/")[1:]:
        key = piece.replace("~1", "/").replace("~0", "~")
        if isinstance(part, dict) and key in part:
            path.append(key)
            part = to_shallow(part[key])
        elif isinstance(part, list) and key.isascii() and key.isdigit() and len(key) < 10 and int(key) < len(part):
            path.append(int(key))
            part = to_shallow(part[int(key)])
        else:
            raise KeyError(text)
    return tuple(path), part


class Found(NamedTuple):
    """The places of a text in a value."""

    paths: list[Path]
    is_cut: bool
    """Whether there may be more."""


def search(value: object, text: str) -> Found:
    """The paths whose key or value contains a text; upper and lower case are the same."""
    wanted = text.casefold()
    found: list[Path] = []
    stack: list[tuple[Path, Any]] = [((), to_shallow(value))]
    visited = 0
    while stack:
        path, part = stack.pop()
        visited += 1
        if len(found) >= _MATCHES_MAX or visited > _VISITED_MAX:
            return Found(sorted(found, key=_order), is_cut=True)
        if path and isinstance(path[-1], str) and wanted in path[-1].casefold():
            found.append(path)
        elif not isinstance(part, (dict, list)) and wanted in _scalar(part).casefold():
            found.append(path)
        stack += [((*path, key), to_shallow(inner)) for key, inner in reversed(list(_items(part)))]
    return Found(found, is_cut=False)


def _order(path: Path) -> tuple[str, ...]:
    return tuple(f"{part:012}" if isinstance(part, int) else part for part in path)


def _items(part: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(part, dict):
        return iter(part.items())
    return iter(enumerate(part)) if isinstance(part, list) else iter(())


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# --- HTML ------------------------------------------------------------------------------------------------------------


class Tree:
    """Renders one value. `only`: the paths to show; None shows everything."""

    def __init__(self, link: Link, only: Sequence[Path] | None = None) -> None:
        self._link = link
        self._nodes = _NODES_MAX
        self._only = set(only) if only is not None else None
        self._around = {path[:length] for path in only or () for length in range(len(path))}

    def render(self, value: object, path: Path = (), at: int = 0) -> Markup:
        """The tree of a value; `at`: the first item, or the first character of a text."""
        part = to_shallow(value)
        if isinstance(part, (dict, list)):
            return self._list(part, path, 0, at)
        if isinstance(part, str):
            return self._page_of_text(part, path, at)
        return Markup('<p class="mono">{}</p>').format(_scalar(part))

    def _list(self, part: Any, path: Path, level: int, at: int = 0) -> Markup:
        if not part:
            return Markup('<p class="quiet">{}</p>').format("no keys" if isinstance(part, dict) else "no items")
        rows, shown, left = [], 0, len(part) - at
        for number, (key, inner) in enumerate(_items(part)):
            if number < at:
                continue
            inside = (*path, key)
            if self._only is not None and not self._is_shown(inside):
                left -= 1
                continue
            if shown == ITEMS or self._nodes <= 0:
                break
            rows.append(self._item(key, to_shallow(inner), inside, level))
            shown, left = shown + 1, left - 1
        if left > 0 and self._only is None:
            more = Markup('<li><a href="{}">{:,} more</a></li>').format(self._link(path, at=at + shown), left)
            rows.append(more)
        return Markup('<ul class="tree">{}</ul>').format(Markup("").join(rows))

    def _is_shown(self, path: Path) -> bool:
        assert self._only is not None
        inside = any(path[:length] in self._only for length in range(1, len(path) + 1))
        return inside or path in self._around

    def _item(self, key: str | int, part: Any, path: Path, level: int) -> Markup:
        self._nodes -= 1
        name = Markup('<span class="key">{}</span>').format(key if isinstance(key, str) else f"[{key}]")
        if self._only is not None and path in self._only:
            name = Markup("<mark>{}</mark>").format(name)
        if isinstance(part, (dict, list)) and part:
            return self._container(name, part, path, level)
        return Markup("<li>{}: {}</li>").format(name, self._value(part, path))

    def _container(self, name: Markup, part: Any, path: Path, level: int) -> Markup:
        size = Markup('<span class="quiet">{:,} {}</span>').format(
            len(part), ("key" if isinstance(part, dict) else "item") + ("s" if len(part) != 1 else "")
        )
        if level + 1 >= _LEVELS_MAX or self._nodes <= 0:
            return Markup('<li>{}: <a href="{}">{}</a></li>').format(name, self._link(path), size)
        is_open = self._only is not None or (level < _OPEN_LEVELS and len(part) <= ITEMS)
        opening = Markup("<details{}>").format(Markup(" open") if is_open else "")
        inner = self._list(part, path, level + 1)
        summary = Markup("<summary>{} {}</summary>").format(name, size)
        return Markup("<li>{}{}{}</details></li>").format(opening, summary, inner)

    def _value(self, part: Any, path: Path) -> Markup:
        if isinstance(part, (dict, list)):
            return Markup('<span class="quiet">{}</span>').format("{}" if isinstance(part, dict) else "[]")
        if not isinstance(part, str):
            return Markup('<span class="scalar">{}</span>').format(_scalar(part))
        if len(part) <= CHARS:
            return Markup('<span class="text">{}</span>').format(part)
        rest = Markup('<a href="{}">{:,} more characters</a>').format(self._link(path), len(part) - CHARS)
        return Markup('<span class="text">{}</span>… {}').format(part[:CHARS], rest)

    def _page_of_text(self, text: str, path: Path, at: int) -> Markup:
        shown = Markup("<pre>{}</pre>").format(text[at : at + PAGE_CHARS])
        left = len(text) - at - PAGE_CHARS
        if left <= 0:
            return shown
        link = self._link(path, at=at + PAGE_CHARS)
        return shown + Markup('<p><a href="{}">{:,} more characters</a></p>').format(link, left)


def crumbs(path: Path, link: Link) -> Markup:
    """Links to the containers around a part of a value."""
    parts = [Markup('<a href="{}">state</a>').format(link(()))]
    for length in range(1, len(path) + 1):
        key = path[length - 1]
        name = key if isinstance(key, str) else f"[{key}]"
        parts.append(Markup('<a href="{}">{}</a>').format(link(path[:length]), name))
    return Markup(" / ").join(map(escape, parts))

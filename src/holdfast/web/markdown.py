"""Markdown as HTML that is safe to show: a small subset, in time linear in the length of the text.

Text of users never becomes markup: everything is escaped, tags and attributes are made here alone. Links lead to http,
https and mailto addresses, all others stay text, and images are shown as links. `markdown_inline` has what is inside a
paragraph.

Supported are paragraphs, line breaks, headings, bold, italic, code, fenced code, lists, quotes, tables and rules.
Blocks are nested at most DEPTH_MAX deep; what is nested deeper is shown as text.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from markupsafe import Markup

from holdfast.web.markdown_inline import inline

CHARS_MAX: Final = 100_000
"""What is rendered of one text."""
DEPTH_MAX: Final = 6
"""How deep quotes and lists are nested. Each level reads its lines once."""
COLUMNS_MAX: Final = 12
"""Wider tables are shown as text: each row has as many cells as the header."""

_FENCE: Final = re.compile(r" {0,3}(`{3,200}|~{3,200})")
_HEADING: Final = re.compile(r" {0,3}(#{1,6})(?:[ \t]|$)")
_ITEM: Final = re.compile(r"( {0,3})([-*+]|[0-9]{1,9}[.)])( {1,4}|$)")
_QUOTE: Final = re.compile(r" {0,3}> ?")
_RULE_SIGNS: Final = frozenset("-*_")
_CELL: Final = re.compile(r"\\[\\|]|\|")
_LINE_END: Final = re.compile(r"\r\n?|\n")


class Rendered(NamedTuple):
    """A rendered text."""

    html: Markup
    is_cut: bool
    """Whether its end is left out."""


def markdown(text: str, *, heading: int = 4) -> Markup:
    """A text as HTML. Its headings begin with this level and skip none.

    Example:
        markdown("Refund **30 EUR** to ana?")
    """
    return render(text, heading=heading).html


def render(text: str, *, heading: int = 4, chars_max: int = CHARS_MAX) -> Rendered:
    """A text as HTML, up to a number of characters; what is left out is said."""
    left_out = len(text) - chars_max
    lines = _LINE_END.split(text if left_out <= 0 else text[:chars_max])
    html = _Blocks(heading).render(lines, 0)
    if left_out > 0:
        html += Markup('<p class="quiet">{} more characters are not shown here.</p>').format(f"{left_out:,}")
    return Rendered(html, left_out > 0)


class _Blocks:
    """Renders the blocks of one text."""

    def __init__(self, heading: int) -> None:
        self._top = heading
        self._levels: list[int] = []
        """The levels of the headings around the present line."""

    def render(self, lines: list[str], depth: int, *, tight: bool = False) -> Markup:
        """The blocks in these lines. In a tight list a paragraph has no tags of its own."""
        parts: list[Markup] = []
        at = 0
        while at < len(lines):
            line = lines[at]
            if not line.strip():
                at += 1
                continue
            if fence := _FENCE.match(line):
                at = self._fence(lines, at, fence, parts)
            elif head := _HEADING.match(line):
                parts.append(self._heading(len(head[1]), line[head.end() :]))
                at += 1
            elif _is_rule(line):
                parts.append(Markup("<hr>"))
                at += 1
            elif depth < DEPTH_MAX and _QUOTE.match(line):
                at = self._quote(lines, at, depth, parts)
            elif depth < DEPTH_MAX and _ITEM.match(line):
                at = self._list(lines, at, depth, parts)
            elif columns := _table_columns(lines, at):
                at = _table(lines, at, columns, parts)
            else:
                at = self._paragraph(lines, at, depth, parts, tight=tight)
        return Markup("\n").join(parts)

    def _fence(self, lines: list[str], at: int, fence: re.Match[str], parts: list[Markup]) -> int:
        end = at + 1
        while end < len(lines) and not _closes(lines[end], fence[1]):
            end += 1
        code, label = "\n".join(lines[at + 1 : end]), lines[at][fence.end() :].strip()
        if label:  # usually the language; nothing that a prompt contains is hidden
            parts.append(Markup('<p class="quiet">{}</p>').format(label))
        parts.append(Markup("<pre><code>{}\n</code></pre>").format(code))
        return end + 1

    def _heading(self, level: int, text: str) -> Markup:
        while self._levels and self._levels[-1] >= level:
            self._levels.pop()
        self._levels.append(level)
        number = min(6, self._top + len(self._levels) - 1)
        return Markup("<h{0}>{1}</h{0}>").format(number, inline(text.strip().rstrip("#").strip()))

    def _quote(self, lines: list[str], at: int, depth: int, parts: list[Markup]) -> int:
        inside: list[str] = []
        while at < len(lines) and (sign := _QUOTE.match(lines[at])):
            inside.append(lines[at][sign.end() :])
            at += 1
        parts.append(Markup("<blockquote>{}</blockquote>").format(self.render(inside, depth + 1)))
        return at

    def _list(self, lines: list[str], at: int, depth: int, parts: list[Markup]) -> int:
        """A list: an item has the lines indented by two more, and the lines that continue its paragraph."""
        first = _ITEM.match(lines[at])
        assert first is not None
        is_numbered = first[2][0].isdigit()
        items: list[list[str]] = []
        is_loose, indent = False, 0
        while at < len(lines):
            line = lines[at].expandtabs(4) if lines[at][:1] in (" ", "\t") else lines[at]
            is_inside = bool(items) and line[:indent].isspace()
            item = None if is_inside else _ITEM.match(line)
            if item and item[2][0].isdigit() == is_numbered and not _is_rule(line):
                is_loose = is_loose or (bool(items) and not items[-1][-1].strip())
                indent = len(item[1]) + 2
                items.append([line[item.end() :]])
            elif is_inside or not line.strip():
                items[-1].append(line[indent:] if is_inside else "")
            elif items[-1][-1].strip() and not self._begins_block(line, depth):
                items[-1].append(line)
            else:
                break
            at += 1
        start = Markup(' start="{}"').format(int(first[2][:-1])) if is_numbered and first[2][:-1] != "1" else Markup()
        tag = "ol" if is_numbered else "ul"
        inner = Markup("\n").join(
            Markup("<li>{}</li>").format(self.render(item, depth + 1, tight=not is_loose)) for item in items
        )
        parts.append(Markup("<{0}{1}>\n{2}\n</{0}>").format(tag, start, inner))
        return at

    def _paragraph(self, lines: list[str], at: int, depth: int, parts: list[Markup], *, tight: bool) -> int:
        inside = [lines[at].strip()]
        at += 1
        while at < len(lines) and lines[at].strip() and not self._begins_block(lines[at], depth):
            inside.append(lines[at].strip())
            at += 1
        text = inline("\n".join(inside))
        parts.append(text if tight else Markup("<p>{}</p>").format(text))
        return at

    def _begins_block(self, line: str, depth: int) -> bool:
        """Whether a line ends the paragraph before it."""
        if _FENCE.match(line) or _HEADING.match(line) or _is_rule(line):
            return True
        return depth < DEPTH_MAX and bool(_QUOTE.match(line) or _ITEM.match(line))


def _closes(line: str, fence: str) -> bool:
    text = line.strip()
    return len(text) >= len(fence) and not text.strip(fence[0])


def _is_rule(line: str) -> bool:
    text = line.strip()
    return text[:1] in _RULE_SIGNS and len(text) > 2 and not text.strip(text[0] + " \t") and text.count(text[0]) > 2


# --- tables ----------------------------------------------------------------------------------------------------------


def _cells(line: str) -> list[str]:
    """The cells of a row; `\\|` is a bar that divides none."""
    text = line.strip()
    cells, begin, at = [], 0, 0
    for sign in _CELL.finditer(text):
        if sign[0] == "|":
            cells.append(text[begin : sign.start()])
            begin = at = sign.end()
    cells.append(text[begin:])
    if cells and not cells[0].strip():
        cells = cells[1:]
    if cells and at and not cells[-1].strip():
        cells = cells[:-1]
    return [cell.strip().replace("\\|", "|") for cell in cells]


def _table_columns(lines: list[str], at: int) -> int:
    """How many columns the table has that begins at this line; 0 if none begins."""
    if at + 1 >= len(lines) or "|" not in lines[at] or "-" not in lines[at + 1]:
        return 0
    if lines[at + 1].strip().strip("|:- \t"):
        return 0
    rule, head = _cells(lines[at + 1]), _cells(lines[at])
    fits = len(rule) == len(head) <= COLUMNS_MAX and all(cell.strip(":").strip("-") == "" and cell for cell in rule)
    return len(head) if fits else 0


def _table(lines: list[str], at: int, columns: int, parts: list[Markup]) -> int:
    head = Markup().join(Markup('<th scope="col">{}</th>').format(inline(cell)) for cell in _cells(lines[at]))
    at += 2
    rows: list[Markup] = []
    while at < len(lines) and "|" in lines[at]:
        cells = (_cells(lines[at]) + [""] * columns)[:columns]
        rows.append(Markup("<tr>{}</tr>").format(Markup().join(Markup("<td>{}</td>").format(inline(c)) for c in cells)))
        at += 1
    body = Markup("<tbody>{}</tbody>").format(Markup("\n").join(rows)) if rows else Markup()
    parts.append(Markup("<table><thead><tr>{}</tr></thead>{}</table>").format(head, body))
    return at


def plain_line(text: str, chars_max: int = 120) -> str:
    """The first line of a text without the signs of Markdown, for titles."""
    line = next((line for line in _LINE_END.split(text[: chars_max * 4]) if line.strip()), "")
    words = inline(line.strip().lstrip("#> ")).striptags()
    return words if len(words) <= chars_max else f"{words[: chars_max - 1]}…"

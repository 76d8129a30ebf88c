"""The inside of a paragraph of Markdown: code, links, bold, italic and line breaks.

Signs are found by one pass of one pattern, and each decision about a sign looks at most at a bounded number of
characters, or at what a stack or an index has; so hostile text costs no more than other text of its length.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from markupsafe import Markup, escape

_SIGN: Final = re.compile(
    r"""
      (?P<escape>\\[!-/:-@\[-`{-~])
    | (?P<code>`+)
    | (?P<mark>\*+|_+)
    | (?P<image>!\[)
    | (?P<open>\[)
    | (?P<close>\])
    | <(?P<auto>(?:https?://|mailto:)[^\s<>`]{1,2000})>
    | (?P<url>https?://[^\s<>"'`()\[\]\\*]{1,2000})
    | (?P<line>\n)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_TARGET: Final = re.compile(
    r"""\( [ ]{0,9}+ (?: <(?P<quoted>[^<>\n`]{0,2000})> | (?P<plain>[^\s()<>`"]{0,2000}+(?:\([^\s()<>`"]{0,200}+\))?+) )
        (?: [ ]{1,9}+ "[^"\n`]{0,500}" )?+ [ ]{0,9}+ \)""",
    re.VERBOSE,
)
_CODE: Final = re.compile("`+")
_ADDRESS: Final = re.compile(r"(?:https?://|mailto:)[^\x00-\x20\x7f<>\"'\\]+", re.IGNORECASE)
_LINK: Final = Markup('<a href="{}" rel="noopener noreferrer nofollow" target="_blank">')
_TRAILING: Final = ".,;:!?*_~"
_TAGS: Final = {1: (Markup("<em>"), Markup("</em>")), 2: (Markup("<strong>"), Markup("</strong>"))}
_MARKS_MAX: Final = 3
"""Longer runs of `*` and `_` are text."""


class _Mark:
    """A run of `*` or `_` that may open emphasis, and what became of it."""

    __slots__ = ("left", "sign", "tags")

    def __init__(self, sign: str, left: int) -> None:
        self.sign = sign
        self.left = left
        self.tags = Markup()

    def markup(self) -> Markup:
        return escape(self.sign * self.left) + self.tags


class _Bracket:
    """A `[` that may open the text of a link."""

    __slots__ = ("marks", "open", "part")

    def __init__(self, part: int, marks: int, open_marks: dict[str, int]) -> None:
        self.part = part
        self.marks = marks
        """How many marks were open before it; emphasis does not cross it."""
        self.open = open_marks


def inline(text: str) -> Markup:
    """Text with the signs of Markdown as HTML."""
    return _Inline(text).render()


class _Inline:
    def __init__(self, text: str) -> None:
        self._text = text
        self._parts: list[Markup | _Mark] = []
        self._marks: list[_Mark] = []
        self._open = {"*": 0, "_": 0}
        """How many marks of each sign are open in the present bracket."""
        self._brackets: list[_Bracket] = []
        self._targets: dict[int, tuple[int, str]] = {}
        self._links: set[int] = set()
        self._closing: dict[int, list[int]] = {}
        """Where runs of backticks of each length begin, last first."""
        for run in reversed(list(_CODE.finditer(text))) if "`" in text else ():
            self._closing.setdefault(len(run[0]), []).append(run.start())

    def render(self) -> Markup:
        self._find_links()
        at = 0
        for sign in _SIGN.finditer(self._text):
            if sign.start() < at:  # inside code or the target of a link
                continue
            self._add(self._text[at : sign.start()])
            at = self._sign(sign)
        self._add(self._text[at:])
        return Markup().join(part.markup() if isinstance(part, _Mark) else part for part in self._parts)

    def _add(self, text: str) -> None:
        if text:
            self._parts.append(escape(text))

    def _find_links(self) -> None:
        """Find the brackets that are links, before emphasis is decided: a link binds tighter."""
        if "](" not in self._text:
            return
        opened: list[int] = []
        closing = {length: list(starts) for length, starts in self._closing.items()}
        at = 0
        for sign in _SIGN.finditer(self._text):
            if sign.start() < at:
                continue
            at = sign.end()
            match sign.lastgroup:
                case "code":
                    at = _code_end(closing, sign) or at
                case "open" | "image":
                    opened.append(sign.start())
                case "close" if opened:
                    begin = opened.pop()
                    target = _TARGET.match(self._text, sign.end())
                    address = target and _address(target["quoted"] or target["plain"] or "")
                    if target and address:
                        self._links.add(begin)
                        self._targets[sign.start()] = (target.end(), address)
                        at = target.end()
                        if self._text[begin] != "!":
                            opened.clear()  # no link inside a link

    def _sign(self, sign: re.Match[str]) -> int:
        """Add what a sign means; returns where the text continues."""
        end = sign.end()
        match sign.lastgroup:
            case "escape":
                self._add(sign[0][1])
            case "code":
                return self._code(sign)
            case "mark":
                self._mark(sign)
            case "open" | "image" if sign.start() in self._links:
                self._brackets.append(_Bracket(len(self._parts), len(self._marks), self._open))
                self._open = {"*": 0, "_": 0}
                self._parts.append(Markup())
            case "close" if sign.start() in self._targets and self._brackets:
                return self._close_link(sign.start())
            case "auto" | "url":
                return self._plain_address(sign)
            case "line":
                self._parts.append(Markup("<br>\n"))
            case _:
                self._add(sign[0])
        return end

    def _code(self, sign: re.Match[str]) -> int:
        end = _code_end(self._closing, sign)
        if end is None:
            self._add(sign[0])
            return sign.end()
        code = self._text[sign.end() : end - len(sign[0])].replace("\n", " ")
        if code[:1] == " " == code[-1:] and code.strip():
            code = code[1:-1]
        self._parts.append(Markup("<code>{}</code>").format(code))
        return end

    def _close_link(self, at: int) -> int:
        bracket = self._brackets.pop()
        self._forget_marks(bracket.marks)
        self._open = bracket.open
        end, address = self._targets[at]
        if len(self._parts) == bracket.part + 1:  # a link without a text
            self._add(address)
        if not self._brackets:  # an image inside a link is only its text
            self._parts[bracket.part] = _LINK.format(address)
            self._parts.append(Markup("</a>"))
        return end

    def _plain_address(self, sign: re.Match[str]) -> int:
        found = sign[0][1:-1] if sign.lastgroup == "auto" else sign[0].rstrip(_TRAILING)
        address = _address(found)
        if address is None or self._brackets:
            self._add(sign[0])
            return sign.end()
        self._parts.append(_LINK.format(address) + escape(found) + Markup("</a>"))
        return sign.end() if sign.lastgroup == "auto" else sign.start() + len(found)

    # --- emphasis ----------------------------------------------------------------------------------------------------

    def _mark(self, sign: re.Match[str]) -> None:
        run, begin, end = sign[0], sign.start(), sign.end()
        before = self._text[begin - 1] if begin else " "
        after = self._text[end] if end < len(self._text) else " "
        if len(run) > _MARKS_MAX:
            self._add(run)
            return
        is_word = before.isalnum() and after.isalnum() and run[0] == "_"
        left = self._close_marks(run[0], len(run)) if not before.isspace() and not is_word else len(run)
        if not left:
            return
        mark = _Mark(run[0], left)
        self._parts.append(mark)
        if not after.isspace() and not is_word:
            self._marks.append(mark)
            self._open[mark.sign] += 1

    def _close_marks(self, sign: str, count: int) -> int:
        """End emphasis that is open; returns how many signs are left over."""
        while count and self._open[sign]:
            mark = self._marks[-1]
            if mark.sign != sign:
                self._forget_marks(len(self._marks) - 1)
                continue
            if self._parts[-1] is mark:  # nothing between them
                break
            used = 2 if count > 1 and mark.left > 1 else 1
            begin, end = _TAGS[used]
            mark.tags = begin + mark.tags
            mark.left -= used
            count -= used
            self._parts.append(end)
            if not mark.left:
                self._forget_marks(len(self._marks) - 1)
        return count

    def _forget_marks(self, keep: int) -> None:
        while len(self._marks) > keep:
            self._open[self._marks.pop().sign] -= 1


def _code_end(closing: dict[int, list[int]], sign: re.Match[str]) -> int | None:
    """Where the code ends that a run of backticks begins; None if it begins none."""
    starts = closing.get(len(sign[0]), [])
    while starts and starts[-1] < sign.end():
        starts.pop()
    return starts[-1] + len(sign[0]) if starts else None


def _address(text: str) -> str | None:
    """The address of a link, if it is one that may be followed."""
    if not _ADDRESS.fullmatch(text):
        return None
    try:
        parts = urlsplit(text)
    except ValueError:
        return None
    return text if parts.scheme == "mailto" or parts.hostname else None

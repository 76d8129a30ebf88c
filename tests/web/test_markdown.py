"""Markdown: what it makes of signs, that text never becomes markup, and that hostile text costs no more than other."""

from __future__ import annotations

import sys
from collections.abc import Callable
from html.parser import HTMLParser
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.web import markdown as blocks
from holdfast.web.markdown import markdown, plain_line, render

LINK = ' rel="noopener noreferrer nofollow" target="_blank"'


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("Refund **30 EUR** to *ana*?", "<p>Refund <strong>30 EUR</strong> to <em>ana</em>?</p>"),
        ("__a__ and _b_", "<p><strong>a</strong> and <em>b</em></p>"),
        ("***both***", "<p><em><strong>both</strong></em></p>"),
        ("**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"),
        ("snake_case_name", "<p>snake_case_name</p>"),
        ("2 * 3 * 4", "<p>2 * 3 * 4</p>"),
        ("one\ntwo\r\nthree", "<p>one<br>\ntwo<br>\nthree</p>"),
        ("one\n\ntwo", "<p>one</p>\n<p>two</p>"),
        ("`a < b` and ``c ` d``", "<p><code>a &lt; b</code> and <code>c ` d</code></p>"),
        ("`not closed", "<p>`not closed</p>"),
        ("`**not bold**`", "<p><code>**not bold**</code></p>"),
        (r"\*as it is\*", "<p>*as it is*</p>"),
        ("# One\n## Two\n# Three", "<h4>One</h4>\n<h5>Two</h5>\n<h4>Three</h4>"),
        ("### deep first", "<h4>deep first</h4>"),
        ("#tag", "<p>#tag</p>"),
        ("---", "<hr>"),
        ("* * *", "<hr>"),
        ("- a\n- b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>"),
        ("3. a\n4. b", '<ol start="3">\n<li>a</li>\n<li>b</li>\n</ol>'),
        ("- a\n  - b\n- c", "<ul>\n<li>a\n<ul>\n<li>b</li>\n</ul></li>\n<li>c</li>\n</ul>"),
        ("- a\n\n- b", "<ul>\n<li><p>a</p></li>\n<li><p>b</p></li>\n</ul>"),
        ("> said\n> twice", "<blockquote><p>said<br>\ntwice</p></blockquote>"),
        (
            "```sh\nrm -rf <x>\n```\nafter",
            '<p class="quiet">sh</p>\n<pre><code>rm -rf &lt;x&gt;\n</code></pre>\n<p>after</p>',
        ),
        ("~~~\nopen", "<pre><code>open\n</code></pre>"),
        (
            "|a|b|\n|-|:-:|\n|1|2|",
            '<table><thead><tr><th scope="col">a</th><th scope="col">b</th></tr></thead>'
            "<tbody><tr><td>1</td><td>2</td></tr></tbody></table>",
        ),
        ("a | b\nno table", "<p>a | b<br>\nno table</p>"),
        ("[a](https://x.example/?a=1&b=2)", f'<p><a href="https://x.example/?a=1&amp;b=2"{LINK}>a</a></p>'),
        ("[**a**](<mailto:ana@x.example>)", f'<p><a href="mailto:ana@x.example"{LINK}><strong>a</strong></a></p>'),
        ("![graph](https://x.example/g.png)", f'<p><a href="https://x.example/g.png"{LINK}>graph</a></p>'),
        ("[![g](https://i.example/g)](https://x.example)", f'<p><a href="https://x.example"{LINK}>g</a></p>'),
        ("see https://x.example/a_b.", f'<p>see <a href="https://x.example/a_b"{LINK}>https://x.example/a_b</a>.</p>'),
        ("<https://x.example>", f'<p><a href="https://x.example"{LINK}>https://x.example</a></p>'),
        ("[a](https://x.example) b)", f'<p><a href="https://x.example"{LINK}>a</a> b)</p>'),
        ("*a [b* c](https://x.example)", f'<p>*a <a href="https://x.example"{LINK}>b* c</a></p>'),
    ],
)
def test_signs_of_markdown_become_html(text: str, html: str) -> None:
    assert markdown(text) == html


@pytest.mark.parametrize(
    "text",
    [
        "[a](javascript:alert(1))",
        "[a](JaVaScRiPt:alert(1))",
        "[a](data:text/html,x)",
        "[a](//x.example)",
        "[a](/runs)",
        "[a](vbscript:x)",
        "[a](https://)",
        "[a](java\tscript:alert(1))",
        "[a](https://x.example\x00)",
        "[a](https://[bad)",
        "<script>alert(1)</script>",
        "<javascript:alert(1)>",
        "![a](javascript:alert(1))",
    ],
)
def test_what_is_not_a_link_to_the_web_stays_text(text: str) -> None:
    assert Seen(markdown(text)).links == []
    assert Seen(markdown(text)).text == text


def test_an_address_ends_where_an_attribute_would_end() -> None:
    html = markdown('[a](https://x.example"onclick="alert(1)) https://y.example"onclick="alert(1)')
    assert Seen(html).links == ["https://x.example", "https://y.example"]


class Seen(HTMLParser):
    """The tags, attributes and text of HTML, checked against what may be made."""

    VOID = frozenset(("br", "hr"))
    TAGS = VOID | {"p", "h4", "h5", "h6", "strong", "em", "code", "pre", "ul", "ol", "li", "blockquote", "a", "table"}
    TAGS |= {"thead", "tbody", "tr", "th", "td"}

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(str(html))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self.TAGS, tag
        found = dict(attrs)
        if tag == "a":
            assert "a" not in self.open
            assert set(found) == {"href", "rel", "target"}
            assert (found["rel"], found["target"]) == ("noopener noreferrer nofollow", "_blank")
            assert (found["href"] or "").lower().startswith(("http://", "https://", "mailto:"))
            self.links.append(found["href"] or "")
        elif tag == "ol":
            assert not found or (found["start"] or "").isdigit()
        elif tag == "th":
            assert found == {"scope": "col"}
        elif tag == "p":
            assert not found or found == {"class": "quiet"}
        else:
            assert not found
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(f"a declaration: {decl}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"a declaration: {data}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"an instruction: {data}")


PIECES = st.sampled_from(
    [
        *"*_`[]()<>!#|~\\-+\"' \n&;:=/.",
        *(
            "**",
            "***",
            "```",
            "> ",
            "- ",
            "1. ",
            "  ",
            "\t",
            "](",
            "![",
            "<b>",
            "<script>",
            "&lt;",
            "&#60;",
            "--",
            "word",
        ),
        *("https://x.example/", "javascript:", "mailto:a@b", "(https://x.example)", "<https://y.example>", "onclick=x"),
        *("</p>", "<!--", "<![CDATA[", "<?x", "|-|-|\n", "\x00", "\u2028", "é", "😀", "<img src=x onerror=y>"),
    ]
)
HOSTILE = st.one_of(
    st.lists(PIECES, max_size=60).map("".join),
    st.text(max_size=200),
    st.builds(lambda one, other, times: (one + other) * times, PIECES, PIECES, st.integers(1, 40)),
)


@settings(deadline=None, max_examples=600)
@given(HOSTILE)
def test_no_text_becomes_a_tag_or_an_attribute(text: str) -> None:
    seen = Seen(markdown(text))
    for link in seen.links:
        assert link in text


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["alpha", "beta", "**", "*", "_", "[", "](", "`", "> ", "- ", "\n", "# "]), max_size=40)
)
def test_no_word_is_lost(pieces: list[str]) -> None:
    words = [piece for piece in pieces if piece.isalpha()]
    text = Seen(markdown("".join(pieces))).text
    assert "".join(words) == "".join(part for part in _letters(text))


def _letters(text: str) -> str:
    return "".join(sign for sign in text if sign.isalpha())


class Steps:
    """Counts the lines of our own code that are executed."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if "holdfast/web/markdown" not in frame.f_code.co_filename:
            return None
        self.count += event == "line"
        return self

    @classmethod
    def of(cls, text: str) -> int:
        steps, before = cls(), sys.gettrace()
        sys.settrace(steps)
        try:
            render(text, chars_max=len(text))
        finally:
            sys.settrace(before)
        return steps.count


ATTACKS: dict[str, Callable[[int], str]] = {
    "stars": lambda n: "*" * n,
    "spaced stars": lambda n: "* a " * (n // 4),
    "open emphasis": lambda n: "*a _b " * (n // 6),
    "both signs": lambda n: "*a_ " * (n // 4),
    "closers": lambda n: "a* b_ " * (n // 6),
    "opened then closed": lambda n: "*a " * (n // 6) + "b* " * (n // 6),
    "brackets": lambda n: "[" * n,
    "open links": lambda n: "[a](" * (n // 4),
    "images": lambda n: "![" * (n // 2),
    "unclosed targets": lambda n: "[" * (n // 2) + "](" * (n // 4),
    "spaces in targets": lambda n: "[a](" + " " * n,
    "titles": lambda n: '[a](b "' * (n // 7),
    "nested quotes": lambda n: ">" * n,
    "quoted lines": lambda n: "> " * 10 + "\n" + "> a\n" * (n // 4),
    "deep quotes": lambda n: (">" * 50 + "a\n") * (n // 52),
    "nested lists": lambda n: "".join(" " * (2 * (i % 20)) + "- a\n" for i in range(n // 20)),
    "backticks": lambda n: "".join("`" * (i % 40) + " " for i in range(n // 20)),
    "one backtick each": lambda n: "`a``b" * (n // 5),
    "table": lambda n: "|a|b|\n|-|-|\n" + "|\n" * (n // 2),
    "wide table": lambda n: "|a" * (n // 4) + "\n" + "|-" * (n // 4) + "\n",
    "fences": lambda n: "```\n" * (n // 4),
    "addresses": lambda n: "https://" * (n // 8),
    "dots": lambda n: "https://" + "." * n,
    "escapes": lambda n: "\\" * n,
    "line ends": lambda n: "\n" * n,
    "spaces": lambda n: " " * n + "x",
    "tabs": lambda n: "- a\n" + "\t" * n,
    "links in links": lambda n: "[" * (n // 30) + "](https://x.example)" * (n // 30),
    "angle brackets": lambda n: "<https://" * (n // 9),
    "rule signs": lambda n: "- " * (n // 2) + "x",
    "headings": lambda n: "# " * (n // 2),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_text_takes_steps_in_proportion_to_its_length(attack: str) -> None:
    small, large = (Steps.of(ATTACKS[attack](size)) for size in (4_000, 16_000))
    assert large <= 4 * small * 1.25 + 500, f"{small} steps, then {large} for four times the text"
    assert large <= 16_000 * 40


@settings(deadline=None, max_examples=60)
@given(st.lists(PIECES, min_size=1, max_size=6).map("".join))
def test_any_repeated_piece_takes_steps_in_proportion_to_its_length(piece: str) -> None:
    small, large = Steps.of(piece * 100), Steps.of(piece * 400)
    assert large <= 4 * small * 1.25 + 500


@pytest.mark.parametrize("attack", ["stars", "brackets", "nested quotes", "spaced stars"])
def test_ten_million_characters_are_rendered(attack: str) -> None:
    text = ATTACKS[attack](10_000_000)
    html = render(text)
    assert html.is_cut
    assert f"{len(text) - blocks.CHARS_MAX:,} more characters are not shown here." in html.html
    assert len(html.html) < 20 * blocks.CHARS_MAX
    assert "not shown" not in render(text[:200_000], chars_max=10_000_000).html


def test_blocks_deeper_than_the_limit_are_text() -> None:
    html = markdown("> " * 20 + "end")
    assert html.count("<blockquote>") == blocks.DEPTH_MAX
    assert "end" in html
    lists = "\n".join("  " * level + "- x" for level in range(20))
    assert markdown(lists).count("<ul>") <= blocks.DEPTH_MAX


def test_headings_begin_at_the_level_of_their_place() -> None:
    assert markdown("# a\n### b", heading=3) == "<h3>a</h3>\n<h4>b</h4>"
    assert markdown("# a\n## b\n### c\n#### d\n##### e", heading=4).count("<h6>") == 3


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("# Refund **30**\nmore", "Refund 30"),
        ("\n\n> [a](https://x.example) <b>", "a <b>"),
        ("", ""),
        ("x" * 300, "x" * 119 + "…"),
    ],
)
def test_the_first_line_is_a_title(text: str, line: str) -> None:
    assert plain_line(text) == line


def test_the_first_line_of_a_fence_is_shown() -> None:
    text = Seen(markdown("```json and pay 9000 as well\n{}\n```\nGo on?")).text
    assert "json and pay 9000 as well" in text
    assert "Go on?" in text

"""Changes as a page shows them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.views import Change
from holdfast.web.change_view import change_view, path_text, text_difference


def test_paths_are_written_as_people_read_them() -> None:
    assert path_text(("messages", 3, "content")) == "messages[3].content"
    assert path_text((0, "a")) == "[0].a"
    assert path_text(()) == "the whole state"


def test_short_values_are_shown_before_and_after() -> None:
    shown = change_view(Change(op="replace", path=("a",), old=1, new=[2]))
    assert (shown.word, shown.old, shown.new.split()) == ("changed", "1", ["[", "2", "]"])
    assert change_view(Change(op="add", path=("a",), new=None)).new == "null"
    assert change_view(Change(op="remove", path=("a",), old="x")).new == ""


def test_of_long_texts_only_the_difference_is_shown() -> None:
    lines = [f"line {number}" for number in range(1_000)]
    found, is_cut = text_difference("\n".join(lines), "\n".join([*lines[:500], "new", *lines[501:]]))
    assert [(line.sign, line.text) for line in found] == [
        (" ", "line 498"), (" ", "line 499"), ("-", "line 500"), ("+", "new"), (" ", "line 501"), (" ", "line 502"),
    ]  # fmt: skip
    assert not is_cut
    word = change_view(
        Change(op="replace", path=(), old="x" * 500 + "old" + "y" * 500, new="x" * 500 + "new" + "y" * 500)
    )
    assert [line.text for line in word.lines] == [f"…{'x' * 40}{middle}{'y' * 40}…" for middle in ("old", "new")]


def test_texts_that_share_nothing_are_compared_in_limited_time_and_space() -> None:
    old, new = ("\n".join(f"{sign} {number % 7}" for number in range(50_000)) for sign in "ab")
    found, is_cut = text_difference(old, new)
    assert is_cut
    assert len(found) == 200


@given(st.text("ab\n", max_size=30), st.text("ab\n", max_size=30))
def test_the_lines_of_a_difference_are_those_of_the_texts(old: str, new: str) -> None:
    found, _ = text_difference(old, new)
    if "\n" in old or "\n" in new:
        assert all(line.text in old.split("\n") for line in found if line.sign == "-")
        assert all(line.text in new.split("\n") for line in found if line.sign == "+")
        assert sum(line.sign == "+" for line in found) - sum(line.sign == "-" for line in found) == (
            len(new.split("\n")) - len(old.split("\n"))
        )

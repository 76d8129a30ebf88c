"""Users: what their fields must be."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import InvalidInput
from holdfast.web import User


@pytest.mark.parametrize(
    "fields",
    [
        {"workflows": "refund*"},
        {"groups": "finance"},
        {"workflows": ("refund*", 7)},
        {"groups": (b"finance",)},
        {"workflows": None},
        {"workflows": ("",)},
        {"groups": {"finance": 1}},
        {"role": None},
        {"role": ["viewer"]},
        {"role": "admin"},
        {"name": None},
        {"name": 7},
    ],
)
def test_fields_of_another_type_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        User(**{"name": "ana", **fields})


def test_lists_and_sets_of_texts_are_accepted() -> None:
    user = User(name="ana", groups=["finance"], workflows=frozenset({"refund*"}))  # type: ignore[arg-type]
    assert (user.groups, user.workflows) == (("finance",), ("refund*",))
    assert user == User(name="ana", groups=("finance",), workflows=("refund*",))


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ana",
        "ana ",
        "ana\xa0",
        "an\ta",
        "ana\u200b",
        "\u202eana",
        "a\u2028b",
        "ana\ufe0f",
        "ana\u3164",
        "\ufeffana",
    ],
)
def test_names_with_signs_that_are_not_seen_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        User(name=name)
    if name:
        with pytest.raises(InvalidInput):
            User(name="ben", groups=(name,))


def test_a_name_has_one_spelling_in_unicode() -> None:
    composed, decomposed = User(name="zo\xeb", groups=("gr\xfcn",)), User(name="zoe\u0308", groups=("gru\u0308n",))
    assert composed == decomposed
    assert composed != User(name="Zo\xeb", groups=("gr\xfcn",))

"""Whether a tool asks for an approval by itself, as its code shows."""

from __future__ import annotations

import functools
from typing import Any

from holdfast.adapters.shared.code_names import mentions


class ApprovalRequired(Exception):
    pass


def asks() -> None:
    raise ApprovalRequired


def asks_in_another_function() -> None:
    asks()


def asks_in_a_function_inside() -> Any:
    def inner() -> None:
        raise ApprovalRequired

    return inner()


class Asks:
    def __call__(self) -> None:
        raise ApprovalRequired

    def method(self) -> None:
        asks()


def pays() -> str:
    return "ApprovalRequired"


def test_a_name_is_found_in_the_code_of_a_function_and_of_those_that_it_uses() -> None:
    partial = functools.partial(asks)
    function: Any
    for function in (asks, asks_in_another_function, asks_in_a_function_inside, Asks(), Asks().method, partial):
        assert mentions(function, "ApprovalRequired"), function
    for function in (pays, len, None, "text"):
        assert not mentions(function, "ApprovalRequired"), function

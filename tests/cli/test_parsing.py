"""Verbs that start without click accept what click accepts, and mean the same."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.click_verbs import load
from holdfast.cli.session import Session
from holdfast.cli.verb import Verb

VERBS = ("list", "show", "gates")
WORDS = (
    "--status",
    "waiting",
    "failed",
    "--status=ready",
    "--status=",
    "lost",
    "--workflow",
    "refund",
    "--meta",
    "a=1",
    "--prefix",
    "",
    "--prefix=",
    "--limit",
    "7",
    "0",
    "-3",
    "--limit=12",
    "1001",
    "99999999999",
    "٣",
    "--after",
    "runs.4",
    "--all",
    "--all=1",
    "--full",
    "--turns",
    "--state",
    "order-1",
    "order-1~2",
    "-",
    "--",
    "-h",
    "--help",
    "--store",
    "sqlite:x.db",
    "--store=sqlite:y.db",
    "--app",
    "m:app",
    "--json",
    "--color",
    "--no-color",
    "--nope",
)


def verb_of(name: str) -> Verb:
    found = vars(import_module(f"holdfast.cli.commands.{name}"))[f"{name}_command"]
    assert isinstance(found, Verb)
    return found


def by_click(name: str, texts: list[str]) -> tuple[dict[str, Any], Session] | None:
    session = Session()
    try:
        with load(name).make_context(name, list(texts), obj=session) as context:
            return context.params, session
    except (click.ClickException, click.exceptions.Exit):
        return None


def settings(session: Session) -> tuple[object, ...]:
    return session.store_given, session.app_given, session.json, session.color


@given(st.sampled_from(VERBS), st.lists(st.sampled_from(WORDS), max_size=5))
def test_what_is_parsed_without_click_is_what_click_parses(name: str, texts: list[str]) -> None:
    session = Session()
    found = verb_of(name).parse(texts, session)
    expected = by_click(name, texts)
    if found is None:
        assert settings(session) == settings(Session())
        return
    assert expected is not None
    assert found == expected[0]
    assert settings(session) == settings(expected[1])


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("list", ""),
        ("list", "--status waiting --status=failed --workflow refund --meta team=a --limit 10 --json"),
        ("list", "--prefix order- --after runs.9 --all --store sqlite:x.db --no-color"),
        ("show", "order-17 --turns"),
        ("show", "--state order-17~2 --app=shop:app"),
        ("gates", "order-17 --all --limit=5"),
    ],
)
def test_common_command_lines_need_no_click(name: str, line: str) -> None:
    assert verb_of(name).parse(line.split(), Session()) is not None

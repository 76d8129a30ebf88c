"""Burr: `SQLitePersister`, and `HoldfastPersister` with a claim."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from burr.core import ApplicationBuilder, State, action, when
from burr.core.persistence import SQLitePersister

from bench.adapters.material import RUN_ID, Turns, pay, url_of
from holdfast.adapters.burr import HoldfastPersister


def _build(persister: Any, place: Path) -> Any:
    @action(reads=["messages"], writes=["messages", "asked"])
    def turn(state: State[Any], text: str, reply: str) -> State[Any]:
        return state.update(messages=[*state["messages"], text, reply], asked=text == "Pay?")

    @action(reads=[], writes=["receipt"])
    def settle(state: State[Any]) -> State[Any]:
        return state.update(receipt=pay(place))

    builder: Any = ApplicationBuilder()
    return (
        builder.with_actions(turn=turn, settle=settle)
        .with_transitions(("turn", "settle", when(asked=True)), ("turn", "turn"))
        .initialize_from(
            persister, resume_at_next_action=True, default_state={"messages": []}, default_entrypoint="turn"
        )
        .with_state_persister(persister)
        .with_identifiers(app_id=RUN_ID)
        .build()
    )


@contextlib.contextmanager
def _open(way: str, place: Path) -> Any:
    """A persister; ours with the claim of the application."""
    if way == "HoldfastPersister":
        with HoldfastPersister(url_of(place)) as ours, ours.claim(RUN_ID):
            yield ours
        return
    theirs = SQLitePersister(str(place / "burr.db"))
    theirs.initialize()
    yield theirs
    theirs.connection.close()


def grow(way: str, place: Path, turns: Turns) -> None:
    with _open(way, place) as persister:
        application = _build(persister, place)
        for text, reply in turns:
            application.step(inputs={"text": text, "reply": reply})


def pause(way: str, place: Path, turns: Turns) -> None:
    with _open(way, place) as persister:
        _build(persister, place).step(inputs={"text": "Pay?", "reply": "40"})


def resume(way: str, place: Path, turns: Turns) -> None:
    with _open(way, place) as persister:
        application = _build(persister, place)
        if application.get_next_action() is not None:
            application.run(halt_after=["settle"])

"""CrewAI flows: `SQLiteFlowPersistence`, and `HoldfastFlowPersistence` with a claim."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from crewai.flow import Flow, listen, persist, start
from crewai.flow.flow import FlowState
from crewai.flow.human_feedback import human_feedback
from crewai.flow.persistence import SQLiteFlowPersistence
from pydantic import Field
from tests.adapters.crewai.payer import Later

from bench.adapters.material import RUN_ID, Turns, pay, url_of
from holdfast.adapters.crewai import HoldfastFlowPersistence


class Talk(FlowState):
    """A conversation."""

    messages: list[str] = Field(default_factory=list)
    text: str = ""
    reply: str = ""


@contextlib.contextmanager
def _open(way: str, place: Path) -> Any:
    """A persistence; ours with the claim of the flow."""
    if way == "HoldfastFlowPersistence":
        with HoldfastFlowPersistence(url_of(place)) as ours, ours.claim(RUN_ID):
            yield ours
    else:
        yield SQLiteFlowPersistence(str(place / "flows.db"))


def grow(way: str, place: Path, turns: Turns) -> None:
    with _open(way, place) as persistence:

        @persist(persistence)
        class Chat(Flow[Talk]):
            @start()
            def turn(self) -> None:
                self.state.messages += [self.state.text, self.state.reply]

        for text, reply in turns:
            flow = Chat(persistence=persistence, suppress_flow_events=True)
            flow.kickoff(inputs={"id": RUN_ID, "text": text, "reply": reply})


def _payment(persistence: Any, place: Path) -> Any:
    @persist(persistence)
    class Payment(Flow[Talk]):
        @start()
        @human_feedback(message="Pay?", provider=Later())
        def quote(self) -> str:
            return "40"

        @listen(quote)
        def settle(self, _: Any) -> str:
            return pay(place)

    return Payment


def pause(way: str, place: Path, turns: Turns) -> None:
    with _open(way, place) as persistence:
        _payment(persistence, place)(persistence=persistence, suppress_flow_events=True).kickoff(inputs={"id": RUN_ID})


def resume(way: str, place: Path, turns: Turns) -> None:
    with _open(way, place) as persistence:
        _payment(persistence, place).from_pending(RUN_ID, persistence, suppress_flow_events=True).resume("yes")

"""A saver that saves in an order chosen by the test, and graphs with concurrent namespaces."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Final, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from holdfast.adapters.langgraph import HoldfastSaver

_PATIENCE: Final = 60.0
"""Seconds after which an order that cannot happen fails the test instead of blocking it."""

_THREADS: Final = ThreadPoolExecutor(32)
"""Where saves wait: the event loop's own threads, which nodes need, are few."""

Landed = Callable[[int], None]


class LandingSaver(HoldfastSaver):
    """Delays checkpoints so that they are saved in the given order of namespaces.

    `order` names namespaces without their task ids; the n-th save of a namespace takes the place of its n-th mention.
    Saves that it does not mention are not delayed. `landed` is called after each save it mentions, with its place;
    if it raises, no later one of them happens.
    """

    def land(self, order: Sequence[str], landed: Landed = lambda _: None) -> None:
        """Order the saves from here on."""
        self._order, self._landed, self._done = list(order), landed, 0
        self._reached: dict[int, str] = {}
        self._died = False
        self._begun: Counter[str] = Counter()
        self._turn = threading.Condition()

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        place = self._place_of(config)
        self._wait(place)
        saved = super().put(config, checkpoint, metadata, new_versions)
        self._pass(place)
        return saved

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        place = self._place_of(config)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(_THREADS, self._wait, place)
        saved = await super().aput(config, checkpoint, metadata, new_versions)
        await loop.run_in_executor(_THREADS, self._pass, place)
        return saved

    def _place_of(self, config: Any) -> int | None:
        name = name_of(config["configurable"].get("checkpoint_ns", ""))
        with self._turn:
            places = [place for place, other in enumerate(self._order) if other == name]
            self._begun[name] += 1
            return places[self._begun[name] - 1] if self._begun[name] <= len(places) else None

    def _wait(self, place: int | None) -> None:
        if place is not None:
            with self._turn:
                self._reached[place] = "waits"
                in_time = self._turn.wait_for(lambda: self._died or self._done == place, _PATIENCE)
                assert in_time, (place, self._done, self._order, self._reached)
                assert not self._died
                self._reached[place] = "is saved"

    def _pass(self, place: int | None) -> None:
        if place is not None:
            self._reached[place] = "landed"
            try:
                self._landed(place)
            except Exception:
                self._died = True
                raise
            finally:
                with self._turn:
                    self._reached[place] = "is over"
                    self._done += 1
                    self._turn.notify_all()


def name_of(namespace: str) -> str:
    """A namespace without the ids of its tasks."""
    return "|".join(part.partition(":")[0] for part in namespace.split("|"))


def orders(**counts: int) -> Iterator[list[str]]:
    """All orders in which the saves of namespaces can land; each namespace's own stay in order. `root` is the graph."""
    if not any(counts.values()):
        yield []
    for name, count in counts.items():
        if count:
            for rest in orders(**{**counts, name: count - 1}):
                yield ["" if name == "root" else name.replace("_", "|"), *rest]


class Notes(TypedDict):
    """What happened, in order."""

    notes: Annotated[list[str], operator.add]


def noting(name: str) -> Callable[[Any], Any]:
    """A node that notes its name and how much was noted before it."""
    return lambda state: {"notes": [f"{name}{len(state['notes'])}"]}


def line(*nodes: tuple[str, Any], **how: Any) -> Any:
    """A graph of these nodes, one after another."""
    made: Any = StateGraph(Notes)
    for name, node in nodes:
        made.add_node(name, node)
    for before, after in zip([START, *[name for name, _ in nodes]], [*[name for name, _ in nodes], END], strict=True):
        made.add_edge(before, after)
    return made.compile(**how)


class Shop:
    """Graphs in which a subgraph pays and then waits for an answer."""

    def __init__(self) -> None:
        self.paid: Counter[str] = Counter()

    def pay(self, name: str) -> Callable[[Any], Any]:
        def paying(_: Any) -> dict[str, Any]:
            self.paid[name] += 1
            return {"notes": [f"paid {name}"]}

        return paying

    def till(self, name: str = "one", **how: Any) -> Any:
        """Pays, then asks."""
        return line(("pay", self.pay(name)), ("ask", lambda _: {"notes": [interrupt(name)]}), **how)

"""Every public thing of the adapter has an example, and it runs."""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
import textwrap
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from holdfast import App
from holdfast.adapters import langgraph as adapter
from holdfast.adapters.langgraph import HoldfastSaver, StrictSerializer
from tests.adapters.langgraph.material import Plain, config, said

_THINGS = {
    name: getattr(adapter, name) for name in adapter.__all__ if name not in ("Migrated", "Retained", "ValueUnreadable")
}
_THINGS |= {"HoldfastSaver.claim": HoldfastSaver.claim, "HoldfastSaver.retain": HoldfastSaver.retain}


@dataclasses.dataclass
class Order:
    """A type of the user's own."""

    number: int


@pytest.mark.parametrize("name", _THINGS)
def test_every_public_thing_has_an_example_and_it_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    example = textwrap.dedent((inspect.getdoc(_THINGS[name]) or "").partition("Example:\n")[2])
    assert example.strip(), f"{name} has no example"
    builder: Any = StateGraph(Plain)
    builder.add_node("agent", lambda _: {})
    builder.add_edge(START, "agent")
    builder.add_edge("agent", END)
    with SqliteSaver.from_conn_string("checkpoints.sqlite") as theirs:
        builder.compile(checkpointer=theirs).invoke(said("hi"), config("thread-1"))
    with HoldfastSaver("memory:") as saver:
        graph = builder.compile(checkpointer=saver)
        graph.invoke(said("hi"), config("thread-1"))
        names = {
            "HoldfastSaver": HoldfastSaver, "StrictSerializer": StrictSerializer, "Command": Command, "Order": Order,
            "migrate": adapter.migrate, "saver": saver, "graph": graph, "builder": builder,
            "config": config("thread-1"), "timedelta": dt.timedelta, "app": App(saver.store),
            "run_graph": adapter.run_graph,
        }  # fmt: skip
        exec(compile(example, name, "exec", dont_inherit=True), names)


def test_every_public_method_is_described() -> None:
    for name, method in vars(HoldfastSaver).items():
        if callable(method) and not name.startswith("_"):
            assert inspect.getdoc(method), name

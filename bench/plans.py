"""The workloads: which systems take part, what a round of each is, and which numbers come out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any, Final

_SYSTEMS: Final = "bench.systems"

Slices = list[dict[str, Any]]
"""What a worker answered for each slice of one system in one round."""


@dataclass(frozen=True)
class Entry:
    """A system that takes part."""

    name: str
    subject: str
    options: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1.0
    """Slow systems do this part of the operations; times are per operation, so they stay comparable."""


@dataclass(frozen=True)
class Plan:
    """A workload."""

    name: str
    title: str
    entries: tuple[Entry, ...]
    kinds: Mapping[str, int]
    """Kinds of operation, and how many of each make a slice."""
    passes: int
    """How often each system gets its turn in a round."""
    numbers: Callable[[Slices], dict[str, float]]
    fresh: bool = False
    """Whether every round starts with new databases."""
    memory: bool = False
    """Whether it lies in memory, to show what it costs beside the disk."""
    options: Mapping[str, Any] = field(default_factory=dict)
    turns: int = 0
    """How long the conversation is, if it was written before."""

    @property
    def total(self) -> int:
        """How many turns or operations a database gets to see in a round."""
        return self.turns or self.passes * max(self.kinds.values())

    @property
    def floor(self) -> str:
        return self.entries[0].name


def _entry(name: str, subject: str, share: float = 1.0, **options: Any) -> Entry:
    return Entry(name, f"{_SYSTEMS}.{subject}", options, share)


# --- numbers of a round ----------------------------------------------------------------------------------------------


def _each_us(slices: Slices) -> list[float]:
    return [one for found in slices for one in found["each_us"]]


def per_operation(slices: Slices) -> dict[str, float]:
    """The mean, because now and then an operation pays for a WAL checkpoint and the others have to carry it."""
    mean = fmean(_each_us(slices))
    return {"us": mean, "per_s": 1e6 / mean}


def per_turn(slices: Slices) -> dict[str, float]:
    each = _each_us(slices)
    tenth = max(1, len(each) // 10)
    first, last = fmean(each[:tenth]), fmean(each[-tenth:])
    return {"us": fmean(each), "first_us": first, "last_us": last, "growth": last / first}


def per_kind(slices: Slices) -> dict[str, float]:
    return {f"{found['kind']}_us": median(found["each_us"]) for found in slices}


# --- the workloads ---------------------------------------------------------------------------------------------------

_SAVE: Final = (
    _entry("floor apsw", "floors:RawInsert"),
    _entry("floor sqlite3", "floors:RawInsertStdlib"),
    _entry("holdfast", "with_holdfast:Save"),
    _entry("holdfast claim", "with_holdfast:Save", claim=True),
    _entry("langgraph", "with_langgraph:Save"),
    _entry("langgraph put only", "with_langgraph:Save", prebuilt=True),
    _entry("dbos", "with_dbos:Save", share=0.1),
    _entry("json file", "with_json:Save"),
)
_TURNS: Final = (
    _entry("floor append", "floors:Append"),
    _entry("holdfast", "with_holdfast:Turns"),
    _entry("langgraph", "langgraph_turns:Turns"),
    _entry("langgraph delta", "langgraph_turns:Turns", delta=True),
    _entry("json file", "with_json:Turns"),
)
_LOAD: Final = (
    _entry("floor blob", "floors:OneBlob"),
    _entry("holdfast", "with_holdfast:Load"),
    _entry("langgraph", "langgraph_turns:Load", share=0.2),
    _entry("langgraph saver", "langgraph_turns:LoadTuple", share=0.2),
    _entry("langgraph delta", "langgraph_turns:Load", share=0.2, delta=True),
    _entry("dbos", "with_dbos:Load", share=0.5),
    _entry("json file", "with_json:Load"),
)
_CONCURRENT: Final = (
    _entry("floor threads", "crowd_systems:FloorThreads"),
    _entry("floor tasks", "crowd_systems:FloorTasks"),
    _entry("holdfast threads", "crowd_systems:HoldfastThreads"),
    _entry("holdfast tasks", "crowd_systems:HoldfastTasks"),
    _entry("langgraph threads", "crowd_langgraph:LangGraphThreads", share=0.5),
    _entry("langgraph async tasks", "crowd_langgraph:LangGraphTasks", share=0.2),
    _entry("dbos workflows", "crowd_dbos:DbosWorkflows", share=0.1),
    _entry("json file threads", "crowd_systems:JsonThreads", share=0.5),
)

PLANS: Final = {
    plan.name: plan
    for plan in (
        Plan("save", "save a 1 KB state, one after another", _SAVE, {"": 100}, 10, per_operation),
        Plan("save_tmpfs", "the same in memory", _SAVE, {"": 100}, 10, per_operation, memory=True),
        Plan(
            "turns",
            "1,000 turns, each adding a 1 KB message and saving",
            (*_TURNS, _entry("dbos", "with_dbos:Turns")),
            {"": 50},
            20,
            per_turn,
            fresh=True,
        ),
        Plan(
            "turns_edit",
            "edit an old message of 1,000 and save",
            _TURNS,
            {"": 25},
            4,
            per_turn,
            fresh=True,
            options={"start": 1000, "edit": True},
        ),
        Plan(
            "turns_blob",
            "add a 1 KB message beside a blob of 1 MB that stays, and save",
            _TURNS,
            {"": 25},
            4,
            per_turn,
            fresh=True,
            options={"blob": True},
        ),
        Plan(
            "load",
            "load the latest of 1,000 turns, the one halfway, and the history of all",
            _LOAD,
            {"latest": 20, "halfway": 20, "history": 5},
            1,
            per_kind,
            turns=1000,
        ),
        Plan("concurrent", "64 threads or 64 asyncio tasks saving 64 runs", _CONCURRENT, {"": 1280}, 3, per_operation),
    )
}

GROUPS: Final = {
    "save": ("save",),
    "save_tmpfs": ("save_tmpfs",),
    "turns": ("turns", "turns_edit", "turns_blob"),
    "load": ("load",),
    "concurrent": ("concurrent",),
}


def quick(plan: Plan) -> Plan:
    """A shorter one, to see that everything runs. Its numbers mean little."""
    return replace(plan, passes=max(1, plan.passes // 4), turns=plan.turns // 4, options=_quick_options(plan.options))


def _quick_options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**options, "start": 250} if "start" in options else options

"""The targets, and whether they were met."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import ormsgpack

from bench.data import message
from bench.results import Result, Spread
from bench.saver_plans import LOAD_PLANS, PLACES, TURN_PLANS, message_bytes
from bench.scale_plans import KINDS


@dataclass(frozen=True)
class Target:
    """A bound on one number of a workload."""

    workload: str
    what: str
    value: Callable[[Result], Spread | None]
    bound: float
    most: bool = False
    """Whether the bound is the most there may be; else it is the least."""
    stretch: float | None = None
    beyond: bool = False
    """Whether nobody asked for it, and it is only there to be fair."""

    def verdict(self, found: Spread) -> str:
        """Met, or missed by how much."""
        if self.beyond:
            return "no target: " + ("reached" if self._within(found.median, self.bound) else "not reached")
        if self._within(found.median, self.bound):
            if self.stretch is None:
                return "met"
            reached = self._within(found.median, self.stretch)
            return (
                "met, stretch too"
                if reached
                else f"met; stretch {self.stretch:g} missed by {self._gap(self.stretch, found)}"
            )
        return f"MISSED by {self._gap(self.bound, found)}"

    def _within(self, value: float, bound: float) -> bool:
        return value <= bound if self.most else value >= bound

    def _gap(self, bound: float, found: Spread) -> str:
        return f"{abs(found.median - bound) / bound:.0%}"


@dataclass(frozen=True)
class Judged:
    """A row of a table of targets."""

    target: Target
    found: Spread | None
    run: bool
    """Whether the workload was run this time, even if it failed."""

    @property
    def cells(self) -> tuple[str, ...]:
        target, found = self.target, self.found
        wanted = f"{'<=' if target.most else '>='} {target.bound:g}"
        verdict = target.verdict(found) if found else "not measured"
        return f"{target.workload}: {target.what}", wanted, "-" if found is None else str(found), verdict


def _part(system: str, of: str, number: str = "us") -> Callable[[Result], Spread | None]:
    return lambda result: result.part(system, of, number)


def _times(number: str, of: str) -> Callable[[Result], Spread | None]:
    return lambda result: result.times("holdfast", number, of)


def _growth(result: Result) -> Spread | None:
    return result.spread("holdfast", "growth")


def _bytes_kept(result: Result) -> Spread | None:
    found = result.spread("holdfast", "bytes")
    return found and Spread(*(value / raw_bytes(result.plan.total) for value in found))


def _taken(system: str, number: str = "bytes") -> Callable[[Result], Spread | None]:
    """What is on disk, times the text of the messages."""

    def found(result: Result) -> Spread | None:
        taken = result.spread(system, number)
        return taken and Spread(*(value / (result.plan.total * result.plan.raw_each) for value in taken))

    return found


def _longest(result: Result) -> Spread | None:
    """A turn of the longest conversation, times one of the shortest."""
    rounds = result.rounds.get("holdfast tracked", [])
    return Spread.of([one["long_us"] / one["short_us"] for one in rounds]) if rounds else None


def raw_bytes(turns: int) -> int:
    """The bytes of so many messages, packed one by one."""
    return sum(len(ormsgpack.packb(message(number))) for number in range(turns))


def _bytes_grown(result: Result) -> Spread | None:
    """Without what an empty database takes."""
    found = result.spread("holdfast", "bytes_each")
    turns = result.plan.total
    return found and Spread(*(value * turns / raw_bytes(turns) for value in found))


def _times_messages(system: str, number: str = "bytes") -> Callable[[Result], Spread | None]:
    """What the whole store takes, or what it has grown by since it was empty."""

    def found(result: Result) -> Spread | None:
        taken = result.spread(system, number)
        return taken and Spread(*(value / message_bytes(result.plan.total) for value in taken))

    return found


def _saver_times(column: str, delta: str) -> Callable[[Result], Spread | None]:
    return lambda result: result.times(f"holdfast{delta}", f"{column}_us", f"langgraph{delta}")


_SAVER_BYTES: Final = (
    ("SQLite, times the messages", "holdfast sqlite", "bytes", False),
    ("PostgreSQL, times the messages", "holdfast postgres", "bytes", False),
    ("PostgreSQL, without the empty schema", "holdfast postgres", "grown_bytes", True),
)
_SAVER: Final = (
    *(
        Target(plan.name, f"{column}{delta}, times LangGraph's saver", _saver_times(column, delta), 1.0, most=True)
        for plan in (*TURN_PLANS, *LOAD_PLANS)
        for delta in ("", " delta")
        for column in (plan.columns if plan in LOAD_PLANS else PLACES)
    ),
    *(
        Target("saver_bytes", what, _times_messages(system, number), 3.0, most=True, beyond=beyond)
        for what, system, number, beyond in _SAVER_BYTES
    ),
)

_BOUNDED: Final = [kind for kind in KINDS if kind not in ("counts", "stats")]
"""The operations that shall cost the same in a large store; counts and stats only have no cost for each run."""


def _scale(workload: str) -> tuple[Target, ...]:
    return tuple(
        Target(workload, f"{kind}, times 1,000 runs", _times_small(f"{kind}_us"), 2.0, most=True) for kind in _BOUNDED
    )


def _times_small(number: str) -> Callable[[Result], Spread | None]:
    return lambda result: result.times("1,000,000 runs", number, "1,000 runs")


SECTIONS: Final[Mapping[str, tuple[Target, ...]]] = {
    "sqlite": (
        Target("save", "of the floor's speed", _part("holdfast", "floor apsw"), 0.8),
        Target("save_tmpfs", "of LangGraph's speed", _part("holdfast", "langgraph"), 1.0),
        Target("save_tmpfs", "of LangGraph's put alone", _part("holdfast", "langgraph put only"), 1.0, beyond=True),
        Target("turns", "of the floor's speed", _part("holdfast", "floor append"), 0.5),
        Target("turns", "tracked, of the floor's speed", _part("holdfast tracked", "floor append"), 0.55),
        Target("turns", "last tenth of the saves, times the first", _growth, 2.0, most=True),
        Target("turns", "bytes kept, times the raw messages", _bytes_kept, 1.5, most=True, stretch=1.0),
        Target("tracked", "a turn at 100,000 messages, times one at 100", _longest, 1.5, most=True),
        Target("shapes", "SQLite, times the messages", _taken("sqlite"), 1.0, most=True),
        Target("shapes", "SQLite, random words", _taken("sqlite, random words"), 1.3, most=True),
        Target("shapes", "directory, blocks", _taken("dir", "block_bytes"), 2.5, most=True),
        Target("shapes", "directory, blocks, random words", _taken("dir, random words", "block_bytes"), 2.5, most=True),
        Target("load", "latest, times the floor", _times("latest_us", "floor blob"), 4.0, most=True),
        Target("load", "latest, times LangGraph", _times("latest_us", "langgraph"), 1.0, most=True),
        Target("load", "halfway, times the floor", _times("halfway_us", "floor blob"), 4.0, most=True),
        Target("load", "halfway, times LangGraph", _times("halfway_us", "langgraph"), 1.0, most=True),
        Target("load", "history, times the floor", _times("history_us", "floor blob"), 20.0, most=True),
        Target("concurrent", "threads, of their floor", _part("holdfast threads", "floor threads"), 0.4, stretch=0.5),
        Target("concurrent", "tasks, of their floor", _part("holdfast tasks", "floor tasks"), 0.4, stretch=0.5),
        Target(
            "concurrent", "tasks, of the threads' floor", _part("holdfast tasks", "floor threads"), 0.4, stretch=0.5
        ),
        *_scale("scale"),
    ),
    "postgres": (
        Target("pg_save", "of the floor's speed", _part("holdfast", "floor psycopg"), 0.8),
        Target("pg_turns", "times DeltaChannel's speed", _part("holdfast", "langgraph delta"), 5.0),
        Target("pg_turns", "bytes kept, times the raw messages", _bytes_grown, 1.5, most=True),
        Target("pg_concurrent", "tasks, of the group's floor", _part("holdfast tasks", "floor group"), 0.9),
        Target("pg_concurrent", "tasks, times a pool of 16", _part("holdfast tasks", "floor pool of 16"), 3.0),
        Target("pg_concurrent", "tasks, times LangGraph", _part("holdfast tasks", "langgraph async tasks"), 15.0),
        Target("pg_claims", "times one by one", _part("holdfast", "floor one by one"), 3.5),
        *_scale("pg_scale"),
    ),
    "engine": (
        Target("steps", "of the floor's speed", _part("holdfast", "floor apsw"), 0.6),
        Target("pauses", "resume, of the floor's speed", _part("holdfast", "floor", "resume_us"), 0.3),
        Target("pauses", "pause and resume, of the floor's speed", _part("holdfast", "floor", "both_us"), 0.35),
        Target("replay", "times reading the journal", _times("replay_us", "floor journal"), 10.0, most=True),
        Target("replay", "times decoding its bare rows", _times("replay_us", "floor rows"), 10.0, most=True),
        Target("loop", "at turn 10,000, times at turn 100", _growth, 1.1, most=True),
        Target("pg_steps", "of the floor's speed", _part("holdfast", "floor psycopg"), 0.5),
        Target("pg_runs", "of the group's floor", _part("holdfast", "floor group"), 0.7),
        Target("pg_runs", "times LangGraph", _part("holdfast", "langgraph"), 15.0),
        Target("pg_runs", "times DBOS", _part("holdfast", "dbos"), 15.0),
        Target("pg_answer", "median, times a bare notification", _times("median_us", "floor notify"), 5.0, most=True),
        Target("pg_answer", "median, times DBOS", _times("median_us", "dbos"), 1.0, most=True),
        Target("pg_answer", "95 of 100, times DBOS", _times("p95_us", "dbos"), 1.0, most=True),
    ),
    "saver": _SAVER,
}
"""The targets, by the section of the document that shows them."""


def judged(results: Mapping[str, Result], run: Collection[str]) -> dict[str, list[Judged]]:
    """Every target, with what was found, by section; sections of which nothing was run are left out."""
    return {
        section: [_judge(target, results.get(target.workload), run) for target in targets]
        for section, targets in SECTIONS.items()
        if any(target.workload in run for target in targets)
    }


def _judge(target: Target, result: Result | None, run: Collection[str]) -> Judged:
    found = target.value(result) if result else None
    return Judged(target, found, target.workload in run)

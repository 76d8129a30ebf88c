"""The workloads of the engine: steps, pauses, many runs at once, replay, loops, and how soon an answer is heard."""

from __future__ import annotations

from statistics import fmean, median
from typing import Final

from bench.plan import Plan, Slices, entry, per_kind, per_operation

_STEPS: Final = (
    entry("floor apsw", "engine_floors:Steps"),
    entry("floor sqlite3", "engine_floors:Steps", stdlib=True),
    entry("holdfast", "engine_holdfast:Steps"),
    entry("langgraph", "engine_langgraph:Steps"),
    entry("dbos", "engine_dbos:Steps"),
)
_PAUSES: Final = (
    entry("floor", "engine_floors:Pauses"),
    entry("holdfast", "engine_holdfast:Pauses"),
    entry("langgraph", "engine_langgraph:Pauses"),
    entry("dbos", "engine_dbos:Pauses"),
)
_REPLAY: Final = (
    entry("floor rows", "engine_holdfast:ReadJournal"),
    entry("floor journal", "engine_holdfast:ReadJournal", public=True),
    entry("holdfast", "engine_holdfast:Replay"),
    entry("langgraph, no replay", "engine_langgraph:Resumed"),
    entry("dbos", "engine_dbos:Replay", share=0.25),
)
_LOOP: Final = (
    entry("floor", "engine_floors:Loop"),
    entry("holdfast", "engine_holdfast:Loop"),
    entry("langgraph", "engine_langgraph:Resumed", early=True),
)
_PG_STEPS: Final = (
    entry("floor psycopg", "engine_floors:PostgresSteps"),
    entry("holdfast", "engine_holdfast:PostgresSteps"),
    entry("langgraph", "engine_langgraph:PostgresSteps"),
    entry("dbos", "engine_dbos:PostgresSteps"),
)
_PG_RUNS: Final = (
    entry("floor pool of 16", "engine_floors:PoolRuns"),
    entry("floor group", "engine_floors:GroupRuns"),
    entry("holdfast", "engine_holdfast:PostgresRuns"),
    entry("langgraph", "engine_langgraph:PostgresRuns"),
    entry("dbos", "engine_dbos:PostgresRuns"),
)
_PG_ANSWER: Final = (
    entry("floor notify", "answers:Notify"),
    entry("holdfast", "answers:Holdfast"),
    entry("dbos", "answers:Dbos"),
)


def per_pause(slices: Slices) -> dict[str, float]:
    """The mean of each half, and of both together."""
    means = {
        kind: fmean(us for found in slices if found["kind"] == kind for us in found["each_us"])
        for kind in ("pause", "resume")
    }
    return {"pause_us": means["pause"], "resume_us": means["resume"], "both_us": sum(means.values())}


def per_loop(slices: Slices) -> dict[str, float]:
    found = per_kind(slices)
    return {**found, "growth": found["late_us"] / found["early_us"]}


def per_answer(slices: Slices) -> dict[str, float]:
    each = sorted(us for found in slices for us in found["each_us"])
    return {"median_us": median(each), "p95_us": each[int(len(each) * 0.95)]}


SQLITE: Final = (
    Plan("steps", "2,000 trivial steps of one run", _STEPS, {"": 100}, 20, per_operation, fresh=True, noun="step"),
    Plan(
        "pauses",
        "500 runs pause at a gate and are resumed with an answer",
        _PAUSES,
        {"pause": 100, "resume": 100},
        5,
        per_pause,
        fresh=True,
        table="parts",
        shown=("pause", "resume", "both"),
    ),
    Plan(
        "replay",
        "resume a run behind 10,000 steps, until its gate is reached again",
        _REPLAY,
        {"replay": 4},
        1,
        per_kind,
        turns=10_000,
        table="times",
    ),
    Plan(
        "loop",
        "resume a durable loop at turn 100 and at turn 10,000",
        _LOOP,
        {"early": 20, "late": 20},
        1,
        per_loop,
        turns=10_000,
        table="times",
    ),
)
POSTGRES: Final = (
    Plan(
        "pg_steps",
        "PostgreSQL: 2,000 trivial steps of one run",
        _PG_STEPS,
        {"": 100},
        20,
        per_operation,
        fresh=True,
        noun="step",
    ),
    Plan("pg_runs", "PostgreSQL: 64 runs at once of 50 steps", _PG_RUNS, {"": 3200}, 1, per_operation, noun="step"),
    Plan(
        "pg_answer",
        "PostgreSQL: from an answer in one process to the next step in another",
        _PG_ANSWER,
        {"": 25},
        2,
        per_answer,
        table="times",
        shown=("median", "p95"),
    ),
)

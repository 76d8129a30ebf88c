"""The workloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from bench import engine_plans, saver_plans, scale_plans
from bench.data import MESSAGE_BYTES
from bench.plan import Plan, entry, per_kind, per_kind_mean, per_operation, per_turn

_SAVE: Final = (
    entry("floor apsw", "floors:RawInsert"),
    entry("floor sqlite3", "floors:RawInsertStdlib"),
    entry("holdfast", "with_holdfast:Save"),
    entry("holdfast claim", "with_holdfast:Save", claim=True),
    entry("langgraph", "with_langgraph:Save"),
    entry("langgraph put only", "with_langgraph:Save", prebuilt=True),
    entry("dbos", "with_dbos:Save", share=0.1),
    entry("json file", "with_json:Save"),
)
_TURNS: Final = (
    entry("floor append", "floors:Append"),
    entry("holdfast", "with_holdfast:Turns"),
    entry("holdfast tracked", "with_holdfast:Turns", tracked=True),
    entry("langgraph", "langgraph_turns:Turns"),
    entry("langgraph delta", "langgraph_turns:Turns", delta=True),
    entry("json file", "with_json:Turns"),
)
_LONG: Final = (
    entry("floor append", "floors:AppendLong"),
    entry("holdfast tracked", "with_holdfast:Tracked"),
)
_SHAPES: Final = (
    entry("sqlite", "with_holdfast:Turns"),
    entry("sqlite, random words", "with_holdfast:Turns", words=True),
    entry("dir", "with_holdfast:Turns", folder=True),
    entry("dir, random words", "with_holdfast:Turns", folder=True, words=True),
)
_LOAD: Final = (
    entry("floor blob", "floors:OneBlob"),
    entry("holdfast", "with_holdfast:Load"),
    entry("langgraph", "langgraph_turns:Load", share=0.2),
    entry("langgraph saver", "langgraph_turns:LoadTuple", share=0.2),
    entry("langgraph delta", "langgraph_turns:Load", share=0.2, delta=True),
    entry("dbos", "with_dbos:Load", share=0.5),
    entry("json file", "with_json:Load"),
)
_CONCURRENT: Final = (
    entry("floor threads", "crowd_systems:FloorThreads"),
    entry("floor tasks", "crowd_systems:FloorTasks"),
    entry("holdfast threads", "crowd_systems:HoldfastThreads"),
    entry("holdfast tasks", "crowd_systems:HoldfastTasks"),
    entry("langgraph threads", "crowd_langgraph:LangGraphThreads", share=0.5),
    entry("langgraph async tasks", "crowd_langgraph:LangGraphTasks", share=0.2),
    entry("dbos workflows", "crowd_dbos:DbosWorkflows", share=0.1),
    entry("json file threads", "crowd_systems:JsonThreads", share=0.5),
)

SQLITE: Final = {
    plan.name: plan
    for plan in (
        Plan("save", "save a 1 KB state, one after another", _SAVE, {"": 100}, 10, per_operation),
        Plan("save_tmpfs", "the same in memory", _SAVE, {"": 100}, 10, per_operation, memory=True),
        Plan(
            "turns",
            "1,000 turns, each adding a 1 KB message and saving",
            (*_TURNS, entry("dbos", "with_dbos:Turns")),
            {"": 50},
            20,
            per_turn,
            fresh=True,
            table="turns",
        ),
        Plan(
            "turns_edit",
            "edit an old message of 1,000 and save",
            _TURNS,
            {"": 25},
            4,
            per_turn,
            fresh=True,
            table="turns",
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
            table="turns",
            options={"blob": True},
        ),
        Plan(
            "tracked",
            "add a 1 KB message to a tracked state with 100, 10,000 and 100,000 messages, and save",
            _LONG,
            {"short": 20, "middle": 20, "long": 20},
            4,
            per_kind_mean,
            table="times",
            options={"lengths": (100, 10_000, 100_000)},
            noun="turn",
        ),
        Plan(
            "shapes",
            "what 1,000 turns of 1 KB messages take on disk, by the text of the messages",
            _SHAPES,
            {"": 50},
            20,
            per_turn,
            fresh=True,
            timed=False,
            table="bytes",
            raw_each=MESSAGE_BYTES,
        ),
        Plan(
            "load",
            "load the latest of 1,000 turns, the one halfway, and the history of all",
            _LOAD,
            {"latest": 20, "halfway": 20, "history": 5},
            1,
            per_kind,
            turns=1000,
            table="times",
        ),
        Plan("concurrent", "64 threads or 64 asyncio tasks saving 64 runs", _CONCURRENT, {"": 1280}, 3, per_operation),
        scale_plans.SQLITE,
    )
}

_PG_SAVE: Final = (
    entry("floor psycopg", "postgres_floors:RawInsert"),
    entry("holdfast", "postgres_holdfast:Save"),
    entry("holdfast claim", "postgres_holdfast:Save", claim=True),
    entry("langgraph", "postgres_langgraph:Save"),
    entry("dbos", "postgres_dbos:Save", share=0.1),
)
_PG_TURNS: Final = (
    entry("floor append", "postgres_floors:Append"),
    entry("holdfast", "postgres_holdfast:Turns"),
    entry("langgraph delta", "postgres_langgraph:Turns"),
    entry("dbos", "postgres_dbos:Turns"),
)
_PG_CONCURRENT: Final = (
    entry("floor pool of 16", "postgres_floors:PoolTasks"),
    entry("floor group", "postgres_floors:GroupTasks"),
    entry("holdfast threads", "postgres_holdfast:StoreThreads"),
    entry("holdfast tasks", "postgres_holdfast:StoreTasks"),
    entry("langgraph async tasks", "postgres_langgraph:SaverTasks", share=0.2),
    entry("dbos workflows", "postgres_dbos:Workflows", share=0.1),
)
_PG_CLAIMS: Final = (
    entry("floor one by one", "drains:OneByOne"),
    entry("holdfast", "drains:Holdfast"),
    entry("holdfast one by one", "drains:HoldfastOneByOne"),
)

POSTGRES: Final = {
    plan.name: plan
    for plan in (
        Plan("pg_save", "PostgreSQL: save a 1 KB state, one after another", _PG_SAVE, {"": 100}, 10, per_operation),
        Plan(
            "pg_turns",
            "PostgreSQL: 1,000 turns, each adding a 1 KB message and saving",
            _PG_TURNS,
            {"": 50},
            20,
            per_turn,
            fresh=True,
            table="turns",
        ),
        Plan("pg_concurrent", "PostgreSQL: 64 tasks saving 64 runs", _PG_CONCURRENT, {"": 1280}, 3, per_operation),
        Plan("pg_claims", "PostgreSQL: 4 processes empty a queue", _PG_CLAIMS, {"": 500}, 3, per_operation),
        scale_plans.POSTGRES,
    )
}
ENGINE: Final = {plan.name: plan for plan in engine_plans.SQLITE}
ENGINE_POSTGRES: Final = {plan.name: plan for plan in engine_plans.POSTGRES}
PLANS: Final = {**SQLITE, **POSTGRES, **ENGINE, **ENGINE_POSTGRES, **saver_plans.PLANS}
NEED_POSTGRES: Final = {*POSTGRES, *ENGINE_POSTGRES, *saver_plans.GROUPS}

GROUPS: Final = {
    "save": ("save",),
    "save_tmpfs": ("save_tmpfs",),
    "turns": ("turns", "turns_edit", "turns_blob"),
    "tracked": ("tracked",),
    "shapes": ("shapes",),
    "load": ("load",),
    "concurrent": ("concurrent",),
    "scale": ("scale",),
    **{name: (name,) for name in (*POSTGRES, *ENGINE, *ENGINE_POSTGRES)},
    **saver_plans.GROUPS,
}


def quick(plan: Plan) -> Plan:
    """A shorter one, to see that everything runs. Its numbers mean little."""
    entries = tuple(replace(one, options=_quick_options(one.options)) for one in plan.entries)
    options = _quick_options(plan.options)
    return replace(plan, entries=entries, passes=max(1, plan.passes // 4), turns=plan.turns // 4, options=options)


def _quick_options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    if "lengths" in options:
        return {**options, "lengths": (100, 500, 2000)}
    if "runs" in options:
        return {**options, "runs": min(options["runs"], scale_plans.RUNS_QUICK)}
    return {**options, "start": 250} if "start" in options else options

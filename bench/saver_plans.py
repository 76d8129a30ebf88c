"""The workloads of the LangGraph saver: a chat of 400 turns, what it takes on disk, and reading it."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, median
from typing import Any, Final

from bench.data import MESSAGE_BYTES
from bench.plan import Entry, Plan, Slices, entry, per_kind

TURNS: Final = 400
_SLICE: Final = 20
PLACES: Final = ("first", "middle", "last")

COMPARED: Final = (
    ("holdfast", "langgraph"),
    ("holdfast delta", "langgraph delta"),
    ("holdfast", "langgraph delta"),
    ("holdfast", "floor in memory"),
    ("langgraph", "floor in memory"),
)
"""Whose time is shown as times whose."""


def per_place(slices: Slices) -> dict[str, float]:
    """The median of the first 20 turns, of the 20 around the middle, and of the last 20; and the mean of all."""
    each = [us for found in slices for us in found["each_us"]]
    half, middle = _SLICE // 2, len(each) // 2
    first, last = median(each[:_SLICE]), median(each[-_SLICE:])
    return {
        "first_us": first,
        "middle_us": median(each[middle - half : middle + half]),
        "last_us": last,
        "mean_us": fmean(each),
        "growth": last / first,
    }


def message_bytes(turns: int) -> int:
    """The text of all messages of a chat."""
    return turns * 2 * MESSAGE_BYTES


def _chats(place: str, subject: str, *, here: str = "") -> tuple[Entry, ...]:
    """The two floors, and both savers with `add_messages` and with DeltaChannel."""
    return (
        entry("floor objects", here or subject, saver="objects"),
        entry("floor in memory", here or subject, saver="memory"),
        entry("holdfast", subject, saver="holdfast", place=place),
        entry("langgraph", subject, saver="langgraph", place=place),
        entry("holdfast delta", subject, saver="holdfast", place=place, delta=True),
        entry("langgraph delta", subject, saver="langgraph", place=place, delta=True),
    )


def _turns(name: str, title: str, place: str, options: Mapping[str, Any]) -> Plan:
    return Plan(
        name,
        f"{title}: 400 turns of a chat, 1 KB in and 1 KB out",
        _chats(place, "saver_turns:Turns"),
        {"": _SLICE},
        TURNS // _SLICE,
        per_place,
        fresh=True,
        table="beside",
        options=options,
        shown=(*PLACES, "mean"),
        compared=COMPARED,
    )


def _load(name: str, title: str, place: str) -> Plan:
    return Plan(
        name,
        f"{title}: get_state of 800 messages, the newest 20 of get_state_history, and both opening and get_state "
        "in a new process",
        _chats(place, "saver_load:Load", here="saver_load:LoadHere"),
        {"state": 20, "history": 3, "open": 2, "cold": 2},
        1,
        per_kind,
        turns=TURNS,
        table="beside",
        compared=COMPARED,
    )


_BYTES: Final = tuple(
    entry(f"{saver} {place}" + (" delta" if delta else ""), "saver_turns:Turns", saver=saver, place=place, delta=delta)
    for saver, places in (("holdfast", ("sqlite", "postgres", "dir")), ("langgraph", ("sqlite", "postgres")))
    for place in places
    for delta in (False, True)
)

_SYNC: Final = {"durability": "sync"}
TURN_PLANS: Final = (
    _turns("saver_turns", 'SQLite, durability="sync"', "sqlite", _SYNC),
    _turns("saver_turns_default", "SQLite, LangGraph's default durability", "sqlite", {}),
    _turns("pg_saver_turns", 'PostgreSQL, durability="sync"', "postgres", _SYNC),
    _turns("pg_saver_turns_default", "PostgreSQL, LangGraph's default durability", "postgres", {}),
)
BYTES_PLAN: Final = Plan(
    "saver_bytes",
    "what 400 turns of a chat take on disk, all checkpoints kept",
    _BYTES,
    {"": 100},
    TURNS // 100,
    per_place,
    fresh=True,
    timed=False,
    table="bytes",
    raw_each=2 * MESSAGE_BYTES,
    options=_SYNC,
)
LOAD_PLANS: Final = (_load("saver_load", "SQLite", "sqlite"), _load("pg_saver_load", "PostgreSQL", "postgres"))
GROUPS: Final = {
    "saver_turns": tuple(plan.name for plan in TURN_PLANS),
    "saver_bytes": (BYTES_PLAN.name,),
    "saver_load": tuple(plan.name for plan in LOAD_PLANS),
}
PLANS: Final = {plan.name: plan for plan in (*TURN_PLANS, BYTES_PLAN, *LOAD_PLANS)}

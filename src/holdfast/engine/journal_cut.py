"""The cut of a rollback, a fork or a retry: the entries it removes.

A rollback to position P keeps the entries up to P and removes the rest. A call that began before P and ended after it
is removed whole: its entries up to P are *void*. A fork also voids calls that had not ended by P (an open gate, a
sleep, a child), because gates, timers and children belong to one run. An example, with the calls a, b and c:

    position   1 started   2 a: asked   3 b: step   4 a: answered   5 c: asked
    to=3       removes 4 and 5. Entry 2 is void, so a is removed whole. b is kept.
    to=5       keeps everything in a rollback. In a fork entry 5 is void, and the fork asks c again.

A retry of a failed run removes the entry `failed` and the call that failed, and keeps all finished work. A failed step
is removed whole. So is a failed effect, but its idempotency key is kept; if its exception did not prove that nothing
happened, the effect is in doubt from then on. Of an effect in doubt only the outcome is removed, so its policy decides
again. A failed child stays, and is retried itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from holdfast.engine.commands import EntryData
from holdfast.engine.failures import FailureData
from holdfast.engine.record import FINAL, Calls, Positioned, calls_of
from holdfast.engine.resume_point import Tokens
from holdfast.model.rows import FAILED


class RollbackCut(msgspec.Struct):
    """What a rollback, a fork or a retry removes."""

    to: int
    void: list[int] = []
    """Positions up to `to` that are removed as well."""
    keys: set[str] = set()
    """Effects whose record is removed."""
    calls: list[str] = []
    """The full names of all calls that are removed."""
    gates: list[str] = []
    timers: list[str] = []
    children: list[TakenChild] = []
    undone: set[str] = set()
    """Effects whose compensation is removed."""
    events: list[EntryData] = []
    """Events received since, oldest first; they can be received again."""
    tokens: Tokens = {}
    """Failed effects that a retry performs under their old idempotency key."""


class TakenChild(msgspec.Struct, frozen=True):
    """A child whose call is removed."""

    run_id: str
    position: int
    """The position of its start."""
    detached: bool
    ended: bool = False
    """Its end is recorded, so it existed."""


def cut_at(live: list[Positioned], to: int, *, fork: bool = False, run_ended: bool = False) -> RollbackCut:
    """The cut of this live path at position `to`.

    `run_ended`: the end of the run closed gates and stopped children that were open at `to`, so these are removed too.
    """
    cut = RollbackCut(to)
    kept: set[str] = set()
    progress = max((at for at, entry in live if at <= to and ("call" in entry or entry["kind"] == "turn")), default=0)
    for name, entries in calls_of(live).items():
        removed = entries
        if entries[-1][0] <= to and not (fork and not _is_finished(entries, progress)):
            removed = _closed_by_end(entries) if run_ended else []
        if len(removed) < len(entries):
            kept |= {entry["key"] for _, entry in entries if is_about_effect(entry)}
        else:
            cut.calls.append(name)
        cut.void += [position for position, _ in removed if position <= to]
        _note_removed(cut, removed, entries[-1][1])
    cut.keys -= kept  # a later call with an explicit key only repeated the record of the call that stays
    cut.events.sort(key=lambda entry: int(entry["position"]))
    return cut


def _closed_by_end(entries: list[Positioned]) -> list[Positioned]:
    """The entries of an open call that the end of the run closed: its gate or child. An effect stays in doubt."""
    last = entries[-1][1]
    if last["kind"] == "asked":
        return entries[-1:] if any(is_about_effect(entry) for _, entry in entries) else entries
    return entries if last["kind"] == "child" and not last["detached"] else []


def _is_finished(entries: list[Positioned], progress: int) -> bool:
    """Whether the call is over; `progress`: the last position at which the run made progress."""
    at, last = entries[-1]
    # A breakpoint was passed only if an entry follows it; so was a detached child, if the journal is older than
    # `child_started`.
    if last["kind"] == "breakpoint" or (last["kind"] == "child" and last["detached"]):
        return at < progress
    return last["kind"] in FINAL


def is_about_effect(entry: EntryData) -> bool:
    """Whether the entry records an effect; one that only repeats the record of its key does not."""
    return entry["kind"] in ("intent", "outcome") and "key" in entry and entry.get("how") != "recorded"


def _note_removed(cut: RollbackCut, removed: list[Positioned], last: EntryData) -> None:
    """Add removed entries of one call to the cut; `last` is the last entry of the call."""
    for position, entry in removed:
        if is_about_effect(entry):
            cut.keys.add(entry["key"])
        if entry["kind"] == "undone":
            cut.undone.add(entry["key"])
        if entry["kind"] == "asked":
            cut.gates.append(entry["gate"])
        if "timer" in entry:
            cut.timers.append(entry["timer"])
        if entry["kind"] == "child":
            is_over = last["kind"] == "child_ended"
            cut.children.append(TakenChild(entry["child"], position, entry["detached"], is_over))
        if entry["kind"] == "received" and "timeout" not in entry:
            facts = {name: entry.get(name) for name in ("event", "value", "by", "item")}
            cut.events.append({"position": position, **facts})


# --- retries ---

_FAILURES: Final = ("StepFailed", "EffectFailed", "EffectInDoubt", "ResultLost", "ChildFailed")


def repair_cut(live: list[Positioned], is_lost: Callable[[str], bool]) -> RollbackCut | None:
    """The cut of a retry of this live path; None if it does not end in a failure.

    `is_lost`: whether a child run cannot continue, because it was cancelled or deleted.
    """
    if not live or live[-1][1]["kind"] != FAILED:
        return None
    last, end = live[-1]
    calls = calls_of(live)
    failed = failed_calls(calls, end.get("error") or {})
    kept = {name: _kept_positions(calls[name], is_lost) for name in failed}
    to = last - 1
    if any(_has_later_calls(calls, name) for name in failed):  # the later calls are removed as well
        first = min(calls[name][0][0] for name in failed)
        to = max([first - 1, *(position for positions in kept.values() for position in positions)])
    cut = RollbackCut(max(1, to), tokens=_pending_tokens(live))
    for name, entries in calls.items():
        keep = kept.get(name, [position for position, _ in entries if position <= to])
        if name not in failed and (len(keep) < len(entries) or _is_open(entries)):
            keep = []
        if len(keep) == len(entries):
            continue
        cut.void += [position for position, _ in entries if position <= to and position not in keep]
        cut.calls.append(name)
        _note_removed(cut, [each for each in entries if each[0] not in keep], entries[-1][1])
        if name in failed:
            cut.tokens |= _tokens(entries, sum(entry["kind"] == "intent" for at, entry in entries if at in keep))
    cut.events.sort(key=lambda entry: int(entry["position"]))
    cut.keys -= {
        entry["key"] for name in calls for at, entry in calls[name] if is_about_effect(entry) and _stays(cut, at)
    }
    return cut


def failed_children(live: list[Positioned]) -> list[str]:
    """The child runs whose failure failed the run."""
    calls = calls_of(live)
    lasts = [calls[name][-1][1] for name in failed_calls(calls, live[-1][1].get("error") or {})]
    return [last["child"] for last in lasts if last["kind"] == "child_ended"]


def failed_calls(calls: Calls, failure: FailureData) -> list[str]:
    """The calls whose failure failed the run; empty if the workflow's own code failed."""
    found: list[str] = []
    types: list[str] = []
    causes = [failure]
    while causes and not found:
        types += [cause.get("type", "") for cause in causes]
        found = [
            name for name, entries in calls.items() if any(_is_failed_call(name, entries, cause) for cause in causes)
        ]
        inner = [part for cause in causes for part in (cause.get("cause"), *cause.get("members", []))]
        causes = [part for part in inner if isinstance(part, dict)]
    if not found and calls:
        name = max(calls, key=lambda name: calls[name][-1][0])
        entry = calls[name][-1][1]
        # An effect whose failure the code handled is not performed again because of an error in other code.
        if is_failed(entry) and (entry["kind"] != "outcome" or any(kind in _FAILURES for kind in types)):
            found = [name]
    for name in list(found):
        found += _failed_map_items(calls, name)
    return found


def is_failed(entry: EntryData) -> bool:
    """Whether a call with this last entry has raised."""
    return "error" in entry or bool(entry.get("failed"))


def _is_failed_call(name: str, entries: list[Positioned], failure: FailureData) -> bool:
    last = entries[-1][1]
    if not is_failed(last):
        return False
    return name == failure.get("call") or ("child" in failure and last.get("child") == failure["child"])


def _failed_map_items(calls: Calls, name: str) -> list[str]:
    """The other failed items of the same `run.map`: only the map itself has received their errors."""
    path = calls[name][0][1].get("in", "")
    if not path.endswith("]"):
        return []
    group = path[: path.rindex("[")]
    if calls.get(group, [(0, {"kind": ""})])[0][1]["kind"] != "map":
        return []
    return [
        other
        for other, entries in calls.items()
        if other != name and entries[0][1].get("in", "").startswith(f"{group}[") and is_failed(entries[-1][1])
    ]


def _has_later_calls(calls: Calls, name: str) -> bool:
    """Whether the flow that made this call made another one after it."""
    at, path, end = calls[name][0][0], calls[name][0][1].get("in", ""), calls[name][-1][0]
    for other, entries in calls.items():
        first, entry = entries[0]
        scope = entry.get("in", "")
        # A shortened path ("…") hides the scopes around it, so every scope may be one of them.
        around = scope in ("", path) or path.startswith((f"{scope}/", "…"))
        if first > end and around and any(is_about_effect(each) for _, each in entries):
            return True  # with any key: it was performed because this call had failed
        if first > at and around and "keyed" not in entry and not path.startswith(f"{other}["):
            return True
    return False


def _kept_positions(entries: list[Positioned], is_lost: Callable[[str], bool]) -> list[int]:
    """The positions of a failed call that a retry keeps."""
    last = entries[-1][1]
    if last["kind"] == "child_ended":
        return [] if is_lost(last["child"]) else [position for position, _ in entries[:-1]]
    if last.get("doubt"):
        intent = max((i for i, (_, entry) in enumerate(entries) if entry["kind"] == "intent"), default=-1)
        return [position for position, _ in entries[: intent + 1]]
    return []


def _is_open(entries: list[Positioned]) -> bool:
    """Whether a call was in flight when the run failed, which closed its gate, timer or child.

    An effect in flight stays in doubt.
    """
    last = entries[-1][1]
    if any(is_about_effect(entry) for _, entry in entries):
        return False
    return last["kind"] not in FINAL and not (last["kind"] == "child" and last["detached"])


def _stays(cut: RollbackCut, position: int) -> bool:
    return position <= cut.to and position not in cut.void


def _pending_tokens(live: list[Positioned]) -> Tokens:
    """The idempotency keys that an earlier retry kept: it may have failed again before it reached the effect."""
    rollbacks = [entry for _, entry in live if entry["kind"] == "rolled_back"]
    return dict(rollbacks[-1].get("tokens", {})) if rollbacks else {}


def _tokens(entries: list[Positioned], intents: int) -> Tokens:
    """The idempotency key of a failed effect, the digest of its arguments, and the reason if it is in doubt.

    `intents`: the number of its intents that are kept. The next one makes the reason obsolete.
    """
    first, last = entries[0][1], entries[-1][1]
    if last["kind"] != "outcome" or "key" not in first:
        return {}
    token = next((entry["token"] for _, entry in reversed(entries) if "token" in entry), None)
    facts = [first.get("digest"), token, first.get("epoch", 0)]
    return {first["key"]: facts if last.get("proven") else [*facts, _reason(last), intents]}


def _reason(outcome: EntryData) -> str:
    """Why it is unknown whether a failed effect happened."""
    error = outcome["error"]
    return str(error["message"] if outcome.get("doubt") else f"it raised {error['type']}: {error['message']}")

"""Repair: what a retry of a failed run takes back. Pure.

A retry takes back the entry `failed` and the call that failed, and keeps all finished work. A failed step is taken back
whole. A failed effect is too, but its idempotency key is kept; if its exception did not prove that nothing happened it
is in doubt from then on. Of an effect in doubt only what came of the doubt is taken back, so its policy decides again.
A failed child stays, and is retried itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.engine.commands import EntryData
from holdfast.engine.goingback import Cut, note_taken_back, tells_of_effect
from holdfast.engine.record import FINAL, Positioned, full_name
from holdfast.model.status import FAILED

Calls = dict[str, list[Positioned]]
"""The entries of each call, by its full name."""

_FAILURES: Final = ("StepFailed", "EffectFailed", "EffectInDoubt", "ResultLost", "ChildFailed")


def repair_cut(live: list[Positioned], is_lost: Callable[[str], bool]) -> Cut | None:
    """What a retry takes back of this live path; None if it does not end in a failure.

    `is_lost`: whether a child run cannot go on, since it was cancelled or is gone.
    """
    if not live or live[-1][1]["kind"] != FAILED:
        return None
    last, end = live[-1]
    calls = _calls(live)
    failed = failed_calls(calls, end.get("error") or {})
    kept = {name: _kept(calls[name], is_lost) for name in failed}
    to = last - 1
    if any(_went_on(calls, name) for name in failed):  # its code made other calls after it: they are taken back too
        first = min(calls[name][0][0] for name in failed)
        to = max([first - 1, *(position for positions in kept.values() for position in positions)])
    cut = Cut(max(1, to), [], set(), [], [], [], [], set(), [], _pending_tokens(live))
    for name, entries in calls.items():
        keep = kept.get(name, [position for position, _ in entries if position <= to])
        if name not in failed and (len(keep) < len(entries) or _is_open(entries)):
            keep = []
        if len(keep) == len(entries):
            continue
        cut.void += [position for position, _ in entries if position <= to and position not in keep]
        cut.calls.append(name)
        ended = entries[-1][1]["kind"] == "child_ended"
        for position, entry in entries:
            if position not in keep:
                note_taken_back(cut, position, entry, ended=ended)
        if name in failed:
            cut.tokens |= _tokens(entries, sum(entry["kind"] == "intent" for at, entry in entries if at in keep))
    cut.events.sort(key=lambda entry: int(entry["position"]))
    cut.keys -= {
        entry["key"] for name in calls for at, entry in calls[name] if tells_of_effect(entry) and _stays(cut, at)
    }
    return cut


def failed_children(live: list[Positioned]) -> list[str]:
    """The child runs whose failure failed the run."""
    calls = _calls(live)
    lasts = [calls[name][-1][1] for name in failed_calls(calls, live[-1][1].get("error") or {})]
    return [last["child"] for last in lasts if last["kind"] == "child_ended"]


def failed_calls(calls: Calls, failure: dict[str, Any]) -> list[str]:
    """The calls whose failure failed the run; none if the workflow's own code did."""
    found: list[str] = []
    types: list[str] = []
    causes = [failure]
    while causes and not found:
        types += [cause.get("type", "") for cause in causes]
        found = [name for name, entries in calls.items() if any(_is_meant(name, entries, cause) for cause in causes)]
        inner = [part for cause in causes for part in (cause.get("cause"), *cause.get("members", []))]
        causes = [part for part in inner if isinstance(part, dict)]
    if not found and calls:
        name = max(calls, key=lambda name: calls[name][-1][0])
        entry = calls[name][-1][1]
        # An effect that failed and was dealt with is not performed again because of a mistake in other code.
        if is_failed(entry) and (entry["kind"] != "outcome" or any(kind in _FAILURES for kind in types)):
            found = [name]
    for name in list(found):
        found += _beside(calls, name)
    return found


def is_failed(entry: EntryData) -> bool:
    """Whether a call whose last entry this is has raised."""
    return "error" in entry or bool(entry.get("failed"))


def _calls(live: list[Positioned]) -> Calls:
    calls: Calls = {}
    for position, entry in live:
        if "call" in entry and entry["kind"] != "log":
            calls.setdefault(full_name(entry.get("in", ""), entry["call"]), []).append((position, entry))
    return calls


def _is_meant(name: str, entries: list[Positioned], failure: dict[str, Any]) -> bool:
    last = entries[-1][1]
    if not is_failed(last):
        return False
    return name == failure.get("call") or ("child" in failure and last.get("child") == failure["child"])


def _beside(calls: Calls, name: str) -> list[str]:
    """The other items of the same `run.map` that failed: nothing but the map itself has seen their errors."""
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


def _went_on(calls: Calls, name: str) -> bool:
    """Whether the line of work that made this call made another one after it."""
    at, path, ended = calls[name][0][0], calls[name][0][1].get("in", ""), calls[name][-1][0]
    for other, entries in calls.items():
        first, entry = entries[0]
        scope = entry.get("in", "")
        around = scope in ("", path) or path.startswith((f"{scope}/", "…"))
        if first > ended and around and any(tells_of_effect(each) for _, each in entries):
            return True  # whatever its key: it was performed because this one had failed
        if first > at and around and "keyed" not in entry and not path.startswith(f"{other}["):
            return True
    return False


def _kept(entries: list[Positioned], is_lost: Callable[[str], bool]) -> list[int]:
    """The positions of a failed call that a retry keeps."""
    last = entries[-1][1]
    if last["kind"] == "child_ended":
        return [] if is_lost(last["child"]) else [position for position, _ in entries[:-1]]
    if last.get("doubt"):
        intent = max((i for i, (_, entry) in enumerate(entries) if entry["kind"] == "intent"), default=-1)
        return [position for position, _ in entries[: intent + 1]]
    return []


def _is_open(entries: list[Positioned]) -> bool:
    """Whether a call was under way when the run failed, which closed its gate, timer or child.

    An effect under way stays in doubt.
    """
    last = entries[-1][1]
    if any(tells_of_effect(entry) for _, entry in entries):
        return False
    return last["kind"] not in FINAL and not (last["kind"] == "child" and last["detached"])


def _stays(cut: Cut, position: int) -> bool:
    return position <= cut.to and position not in cut.void


def _pending_tokens(live: list[Positioned]) -> dict[str, list[Any]]:
    """The idempotency keys that an earlier retry kept: it may have failed again before it came to that effect."""
    rollbacks = [entry for _, entry in live if entry["kind"] == "rolled_back"]
    return dict(rollbacks[-1].get("tokens", {})) if rollbacks else {}


def _tokens(entries: list[Positioned], intents: int) -> dict[str, list[Any]]:
    """The idempotency key of a failed effect, the digest of the arguments it is for, and why it is in doubt, if so.

    `intents`: how many of its intents are kept. With the next one the reason is out of date.
    """
    first, last = entries[0][1], entries[-1][1]
    if last["kind"] != "outcome" or "key" not in first:
        return {}
    token = next((entry["token"] for _, entry in reversed(entries) if "token" in entry), None)
    facts = [first.get("digest"), token, first.get("epoch", 0)]
    return {first["key"]: facts if last.get("proven") else [*facts, _reason(last), intents]}


def _reason(outcome: EntryData) -> str:
    """Why nobody knows whether a failed effect happened."""
    error = outcome["error"]
    return str(error["message"] if outcome.get("doubt") else f"it raised {error['type']}: {error['message']}")

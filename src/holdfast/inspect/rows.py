"""Rows of call records: the state of each call, how long it took, and a description."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from holdfast.inspect.attempts import attempts_of
from holdfast.inspect.calls import LAST_TURN, CallRecord, JournalEntry, is_retry, number_of, text_of
from holdfast.inspect.views import PendingAnswer, Row
from holdfast.model.rows import TERMINAL
from holdfast.model.views import Effect
from holdfast.operations.views import moment

Facts = dict[str, Any]
"""Fields of a row."""


class RunFacts(msgspec.Struct):
    """Facts about the run that its journal does not contain."""

    status: str
    now_us: int
    held: bool
    """A living owner has claimed it."""
    ledger: Mapping[str, Effect]
    loops: frozenset[str] = frozenset()
    """The full names of all loops."""
    position: int = 0
    """The last position of the journal."""
    answers: Mapping[str, PendingAnswer] = {}
    """The answers that the journal does not have yet, by gate."""

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL

    @property
    def unended(self) -> str:
        """The state of a call that has begun and not ended."""
        return "stopped" if self.ended else "running" if self.held else "waiting"


def time_of(us: object) -> dt.datetime | None:
    """A time from an entry; None if it is not a valid one."""
    try:
        return moment(us) if type(us) is int else None
    except OverflowError:
        return None


def row_of(draft: CallRecord, around: RunFacts) -> Row:
    """The row of a call record."""
    if draft.kind in _CALLS:
        made = _CALLS[draft.kind](draft, around)
    else:
        made = _FACTS.get(draft.kind, _fact)(draft)
    if draft.taken_back:
        made["state"] = "taken_back"
    if made.get("by") and "via" not in made:
        made["via"] = next((text_of(met.data.get("via")) for met in reversed(draft.entries) if "via" in met.data), "")
    started, ended = made.pop("from_us", draft.first.created_us), made.pop("to_us", None)
    made.setdefault("duration_us", None if ended is None else max(0, ended - started))
    return Row(
        kind=draft.kind,
        scope=draft.scope,
        call=draft.call,
        first=draft.first.position,
        last=draft.last.position,
        depth=depth_of(draft.scope, around.loops) + (draft.kind == "turn"),
        started_at=time_of(started),
        ended_at=time_of(ended),
        attempt_rows=attempts_of(draft) if draft.kind in ("step", "effect") else (),
        **{"name": draft.name, **made},
    )


def depth_of(scope: str, loops: frozenset[str]) -> int:
    """Return the depth of a scope: each branch adds one level, each turn of a loop two."""
    depth = at = 0
    while (at := scope.find("[", at)) >= 0:
        depth += 2 if scope[:at] in loops else 1
        at += 1
    return depth or int(bool(scope))


def error_text(error: object) -> str:
    """An error as it is recorded, in one line."""
    if not isinstance(error, dict):
        return ""
    message = str(error.get("message", "")).strip()
    return f"{error.get('type', 'error')}: {message.splitlines()[0] if message else ''}".rstrip(": ")


def _failure(data: Facts) -> Facts:
    error = data.get("error")
    return {"state": "failed", "error": error, "text": error_text(error)} if error is not None else {}


# --- calls -----------------------------------------------------------------------------------------------------------


def _step(draft: CallRecord, around: RunFacts) -> Facts:
    last, attempts = draft.last, sum(met.kind == "attempt" for met in draft.entries)
    if last.kind == "step":
        count = number_of(last.data.get("attempts")) or attempts + 1
        facts: Facts = {"result": last.data.get("result"), "attempts": count, **_failure(last.data)}
        facts |= {} if attempts else {"duration_us": number_of(last.data.get("us"))}
        return {**facts, "from_us": draft.first.began_us, "to_us": last.created_us}
    return {**_unended(last, around), "attempts": attempts, "from_us": draft.first.began_us}


def _unended(last: JournalEntry, around: RunFacts) -> Facts:
    """Return the facts of a call that has not ended."""
    if last.kind == "cancelling":
        return {"state": "cancelled", "by": text_of(last.data.get("by")) or None, "to_us": last.created_us}
    if last.kind == "refused":
        return {**_failure(last.data), "to_us": last.created_us}
    facts: Facts = {"state": around.unended}
    if last.kind == "attempt":
        error = last.data.get("error")
        facts |= {"error": error, "text": f"attempt {number_of(last.data.get('number'))}: {error_text(error)}"}
    return facts


def _effect(draft: CallRecord, around: RunFacts) -> Facts:
    key = next((text_of(met.data.get("key")) for met in draft.entries if "key" in met.data), "")
    line = around.ledger.get(key)
    facts: Facts = {"effect": line, "attempts": 1 + sum(met.kind == "attempt" for met in draft.entries)}
    last = draft.last
    if last.kind == "outcome":
        how, by = text_of(last.data.get("how")), text_of(last.data.get("by"))
        facts |= {"result": last.data.get("result"), "by": by or None, "to_us": last.created_us}
        facts |= {"text": _HOW.get(how, how).format(by=by)} if how else {}
        facts |= _failure(last.data)
        facts |= {"state": "in_doubt"} if last.data.get("doubt") else {}
        us = number_of(last.data.get("us"))
        if us and len(draft.entries) > 1 and facts["attempts"] == 1:
            facts["duration_us"] = us
    elif last.kind in ("intent", "asked", "answered"):
        facts["state"] = "running" if around.held and last.kind == "intent" else "in_doubt"
        facts["text"] = text_of(last.data.get("prompt"))
    else:
        facts |= _unended(last, around)
    if line is not None and line.state == "undone":
        facts["state"] = "undone"
    return facts


_HOW: Final = {
    "checked": "found by its check",
    "answered": "answered by {by}",
    "reused": "reused from run {by}",
    "recorded": "recorded before under the same key",
}


def _ask(draft: CallRecord, around: RunFacts) -> Facts:
    asked, answered = draft.of("asked"), draft.last if draft.last.kind == "answered" else None
    facts: Facts = {"text": text_of(asked.data.get("prompt")) if asked else ""}
    given = None if answered is not None or asked is None else around.answers.get(text_of(asked.data.get("gate")))
    if given is not None and not around.ended:
        return {**facts, "by": given.by, "via": given.via, "result": given.answer, "to_us": given.at_us}
    if answered is None:
        return {**facts, **_unended(draft.last, around), "state": "stopped" if around.ended else "waiting"}
    data = answered.data
    facts |= {"result": data.get("answer"), "to_us": number_of(data.get("at_us")) or answered.created_us}
    approved = [text_of(one.get("by")) for one in data.get("approved") or () if isinstance(one, dict)]
    facts |= {"text": f"{facts['text']} (approved by {', '.join(approved)})"} if approved else {}
    if data.get("expired"):
        return {**facts, "state": "failed" if data.get("failed") else "expired"}
    return {**facts, "by": text_of(data.get("by")) or None}


def _sleep(draft: CallRecord, around: RunFacts) -> Facts:
    due_us = number_of(draft.first.data.get("due_us"))
    if draft.last.kind in ("cancelling", "refused"):
        return _unended(draft.last, around)
    if due_us <= around.now_us:
        return {"to_us": due_us}
    return {"state": "stopped" if around.ended else "waiting", "text": f"until {_iso(due_us)}"}


def _wait(draft: CallRecord, around: RunFacts) -> Facts:
    last, event = draft.last, text_of(draft.first.data.get("event"))
    if last.kind == "received":
        facts: Facts = {"name": event, "result": last.data.get("value"), "by": text_of(last.data.get("by")) or None}
        return {**facts, "to_us": last.created_us, "text": "nothing came in time" if "timeout" in last.data else ""}
    return {"name": event or draft.name, **_unended(last, around)}


def _child(draft: CallRecord, around: RunFacts) -> Facts:
    first, last = draft.first.data, draft.last
    facts: Facts = {"text": text_of(first.get("child")), "name": text_of(first.get("workflow")) or draft.name}
    if last.kind == "child_ended":
        failed = _failure(last.data)
        failed = {**failed, "text": f"{facts['text']}: {failed['text']}"} if failed else {}
        return {**facts, "result": last.data.get("result"), "to_us": last.created_us, **failed}
    if last.kind == "child" and first.get("detached"):
        return {**facts, "to_us": draft.first.created_us}
    return {**facts, **_unended(last, around)}


def _call(draft: CallRecord, around: RunFacts) -> Facts:
    return _unended(draft.last, around)


def _breakpoint(draft: CallRecord, around: RunFacts) -> Facts:
    text = text_of(draft.first.data.get("message"))
    if around.status == "paused" and around.position == draft.last.position:
        return {"state": "waiting", "text": text}
    return {**(_unended(draft.last, around) if draft.last.kind == "cancelling" else {}), "text": text}


def _compensate(draft: CallRecord, around: RunFacts) -> Facts:
    keys = {
        kind: [text_of(met.data.get("key")) for met in draft.entries if met.kind == kind]
        for kind in ("undone", "undo_failed")
    }
    said = [f"undone: {', '.join(keys['undone'])}"] if keys["undone"] else []
    said += [f"not undone: {', '.join(keys['undo_failed'])}"] if keys["undo_failed"] else []
    facts: Facts = {"text": "; ".join(said), "result": {"undone": keys["undone"], "failed": keys["undo_failed"]}}
    if draft.last.kind != "compensated":
        return {**facts, **_unended(draft.last, around)}
    return {**facts, "to_us": draft.last.created_us, "state": "failed" if keys["undo_failed"] else "done"}


def _definition(draft: CallRecord) -> Facts:
    data = draft.first.data
    changes = data.get("changes")
    text = "; ".join(map(str, changes)) if isinstance(changes, list) else ""
    by = text_of(data.get("by")) or None
    return {"name": "migrated" if by else "definition", "text": text, "by": by, "to_us": draft.first.created_us}


def _value(draft: CallRecord) -> Facts:
    return {"result": draft.last.data.get("value"), "to_us": draft.last.created_us}


def _send(draft: CallRecord) -> Facts:
    data = draft.first.data
    return {"name": text_of(data.get("event")), "text": f"to {text_of(data.get('to'))}", "to_us": draft.last.created_us}


def _branches(draft: CallRecord) -> Facts:
    return {"count": number_of(draft.first.data.get("count"))}


def _turn(draft: CallRecord) -> Facts:
    facts: Facts = {"count": number_of(draft.last.data.get("turn"))}
    if draft.last.kind != "turn":
        return {**facts, "text": LAST_TURN}
    facts["to_us"] = draft.last.created_us
    return {**facts, "state": "unsatisfied"} if draft.last.data.get("unsatisfied") else facts


# --- facts -----------------------------------------------------------------------------------------------------------


def _fact(draft: CallRecord) -> Facts:
    data = draft.first.data
    return {"result": {key: part for key, part in data.items() if key != "kind"}, "to_us": draft.first.created_us}


def _started(draft: CallRecord) -> Facts:
    data = draft.first.data
    given = {"args": data.get("args"), "kwargs": data.get("kwargs")}
    given |= {"definition": data["definition"]} if "definition" in data else {}
    name = text_of(data.get("workflow")) or "workflow"
    return {"name": name, "result": given, "to_us": draft.first.created_us}


def _ended(draft: CallRecord) -> Facts:
    data, kind = draft.first.data, draft.first.kind
    facts: Facts = {"name": kind, "result": data.get("result"), "by": text_of(data.get("by")) or None}
    facts |= {**_failure(data), "to_us": draft.first.created_us}
    return {**facts, "state": {"completed": "done", "failed": "failed"}.get(kind, "cancelled")}


def _log(draft: CallRecord) -> Facts:
    data = draft.first.data
    facts = {"name": text_of(data.get("level")) or "log", "text": text_of(data.get("message"))}
    return {**facts, "result": data.get("data"), "to_us": draft.first.created_us}


def _stopped(draft: CallRecord) -> Facts:
    data = draft.first.data
    facts: Facts = {"by": text_of(data.get("by")) or None, "text": text_of(data.get("message"))}
    if draft.kind == "diverged":
        at = number_of(data.get("at"))
        facts |= {"state": "failed", "result": {"at": at} if at else None}
    return {**facts, "to_us": draft.first.created_us}


_RETRIED: Final = "from the call that failed; finished work is kept"


def _rollback(draft: CallRecord, around: RunFacts) -> Facts:
    first, last = draft.first.data, draft.last
    undone = [text_of(met.data.get("key")) for met in draft.entries if met.kind == "undone" and "left" not in met.data]
    place = f"to position {number_of(first.get('to'))}"
    retried = is_retry(draft.first.kind, first)
    facts: Facts = {
        "name": "retry" if retried else "rollback",
        "text": _RETRIED if retried else place + (f", undone: {', '.join(undone)}" if undone else ""),
        "by": text_of(first.get("by")) or None,
        "result": {"to": first.get("to"), "undone": undone},
    }
    if last.kind == "rolled_back":
        return {**facts, "to_us": last.created_us}
    if last.kind == "undo_failed":
        return {**facts, **_failure(last.data)}
    return {**facts, "state": "running" if around.held else "waiting"}


def _forked(draft: CallRecord) -> Facts:
    data = draft.first.data
    text = f"from {text_of(data.get('from'))} at position {number_of(data.get('to'))}"
    return {"name": "fork", "text": text, "by": text_of(data.get("by")) or None, "to_us": draft.first.created_us}


def _pruned(draft: CallRecord) -> Facts:
    first, through = draft.first.position, number_of(draft.first.data.get("through"))
    return {"name": "pruned", "text": f"entries {first} to {through} were pruned", "count": through - first + 1}


def _unreached(draft: CallRecord) -> Facts:
    gates = [gate for gate in draft.first.data.get("gates") or () if isinstance(gate, str)]
    text = (
        f"open, but not reached by the code: {', '.join(gates)}" if gates else "the code reaches all open gates again"
    )
    return {"name": "gates", "text": text, "result": gates, "to_us": draft.first.created_us}


def _iso(us: int) -> str:
    found = time_of(us)
    return found.isoformat(timespec="seconds") if found is not None else "never"


_CALLS: Final[dict[str, Callable[[CallRecord, RunFacts], Facts]]] = {
    "step": _step,
    "effect": _effect,
    "ask": _ask,
    "sleep": _sleep,
    "wait": _wait,
    "child": _child,
    "call": _call,
    "rollback": _rollback,
    "breakpoint": _breakpoint,
    "compensate": _compensate,
}
"""Rows that depend on the present status of the run."""
_FACTS: Final[dict[str, Callable[[CallRecord], Facts]]] = {
    **dict.fromkeys(("value", "checkpoint"), _value),
    **dict.fromkeys(("map", "gather", "loop"), _branches),
    **dict.fromkeys(("paused", "resumed", "diverged"), _stopped),
    "send": _send,
    "turn": _turn,
    "started": _started,
    "ended": _ended,
    "log": _log,
    "forked": _forked,
    "pruned": _pruned,
    "definition": _definition,
    "unreached": _unreached,
}
"""Rows that depend on the journal alone."""

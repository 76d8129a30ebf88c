"""What the public API reads from a store, as JSON, and how two such readings are compared.

A view is written as {"$view": fields}; a later version may add fields to it. Everything else must be equal: types,
order of keys, every byte. Large values are written as their hash.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

from holdfast import App, Form, Store
from holdfast.model.views import View

_LARGE: Final = 300
_NAMED: Final[dict[type, tuple[str, Any]]] = {
    float: ("$float", repr),
    bytes: ("$bytes", bytes.hex),
    Decimal: ("$decimal", str),
    uuid.UUID: ("$uuid", str),
    dt.datetime: ("$datetime", lambda moment: [moment.isoformat(), moment.fold, str(moment.tzinfo)]),
    dt.date: ("$date", dt.date.isoformat),
    dt.time: ("$time", lambda time: [time.isoformat(), time.fold]),
    dt.timedelta: ("$timedelta", lambda span: [span.days, span.seconds, span.microseconds]),
}


def to_json(value: Any) -> Any:
    """A value as JSON that tells all types apart."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) in _NAMED:
        name, write = _NAMED[type(value)]
        return {name: write(value)}
    if type(value) is dict:
        return {key: to_json(part) for key, part in value.items()}
    if type(value) is list:
        return [to_json(part) for part in value]
    if type(value) is tuple:
        return {"$tuple": [to_json(part) for part in value]}
    if type(value) in (set, frozenset):
        return {f"${type(value).__name__}": sorted((to_json(part) for part in value), key=json.dumps)}
    if isinstance(value, Form):
        return json.loads(json.dumps(value.as_data()))
    assert isinstance(value, View), f"a {type(value)}"
    return {"$view": {name: compact(getattr(value, name)) for name in value.__struct_fields__ if name != "cursor"}}


def compact(value: Any) -> Any:
    """A value as JSON, or the hash of that if it is large."""
    written = to_json(value)
    text = json.dumps(written)
    if len(text) <= _LARGE or isinstance(value, View):
        return written
    return {"$sha256": hashlib.sha256(text.encode()).hexdigest(), "size": len(text)}


def read_store(app: App) -> dict[str, Any]:
    """Everything the public API reads from a store."""
    runs = app.store.runs(limit=1000)
    return {run.run_id: read_run(app, run.run_id) for run in sorted(runs, key=lambda run: run.run_id)}


def read_run(app: App, run_id: str) -> dict[str, Any]:
    """Everything the public API reads of one run."""
    store = app.store
    info = next(run for run in store.runs(prefix=run_id, limit=1000) if run.run_id == run_id)
    journal = store.journal(run_id)
    found: dict[str, Any] = {
        "run": to_json(info),
        "journal": [to_json(entry) for entry in journal],
        "checkpoints": list(_checkpoints(store, run_id)),
        "effects": [to_json(effect) for effect in store.effects(run_id)],
        "gates": [to_json(gate) for gate in app.gates(run_id, state=None)],
    }
    if info.status == "completed" and journal and journal[-1].kind == "completed":
        found["result"] = compact(app.handle(run_id).result())
    if journal and "definition" in journal[0].data:
        found["definition"] = compact(app.graph_of(run_id).as_data())
    return found


def _checkpoints(store: Store, run_id: str) -> Iterator[dict[str, Any]]:
    for info in store.history(run_id):
        name, lane = info.checkpoint_id, info.lane
        loaded = store.load(run_id, checkpoint_id=name, lane=lane)
        assert loaded is not None
        found = {"info": to_json(info), "state": compact(loaded.state)}
        attached = store.attachments(run_id, name, lane=lane)
        yield {**found, "attachments": {key: compact(value) for key, value in attached.items()}} if attached else found


def differences(expected: Any, found: Any, place: str = "", may_grow: str = "/$view") -> Iterator[str]:
    """Where a reading differs from what it should be. Dicts at places that end in `may_grow` may have more keys."""
    if isinstance(expected, dict) and isinstance(found, dict):
        grows = place.endswith(("/$view", may_grow))
        if list(expected) != [key for key in found if not grows or key in expected]:
            yield f"{place}: the keys {list(found)} instead of {list(expected)}"
            return
        for key, part in expected.items():
            yield from differences(part, found[key], f"{place}/{key}", may_grow)
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for number, part in enumerate(expected):
            yield from differences(part, found[number], f"{place}/{number}", may_grow)
    elif (type(expected), expected) != (type(found), found):
        yield f"{place}: {json.dumps(found)[:200]} instead of {json.dumps(expected)[:200]}"

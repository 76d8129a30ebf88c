"""The differences between two definitions, one line of text each."""

from __future__ import annotations

from typing import Final

from holdfast.graphs.definition import JsonObject
from holdfast.graphs.expressions import same

_WORDS: Final[dict[str, frozenset[str]]] = {
    "graph": frozenset({"name", "description", "metadata"}),
    "stage": frozenset({"name", "description"}),
    "edge": frozenset({"label"}),
    "condition": frozenset({"description"}),
}
"""Descriptive fields of each part of a definition, which do not change what a run does. In values, fields, results and
other data the same names are ordinary keys."""

_PARTS: Final = {
    "graph": {"stages": "stage", "edges": "edge"},
    "stage": {"body": "stage", "graph": "graph", "until": "condition"},
    "edge": {"conditions": "condition"},
    "condition": {"all": "condition", "any": "condition"},
}
"""The fields of each part that contain other parts. All other fields are data."""

_NOTHING: Final = object()
CHANGES_MAX: Final = 20


def changes(old: JsonObject, new: JsonObject) -> list[str]:
    """Return what a run would do differently, one line each; empty if nothing."""
    found: list[str] = []
    old, new = _without_words("graph", old), _without_words("graph", new)
    for key in sorted({*old, *new} - {"stages", "edges"}):
        _compare(found, key, old.get(key, _NOTHING), new.get(key, _NOTHING))
    _compare_stages(found, old.get("stages", []), new.get("stages", []))
    _compare_edges(found, old, new)
    if len(found) > CHANGES_MAX:
        found = [*found[:CHANGES_MAX], f"and {len(found) - CHANGES_MAX} more"]
    return found


def _without_words(kind: str, data: JsonObject) -> JsonObject:
    """Return a part without its descriptive fields."""
    parts = _PARTS[kind]
    return {
        key: _parts_without_words(parts[key], value) if key in parts else value
        for key, value in data.items()
        if key not in _WORDS[kind]
    }


def _parts_without_words(kind: str, data: object) -> object:
    if isinstance(data, (list, tuple)):
        return [_parts_without_words(kind, part) for part in data]
    return _without_words(kind, data) if isinstance(data, dict) else data


def _compare_stages(found: list[str], old: list[JsonObject], new: list[JsonObject]) -> None:
    before, after = ({stage.get("id", ""): stage for stage in stages} for stages in (old, new))
    found += [f"stage {name!r} was removed" for name in before if name not in after]
    found += [f"stage {name!r} was added" for name in after if name not in before]
    for name in before:
        if name in after:
            _compare(found, f"stage {name!r}", before[name], after[name])


def _compare_edges(found: list[str], old: JsonObject, new: JsonObject) -> None:
    before, after = (data.get("edges") for data in (old, new))
    if before is None or after is None:
        if before != after:
            found.append("edges: declared in only one of the definitions")
        elif [s.get("id") for s in old.get("stages", [])] != [s.get("id") for s in new.get("stages", [])]:
            found.append("stages: their order changed, and without edges the run follows it")
        return
    removed, added = _not_among(before, after), _not_among(after, before)
    found += [f"the edge {_shown(edge)} was removed" for edge in removed]
    found += [f"the edge {_shown(edge)} was added" for edge in added]
    if not removed and not added and not same(before, after):
        found.append("edges: their order changed")


def _not_among(edges: list[JsonObject], others: list[JsonObject]) -> list[JsonObject]:
    parallel: dict[object, list[JsonObject]] = {}
    for other in others:
        parallel.setdefault((other.get("from"), other.get("to")), []).append(other)
    return [
        edge
        for edge in edges
        if not any(same(edge, other) for other in parallel.get((edge.get("from"), edge.get("to")), ()))
    ]


def _shown(edge: JsonObject) -> str:
    more = {key: value for key, value in edge.items() if key not in ("from", "to")}
    return f"{edge.get('from')} → {edge.get('to')}" + (f" {more}" if more else "")


def _compare(found: list[str], path: str, old: object, new: object) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}, key=str):
            _compare(found, f"{path}.{key}", old.get(key, _NOTHING), new.get(key, _NOTHING))
    elif not same(old, new):
        found.append(f"{path}: {_short(old)} → {_short(new)}")


def _short(value: object) -> str:
    text = "nothing" if value is _NOTHING else repr(value)
    return text if len(text) <= 80 else f"{text[:60]} … {text[-15:]}"

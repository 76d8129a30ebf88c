"""What changed from one definition to another, in words."""

from __future__ import annotations

from typing import Any, Final

from holdfast.graphs.conditions import same

_WORDS: Final[dict[str, frozenset[str]]] = {
    "graph": frozenset({"name", "description", "metadata"}),
    "stage": frozenset({"name", "description"}),
    "edge": frozenset({"label"}),
    "condition": frozenset({"description"}),
}
"""What only people read, in each part of a definition: a run goes the same way whatever it says. The same words as keys
of values, fields, results and so on are data."""

_PARTS: Final = {
    "graph": {"stages": "stage", "edges": "edge"},
    "stage": {"body": "stage", "graph": "graph", "until": "condition"},
    "edge": {"conditions": "condition"},
    "condition": {"all": "condition", "any": "condition"},
}
"""Where parts lie in one another. All else is data."""

_NOTHING: Final = object()
CHANGES_MAX: Final = 20


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What a run would do differently, one line each; empty if nothing."""
    found: list[str] = []
    old, new = _bare("graph", old), _bare("graph", new)
    for key in sorted({*old, *new} - {"stages", "edges"}):
        _compare(found, key, old.get(key, _NOTHING), new.get(key, _NOTHING))
    _compare_stages(found, old.get("stages", []), new.get("stages", []))
    _compare_edges(found, old, new)
    if len(found) > CHANGES_MAX:
        found = [*found[:CHANGES_MAX], f"and {len(found) - CHANGES_MAX} more"]
    return found


def _bare(kind: str, data: Any) -> Any:
    """A part, or a list of them, without the words for people."""
    if isinstance(data, (list, tuple)):
        return [_bare(kind, part) for part in data]
    if not isinstance(data, dict):
        return data
    parts = _PARTS[kind]
    return {
        key: _bare(parts[key], value) if key in parts else value
        for key, value in data.items()
        if key not in _WORDS[kind]
    }


def _compare_stages(found: list[str], old: list[dict[str, Any]], new: list[dict[str, Any]]) -> None:
    before, after = ({stage.get("id", ""): stage for stage in stages} for stages in (old, new))
    found += [f"stage {name!r} is gone" for name in before if name not in after]
    found += [f"stage {name!r} is new" for name in after if name not in before]
    for name in before:
        if name in after:
            _compare(found, f"stage {name!r}", before[name], after[name])


def _compare_edges(found: list[str], old: dict[str, Any], new: dict[str, Any]) -> None:
    before, after = (data.get("edges") for data in (old, new))
    if before is None or after is None:
        if before != after:
            found.append("edges: declared in one of them only")
        elif [s.get("id") for s in old.get("stages", [])] != [s.get("id") for s in new.get("stages", [])]:
            found.append("stages: their order, which is the way the run takes")
        return
    gone, come = _not_among(before, after), _not_among(after, before)
    found += [f"the edge {_shown(edge)} is gone" for edge in gone]
    found += [f"the edge {_shown(edge)} is new" for edge in come]
    if not gone and not come and not same(before, after):
        found.append("edges: their order")


def _not_among(edges: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    beside: dict[Any, list[dict[str, Any]]] = {}
    for other in others:
        beside.setdefault((other.get("from"), other.get("to")), []).append(other)
    return [
        edge
        for edge in edges
        if not any(same(edge, other) for other in beside.get((edge.get("from"), edge.get("to")), ()))
    ]


def _shown(edge: dict[str, Any]) -> str:
    more = {key: value for key, value in edge.items() if key not in ("from", "to")}
    return f"{edge.get('from')} → {edge.get('to')}" + (f" {more}" if more else "")


def _compare(found: list[str], path: str, old: Any, new: Any) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}, key=str):
            _compare(found, f"{path}.{key}", old.get(key, _NOTHING), new.get(key, _NOTHING))
    elif not same(old, new):
        found.append(f"{path}: {_short(old)} → {_short(new)}")


def _short(value: Any) -> str:
    text = "nothing" if value is _NOTHING else repr(value)
    return text if len(text) <= 80 else f"{text[:60]} … {text[-15:]}"

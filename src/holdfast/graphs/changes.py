"""What changed from one definition to another, in words."""

from __future__ import annotations

from typing import Any, Final

from holdfast.graphs.conditions import same

_WORDS_ONLY: Final = frozenset({"name", "description", "label", "metadata"})
"""What only people read: a run goes the same way whatever it says."""

CHANGES_MAX: Final = 20


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What a run would do differently, one line each; empty if nothing."""
    found: list[str] = []
    for key in sorted({*old, *new} - _WORDS_ONLY - {"stages", "edges"}):
        _compare(found, key, old.get(key), new.get(key))
    _stages(found, old.get("stages", []), new.get("stages", []))
    _compare_edges(found, old, new)
    if len(found) > CHANGES_MAX:
        found = [*found[:CHANGES_MAX], f"and {len(found) - CHANGES_MAX} more"]
    return found


def _stages(found: list[str], old: list[dict[str, Any]], new: list[dict[str, Any]]) -> None:
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
    bare = [[_without_words(edge) for edge in edges] for edges in (before, after)]
    gone = [edge for edge in bare[0] if not any(same(edge, other) for other in bare[1])]
    come = [edge for edge in bare[1] if not any(same(edge, other) for other in bare[0])]
    found += [f"the edge {_shown(edge)} is gone" for edge in gone] + [
        f"the edge {_shown(edge)} is new" for edge in come
    ]
    if not gone and not come and not same(bare[0], bare[1]):
        found.append("edges: their order")


def _shown(edge: dict[str, Any]) -> str:
    more = {key: value for key, value in edge.items() if key not in ("from", "to")}
    return f"{edge.get('from')} → {edge.get('to')}" + (f" {more}" if more else "")


def _without_words(value: Any) -> Any:
    return {key: part for key, part in value.items() if key not in _WORDS_ONLY}


def _compare(found: list[str], path: str, old: Any, new: Any) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if key not in _WORDS_ONLY or path.startswith(("variables", "input")) or ".with" in path:
                _compare(found, f"{path}.{key}", old.get(key), new.get(key))
    elif not same(old, new):
        found.append(f"{path}: {_short(old)} → {_short(new)}")


def _short(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:60]} … {text[-15:]}"

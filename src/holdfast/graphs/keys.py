"""The keys of a state, as far as a definition tells: whether anything can be at a path. Pure."""

from __future__ import annotations

from typing import Any, Final

from holdfast.graphs.definition import Graph
from holdfast.graphs.fields import schema_of_fields
from holdfast.graphs.reads import written_by

STAGE_FACTS: Final = frozenset(
    ("status", "succeeded", "answer", "iteration", "error", "count", "failed", "errors", "satisfied", "timed_out")
)
"""What the state has under `stage.<id>`."""


class Keys:
    """What can be in the state of a run of one graph. Making it looks at each stage once."""

    def __init__(self, graph: Graph) -> None:
        self._stages = {stage.id for stage in graph.stages}
        self._input: dict[str, Any] | None = None if graph.input is None else schema_of_fields(graph.input)
        self._written = {*graph.variables, *(key for stage in graph.stages for key in written_by(stage))}
        self._outer = {outer for key in self._written for outer in _outer(key)}
        self._always = {"state", "graph"}
        if graph.goal is not None:
            self._always.add("goal")
        if any(stage.on_failure == "compensate" for stage in graph.stages):
            self._always.add("compensation")

    def unknown(self, key: str, *, inside: bool) -> str:
        """Why nothing can be at the path; empty if something can. `inside` of a for_each there is an item as well."""
        root, _, rest = key.partition(".")
        if root in self._always or (inside and root in ("item", "index")):
            return ""
        if root == "input":
            return self._unknown_input(key, rest)
        if root == "stage":
            return self._unknown_fact(key, rest)
        if key in self._written or key in self._outer or any(outer in self._written for outer in _outer(key)):
            return ""
        return f"nobody writes {key!r}"

    def _unknown_input(self, key: str, rest: str) -> str:
        if self._input is None or not rest:
            return ""
        fields = self._input.get("properties", {})
        if rest.split(".")[0] in fields or self._input.get("additionalProperties") is not False:
            return ""
        return f"{key!r} is not among the fields of the input ({', '.join(fields) or 'none'})"

    def _unknown_fact(self, key: str, rest: str) -> str:
        """The longest id that is there counts, as it does when a run looks it up."""
        if not rest or rest in self._stages:
            return ""
        stage = next((outer for outer in reversed(_outer(rest)) if outer in self._stages), None)
        if stage is None:
            return f"{key!r} is of a stage that is not there"
        fact = rest.removeprefix(f"{stage}.").split(".")[0]
        return "" if fact in STAGE_FACTS else f"{key!r}: a stage has no {fact!r}, only {', '.join(sorted(STAGE_FACTS))}"


def _outer(key: str) -> list[str]:
    """The paths a path lies in, the shortest first."""
    parts = key.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]

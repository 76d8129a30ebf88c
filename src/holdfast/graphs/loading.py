"""Reading definitions: from files and from data, with all that is wrong said at once, and where."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.errors import InvalidGraph, InvalidInput
from holdfast.graphs.definition import BadPart, Graph
from holdfast.graphs.depth import DEPTH_MAX, is_deeper
from holdfast.graphs.findings import Finding, Place, refuse_errors
from holdfast.graphs.shape import path_text, shape_problems
from holdfast.graphs.structure import structure
from holdfast.graphs.yaml import read_yaml
from holdfast.limits import GRAPH_BYTES_MAX

_PLACE: Final = re.compile(r" - at `\$([^`]*)`")
_MISFITS_MAX: Final = 50
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


class Loaded(NamedTuple):
    """A definition that was read, and where everything stands in its file."""

    graph: Graph
    name: str
    lines: Mapping[Place, int]

    def line(self, finding: Finding) -> int | None:
        """The line a finding is about."""
        return line_of(self.lines, finding.path)

    def where(self, finding: Finding) -> str:
        """A finding with its line."""
        line = self.line(finding)
        return f"{self.name} line {line}: {finding}" if line else f"{self.name}: {finding}"


def load(path: str | os.PathLike[str]) -> Loaded:
    """Read a file: `.yaml`, `.yml` or `.json`."""
    name = os.fspath(path)
    ending = Path(name).suffix.lower()
    if ending not in (".yaml", ".yml", ".json"):
        raise InvalidInput(f"{name}: a definition is a .yaml, .yml or .json file")
    try:
        data = Path(name).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{name} cannot be read: {error.strerror or error}") from None
    if len(data) > GRAPH_BYTES_MAX:
        raise InvalidInput(f"{name} has {len(data)} bytes; a definition has at most {GRAPH_BYTES_MAX}")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name} is not UTF-8: {error.reason} at byte {error.start}") from None
    found, lines = read_yaml(text, name) if ending != ".json" else (_json(text, name), {})
    return _made(found, name, lines)


def from_data(data: Any) -> Graph:
    """A definition from plain data."""
    name = data.get("id") if isinstance(data, Mapping) else None
    return _made(data, name if isinstance(name, str) and name else "without id", {}).graph


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{name}: this is no JSON a definition can have: {error}") from None


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no value")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return found


def _made(data: Any, name: str, lines: Mapping[Place, int]) -> Loaded:
    if not isinstance(data, Mapping):
        raise InvalidInput(f"{name}: a definition is an object with `id` and `stages`")
    if is_deeper(data):
        raise InvalidGraph(name, [f"it is nested deeper than {DEPTH_MAX}"])
    try:
        graph = msgspec.convert(data, Graph)
    except msgspec.ValidationError as error:
        raise InvalidGraph(name, [_told(lines, *problem) for problem in _misfits(data, error)]) from None
    loaded = Loaded(graph, name, lines)
    findings = structure(graph)
    if lines:
        found = [(finding, line_of(lines, finding.path)) for finding in findings]
        findings = [
            msgspec.structs.replace(finding, message=f"{finding.message} (line {line})" if line else finding.message)
            for finding, line in found
        ]
    refuse_errors(name, findings)
    return loaded


def _misfits(data: Any, error: msgspec.ValidationError) -> list[tuple[Place, str]]:
    """Why data is not a definition: what differs from its shape, else the part that contradicts itself."""
    found = list(shape_problems(data))[:_MISFITS_MAX]
    if found:
        return found
    match = _PLACE.search(str(error))
    steps = _STEP.findall(match[1]) if match is not None else []
    path = tuple(int(number) if number else key for key, number in steps)
    said = error.__cause__ if isinstance(error.__cause__, BadPart) else "it does not have the shape of a definition"
    return [(path, str(said))]


def _told(lines: Mapping[Place, int], path: Place, text: str) -> str:
    """A problem with its line and its place."""
    line, place = line_of(lines, path), path_text(path)
    return (f"line {line}: " if line else "") + (f"{place}: " if place else "") + text


def line_of(lines: Mapping[Place, int], path: Place) -> int | None:
    """The line of a part, or of what it is in."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path)

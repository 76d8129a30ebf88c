"""Definitions read from files, from data and from runs.

An error lists every problem with its location; for YAML, with its line. Aliases, tags, duplicate keys and excessive
nesting are refused before a value is built.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, Protocol

import msgspec

from holdfast.errors import InvalidGraph, InvalidInput, RunError
from holdfast.graphs.definition import BadPart, Graph, JsonObject
from holdfast.graphs.json_schema import path_text, shape_problems
from holdfast.graphs.structure import DEPTH_MAX, Finding, Place, is_deeper, refuse_errors, structure
from holdfast.limits import GRAPH_BYTES_MAX

VERSION: Final = 1
"""The format version of definitions that are stored with runs."""
_PLACE: Final = re.compile(r" - at `\$([^`]*)`")
_PROBLEMS_MAX: Final = 50
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


class Loaded(NamedTuple):
    """A definition that was read, and the lines of its parts in the file."""

    graph: Graph
    name: str
    lines: Mapping[Place, int]

    def line(self, finding: Finding) -> int | None:
        """Return the line of a finding."""
        return line_of(self.lines, finding.path)

    def where(self, finding: Finding) -> str:
        """Return a finding as text with its file and line."""
        line = self.line(finding)
        return f"{self.name} line {line}: {finding}" if line else f"{self.name}: {finding}"


def load(path: str | os.PathLike[str]) -> Loaded:
    """Read a file: `.yaml`, `.yml` or `.json`."""
    name = os.fspath(path)
    ending = Path(name).suffix.lower()
    if ending not in (".yaml", ".yml", ".json"):
        raise InvalidInput(f"{name}: a definition must be a .yaml, .yml or .json file")
    try:
        data = Path(name).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{name} cannot be read: {error.strerror or error}") from None
    if len(data) > GRAPH_BYTES_MAX:
        raise InvalidInput(f"{name} has {len(data)} bytes; a definition may have at most {GRAPH_BYTES_MAX}")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name} is not UTF-8: {error.reason} at byte {error.start}") from None
    found, lines = read_yaml(text, name) if ending != ".json" else (_json(text, name), {})
    return _build(found, name, lines)


def from_data(data: object) -> Graph:
    """Build a definition from plain data."""
    name = data.get("id") if isinstance(data, Mapping) else None
    return _build(data, name if isinstance(name, str) and name else "without id", {}).graph


def to_stored(graph: Graph) -> JsonObject:
    """Return a definition as it is stored with a run."""
    return {"v": VERSION, "graph": graph.as_data()}


def from_stored(data: object, run_id: str) -> Graph:
    """Return the definition that is stored with a run."""
    if not isinstance(data, dict) or data.get("v") != VERSION:
        raise RunError(f"run {run_id!r} has a definition that this version of Holdfast cannot read")
    return Graph.from_data(data["graph"])


def _json(text: str, name: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} is not valid JSON for a definition: {error}") from None


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON value")


def _unique_keys(pairs: list[tuple[str, object]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"duplicate key {twice!r} in one object")
    return found


def _build(data: object, name: str, lines: Mapping[Place, int]) -> Loaded:
    if not isinstance(data, Mapping):
        raise InvalidInput(f"{name}: a definition must be an object with `id` and `stages`")
    if is_deeper(data):
        raise InvalidGraph(name, [f"the definition is nested deeper than {DEPTH_MAX} levels"])
    try:
        graph = msgspec.convert(data, Graph)
    except msgspec.ValidationError as error:
        raise InvalidGraph(name, [_describe(lines, *problem) for problem in _find_problems(data, error)]) from None
    loaded = Loaded(graph, name, lines)
    found = [(finding, loaded.line(finding)) for finding in structure(graph)]
    findings = [
        msgspec.structs.replace(finding, message=f"{finding.message} (line {line})") if line else finding
        for finding, line in found
    ]
    refuse_errors(name, findings)
    return loaded


def _find_problems(data: object, error: msgspec.ValidationError) -> list[tuple[Place, str]]:
    """Return why data is not a definition: differences from its schema, or the part that contradicts itself."""
    found = list(shape_problems(data))[:_PROBLEMS_MAX]
    if found:
        return found
    match = _PLACE.search(str(error))
    steps = _STEP.findall(match[1]) if match is not None else []
    path = tuple(int(number) if number else key for key, number in steps)
    reason = error.__cause__ if isinstance(error.__cause__, BadPart) else "it does not match the schema of a definition"
    return [(path, str(reason))]


def _describe(lines: Mapping[Place, int], path: Place, text: str) -> str:
    """Return a problem with its line and its path."""
    line, place = line_of(lines, path), path_text(path)
    return (f"line {line}: " if line else "") + (f"{place}: " if place else "") + text


def line_of(lines: Mapping[Place, int], path: Place) -> int | None:
    """Return the line of a part, or else of the innermost part around it that has one."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path)


_INT: Final = re.compile(r"[-+]?[0-9]+\Z")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("null", "Null", "NULL", "~", ""), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class _Node(Protocol):
    """A node of PyYAML, which has no type hints."""

    id: str
    value: Any
    style: str | None
    start_mark: Any


class _Reader:
    """Builds plain data from YAML nodes, and records the line of each part."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[Place, int] = {}

    def value(self, node: _Node, path: Place) -> object:
        self.lines[path] = node.start_mark.line + 1
        if node.id == "scalar":
            return self._scalar(node)
        if node.id == "sequence":
            return [self.value(part, (*path, number)) for number, part in enumerate(node.value)]
        return self._mapping(node, path)

    def _mapping(self, node: _Node, path: Place) -> JsonObject:
        found: JsonObject = {}
        for key_node, part in node.value:
            if key_node.id != "scalar":
                raise self._error(key_node, "a key must be text")
            key = key_node.value
            if key in found:
                raise self._error(key_node, f"duplicate key {key!r}")
            found[key] = self.value(part, (*path, key))
            self.lines[(*path, key)] = key_node.start_mark.line + 1
        return found

    def _scalar(self, node: _Node) -> str | float | bool | None:
        text: str = node.value
        if node.style in ("'", '"', "|", ">"):
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INT.match(text):
            return int(text) if len(text) < 300 else text
        return float(text) if _FLOAT.match(text) else text

    def _error(self, node: _Node, what: str) -> InvalidInput:
        return InvalidInput(f"{self.name} line {node.start_mark.line + 1}: {what}")


def read_yaml(text: str, name: str) -> tuple[object, dict[Place, int]]:
    """Return the data in a YAML text, and the line of each part."""
    try:
        import yaml
    except ImportError:
        raise InvalidInput(
            f"reading the YAML file {name} needs PyYAML; run `pip install holdfast[cli]`, or write it as JSON"
        ) from None
    try:
        _check_events(yaml, text, name)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark is not None else ""
        raise InvalidInput(f"{name}{line}: not valid YAML: {getattr(error, 'problem', None) or error}") from None
    reader = _Reader(name)
    return (None if node is None else reader.value(node, ())), reader.lines


def _check_events(yaml: Any, text: str, name: str) -> None:
    """Refuse aliases, tags and excessive nesting before PyYAML builds any node."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise InvalidInput(f"{name} line {line}: aliases (*name) are not supported; repeat the value")
        if getattr(event, "tag", None) not in (None, "!"):
            raise InvalidInput(f"{name} line {line}: tags ({event.tag}) are not supported; remove the tag")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            raise InvalidInput(f"{name} line {line}: the definition is nested deeper than {DEPTH_MAX} levels")

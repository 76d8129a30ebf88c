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
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from holdfast.errors import InvalidGraph, InvalidInput, RunError
from holdfast.graphs.definition import Graph, JsonObject
from holdfast.graphs.json_schema import find_problems, path_text
from holdfast.graphs.structure import DEPTH_MAX, Finding, Place, is_deeper, refuse_errors, structure
from holdfast.limits import GRAPH_BYTES_MAX

VERSION: Final = 1
"""The format version of definitions that are stored with runs."""


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
        if len(data) > GRAPH_BYTES_MAX:
            raise InvalidInput(f"{name} has {len(data)} bytes; a definition may have at most {GRAPH_BYTES_MAX}")
        text = data.decode()
    except OSError as error:
        raise InvalidInput(f"{name} cannot be read: {error.strerror or error}") from None
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
    found: JsonObject = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"duplicate key {key!r} in one object")
        found[key] = value
    return found


def _build(data: object, name: str, lines: Mapping[Place, int]) -> Loaded:
    if not isinstance(data, Mapping):
        raise InvalidInput(f"{name}: a definition must be an object with `id` and `stages`")
    if is_deeper(data):
        raise InvalidGraph(name, [f"the definition is nested deeper than {DEPTH_MAX} levels"])
    try:
        graph = msgspec.convert(data, Graph)
    except msgspec.ValidationError as error:
        raise InvalidGraph(name, [_describe(lines, *problem) for problem in find_problems(data, error)]) from None
    findings = []
    for finding in structure(graph):
        line = line_of(lines, finding.path)
        suffix = f" (line {line})" if line else ""
        findings.append(msgspec.structs.replace(finding, message=finding.message + suffix))
    refuse_errors(name, findings)
    return Loaded(graph, name, lines)


def _describe(lines: Mapping[Place, int], path: Place, text: str) -> str:
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


def _value(node: Any, path: Place, name: str, lines: dict[Place, int]) -> object:
    """Build plain data from a node of PyYAML, which has no type hints, and record the line of each part."""
    lines[path] = node.start_mark.line + 1
    if node.id == "scalar":
        return _scalar(node.value) if node.style not in ("'", '"', "|", ">") else node.value
    if node.id == "sequence":
        return [_value(part, (*path, number), name, lines) for number, part in enumerate(node.value)]
    found: JsonObject = {}
    for key, part in node.value:
        if key.id != "scalar":
            raise _refusal(name, key, "a key must be text")
        if key.value in found:
            raise _refusal(name, key, f"duplicate key {key.value!r}")
        found[key.value] = _value(part, (*path, key.value), name, lines)
        lines[(*path, key.value)] = key.start_mark.line + 1
    return found


def _scalar(text: str) -> str | float | bool | None:
    if text in _WORDS:
        return _WORDS[text]
    if _INT.match(text):
        return int(text) if len(text) < 300 else text
    return float(text) if _FLOAT.match(text) else text


def _refusal(name: str, part: Any, why: str) -> InvalidInput:
    return InvalidInput(f"{name} line {part.start_mark.line + 1}: {why}")


def read_yaml(text: str, name: str) -> tuple[object, dict[Place, int]]:
    """Return the data in a YAML text, and the line of each part."""
    try:
        import yaml
    except ImportError:
        raise InvalidInput(f"{name} needs PyYAML; run `pip install holdfast[cli]`, or write it as JSON") from None
    try:
        _check_events(yaml, text, name)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark is not None else ""
        raise InvalidInput(f"{name}{line}: not valid YAML: {getattr(error, 'problem', None) or error}") from None
    lines: dict[Place, int] = {}
    return (None if node is None else _value(node, (), name, lines)), lines


def _check_events(yaml: Any, text: str, name: str) -> None:
    """Refuse aliases, tags and excessive nesting before PyYAML builds any node."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise _refusal(name, event, "aliases (*name) are not supported; repeat the value")
        if getattr(event, "tag", None) not in (None, "!"):
            raise _refusal(name, event, f"tags ({event.tag}) are not supported; remove the tag")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            raise _refusal(name, event, f"the definition is nested deeper than {DEPTH_MAX} levels")

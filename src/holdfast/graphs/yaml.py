"""YAML, the plain part of it: what JSON can say, in YAML's clothes, with the line of everything.

Differences from what a YAML library does by itself: `yes`, `no`, `on` and `off` are text, dates are text, a key that
stands twice is an error, and there are no aliases (a small file could unfold to a huge one) and no tags.
"""

from __future__ import annotations

import re
from typing import Any, Final

from holdfast.errors import InvalidInput
from holdfast.graphs.depth import DEPTH_MAX
from holdfast.graphs.findings import Place

_INT: Final = re.compile(r"[-+]?[0-9]+\Z")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("null", "Null", "NULL", "~", ""), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class _Reader:
    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[Place, int] = {}

    def value(self, node: Any, path: Place) -> Any:
        self.lines[path] = node.start_mark.line + 1
        if node.id == "scalar":
            return self._scalar(node)
        if node.id == "sequence":
            return [self.value(part, (*path, number)) for number, part in enumerate(node.value)]
        return self._mapping(node, path)

    def _mapping(self, node: Any, path: Place) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, part in node.value:
            if key_node.id != "scalar":
                raise self.wrong(key_node, "a key is text")
            key = key_node.value
            if key in found:
                raise self.wrong(key_node, f"the key {key!r} stands here twice")
            found[key] = self.value(part, (*path, key))
            self.lines[(*path, key)] = key_node.start_mark.line + 1
        return found

    def _scalar(self, node: Any) -> Any:
        text: str = node.value
        if node.style in ("'", '"', "|", ">"):
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INT.match(text):
            return int(text) if len(text) < 300 else text
        return float(text) if _FLOAT.match(text) else text

    def wrong(self, node: Any, what: str) -> InvalidInput:
        return InvalidInput(f"{self.name} line {node.start_mark.line + 1}: {what}")


def read_yaml(text: str, name: str) -> tuple[Any, dict[Place, int]]:
    """The data in a YAML text, and the line of each part."""
    try:
        import yaml
    except ImportError:
        raise InvalidInput(
            f"{name} is YAML, and reading YAML needs PyYAML: install holdfast[cli], or write it as JSON"
        ) from None
    try:
        _refuse(yaml, text, name)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark is not None else ""
        raise InvalidInput(f"{name}{line}: this is no YAML: {getattr(error, 'problem', None) or error}") from None
    reader = _Reader(name)
    return (None if node is None else reader.value(node, ())), reader.lines


def _refuse(yaml: Any, text: str, name: str) -> None:
    """Aliases, tags and what is too deep are refused before anything is made of them."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise InvalidInput(f"{name} line {line}: aliases (*name) are not used here; write it out")
        if getattr(event, "tag", None) not in (None, "!"):
            raise InvalidInput(f"{name} line {line}: tags ({event.tag}) are not used here")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            raise InvalidInput(f"{name} line {line}: it is nested deeper than {DEPTH_MAX}")

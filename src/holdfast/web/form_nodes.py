"""The parts of a form as they are written: which are fields of their own, which have rows, and which are JSON."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Final

from holdfast.forms import Field, Form
from holdfast.forms.fields import field_of, kind_of, resolve_schema
from holdfast.forms.json_schema import Schema, field_path, item_path

Values = dict[str, list[str]]
"""The fields of a submitted form."""

DEPTH_MAX: Final = 4
"""Objects and lists that are nested deeper are written as JSON."""
LEAVES_MAX: Final = 150
"""An object with more fields is written as JSON."""
ROWS_MAX: Final = 200
"""A list with more items is written as JSON."""


class Node:
    """A field of a form, or a part of one."""

    def __init__(self, field: Field, name: str, path: str, depth: int = 0) -> None:
        self.field = field
        self.name = name
        self.path = path
        """As problems name it."""
        self.depth = depth

    @functools.cached_property
    def root(self) -> Schema:
        return self.field.json_schema()

    @functools.cached_property
    def bare(self) -> Schema:
        """The schema with references resolved and without null."""
        return resolve_schema(self.root, self.root)[0]

    @functools.cached_property
    def shape(self) -> str:
        """How it is written: `object`, `rows`, `json`, or the kind of its field."""
        kind = self.field.kind
        if kind not in ("object", "list"):
            return kind
        is_open = "object" if self.bare.get("properties") else "rows" if _has_simple_items(self) else ""
        return is_open if is_open and self.depth < DEPTH_MAX and _leaves(self, LEAVES_MAX) < LEAVES_MAX else "json"

    @property
    def is_optional(self) -> bool:
        """Whether the answer may do without it."""
        return self.field.nullable or self.may_be_left_out

    @property
    def may_be_left_out(self) -> bool:
        return not self.field.required and not self.field.has_default

    @functools.cached_property
    def children(self) -> list[Node]:
        """The properties of an object."""
        required = self.bare.get("required", ())
        found = []
        for name, part in self.bare.get("properties", {}).items():
            if part is not False:
                child = field_of(name, part, self.root, required=name in required)
                place = f"{self.name}/{_escape(name)}"
                found.append(Node(child, place, field_path(self.path, name), self.depth + 1))
        return found

    @functools.cached_property
    def _items(self) -> Field:
        return field_of("", self.bare.get("items", {}), self.root, required=True)

    def item(self, index: int) -> Node:
        """An item of a list."""
        return Node(self._items, f"{self.name}/{index}", item_path(self.path, index), self.depth + 1)


def _has_simple_items(node: Node) -> bool:
    items = node.bare.get("items")
    if not isinstance(items, dict) or "prefixItems" in node.bare:
        return False
    kind = kind_of(resolve_schema(items, node.root)[0], node.root)
    return kind not in ("any", "object", "list") or node.item(0).shape != "json"


def _leaves(node: Node, most: int) -> int:
    """How many fields a node has inside, counted up to a number."""
    parts = node.children if node.field.kind == "object" else [node.item(0)]
    count = 0
    for part in parts:
        count += _leaves(part, most - count) if part.shape in ("object", "rows") else 1
        if count >= most:
            break
    return count


def nodes_of(form: Form, prefix: str) -> list[Node]:
    """The fields of a form."""
    return [Node(field, f"{prefix}/{_escape(field.name)}", field.name) for field in form.fields]


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def rows_of(node: Node, values: Mapping[str, list[str]]) -> Iterator[Node]:
    """The rows of a list."""
    return (node.item(index) for index in range(row_count(values.get(f"{node.name}~n"))))


def row_count(given: list[str] | None) -> int:
    """How many rows a list has, according to its `~n`."""
    text = given[-1] if given else ""
    return min(int(text), ROWS_MAX) if text.isascii() and text.isdigit() and len(text) < 6 else 0

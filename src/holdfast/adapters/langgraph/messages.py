"""Messages without the serde: copies of built ones, and stored bytes found by content.

LangGraph's serde needs about 14 us to rebuild a message and 5 us to serialise it, for every message of a conversation,
at every call of a graph. The cache has both results, for LangChain's own message classes with plain data:

* Equal stored bytes give equal messages, so a message that was built before is copied; the kept one is never returned.
* A message whose class and content are, byte for byte, those of a message that was serialised before has the same
  stored bytes. The content is compared at every save, never the identity of the object: a message that was changed in
  place is serialised again. What cannot be compared exactly (other classes, extra fields, values that are not plain
  data) is serialised every time.

If the user promises that messages are immutable, a message object that was loaded or stored before is not read again.
Its id is compared all the same, because LangGraph gives one to messages without an id after it has stored them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeGuard

import ormsgpack
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast.adapters.langgraph.recent_values import BYTES_MAX, ENTRY, ImmutableMessages, Recent, size_of
from holdfast.adapters.langgraph.record_codec import Stored, dump_typed, load_value, store_typed
from holdfast.adapters.langgraph.serde import (
    CUT_MIN,
    EXT_CUT_MIN,
    ITEM_MIN,
    SNAPSHOT,
    Piece,
    StrictSerializer,
    cut,
    join,
)
from holdfast.fork_safety import reset_after_fork

_EXACT: Final = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
"""Different values have different bytes, or none: a tuple or a subclass, for example, is refused."""
_EXTENSIONS: Final = (0xC7, 0xC8, 0xC9)
_ONE_ITEM: Final = 0x91
_MANY: Final = 32
"""So many new messages are loaded at once."""
_ATOMS: Final = frozenset({str, int, float, bool, type(None)})
_pack = ormsgpack.packb
_set = object.__setattr__
_extra_of = attrgetter("__pydantic_extra__")


class Template(NamedTuple):
    """A message to copy."""

    kind: type[BaseMessage]
    fields: dict[str, object]
    parts: tuple[tuple[str, Callable[[], object]], ...]
    """The fields whose values can be changed in place, and what makes an equal value."""
    names: set[str]


class Image(NamedTuple):
    """The content of a list of messages when it was serialised, and the stored form of each."""

    kinds: list[type]
    bodies: list[bytes]
    items: list[Piece]


class Decoded:
    """Values that were stored or read, by their roots. A root is a hash over all bytes, so it never becomes stale.

    The values are shared: nothing may change them.
    """

    def __init__(self) -> None:
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        self._values: Recent[bytes, tuple[object, int]] = Recent(BYTES_MAX)

    def get(self, root: bytes) -> tuple[object, int] | None:
        """Return a value and its size."""
        found = self._values.newest.get(root)
        if found is None:
            found = self._values.get(root, 0)
        return found

    def add(self, root: bytes, value: object, size: int) -> None:
        """Keep a value, unless it alone would fill the cache."""
        if size <= BYTES_MAX // 8:
            self._values.add(root, (value, size), size + ENTRY)


Frozen = Callable[[Stored, Image | None], tuple[Stored, Image | None]]
"""What is left of `Codec.store` once the value was read: it takes `before` and `image`."""


class Codec(NamedTuple):
    """A serde, with the caches that it is used with."""

    serde: SerializerProtocol
    messages: MessageCache
    decoded: Decoded

    def load(self, value: Stored) -> Any:
        """Load a stored value. The result shares no mutable part with the cache."""
        return self.messages.load(self.serde, value)

    def store(self, value: object, before: Stored = None, image: Image | None = None) -> tuple[Stored, Image | None]:
        """Convert a value to its stored form, the same as that of `store_value`.

        `before` and `image` are of the value that it replaces. The new image is for the value that replaces this one.
        """
        return self.freeze(value)(before, image)

    def freeze(self, value: object) -> Frozen:
        """Read a value as it is now. The result is the rest of `store`, which may run later and on another thread."""
        return self.messages.freeze(self.serde, value)


class MessageCache:
    """Templates by stored bytes, and stored bytes by content; of immutable messages, by object."""

    def __init__(self, *, immutable: bool = False) -> None:
        self._is_immutable = immutable
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        self._templates: Recent[bytes, Template] = Recent(BYTES_MAX)
        self._loaded: Recent[int, bool] = Recent(BYTES_MAX)
        """Hashes of the stored bytes of messages that were loaded once, of long conversations."""
        self._stored: Recent[tuple[type, bytes], Piece] = Recent(BYTES_MAX)
        self._immutable = ImmutableMessages() if self._is_immutable else None

    # --- from stored values ------------------------------------------------------------------------------------------

    def load(self, serde: SerializerProtocol, value: Stored) -> object:
        """Load a stored value; see `Codec`."""
        if not _is_known(serde):
            return load_value(serde, value)
        loaded = self._load(serde, value)
        if self._immutable is not None:
            items = loaded.value if type(loaded) is _DeltaSnapshot else loaded
            stored = value["d"] if isinstance(value, dict) and "x" in value else value
            if has_messages(items) and type(stored) is list and len(stored) == len(items):
                self._immutable.add_all(items, stored)
        return loaded

    def _load(self, serde: SerializerProtocol, value: Stored) -> object:
        if type(value) is list:
            return self._load_items(serde, value) if value and _is_extension(value[0]) else load_value(serde, value)
        if type(value) is bytes:
            if len(value) > 1 and value[0] == _ONE_ITEM and value[1] in _EXTENSIONS:
                return [self._load_item(serde, value[1:])]
        elif type(value) is dict and value.get("x") == SNAPSHOT and type(value["d"]) is list:
            return _DeltaSnapshot(self._load_items(serde, value["d"]))
        return load_value(serde, value)

    def _load_items(self, serde: SerializerProtocol, items: list[Piece]) -> list[object]:
        found: list[object] = []
        new: list[int] = []
        templates = self._templates.newest
        for at, item in enumerate(items):
            template = templates.get(item) if type(item) is bytes else None
            if template is None:
                new.append(at)
            found.append(copy_of(template) if template is not None else None)
        if len(new) < _MANY:
            for at in new:
                found[at] = self._load_item(serde, items[at])
        else:
            self._load_many(serde, items, new, found)
        return found

    def _load_many(self, serde: SerializerProtocol, items: list[Piece], new: list[int], found: list[object]) -> None:
        """Load a long conversation at once. A process may read it only once, so templates are made the next time."""
        for at, value in zip(new, load_value(serde, [items[at] for at in new]), strict=True):
            found[at] = value
            item = items[at]
            if type(item) is not bytes or not isinstance(value, BaseMessage):
                continue
            if self._loaded.get(hash(item), ENTRY) is None:
                self._loaded.add(hash(item), True, ENTRY)
            elif made := template_of(value):
                self._templates.add(item, made, len(item))

    def _load_item(self, serde: SerializerProtocol, item: Piece) -> object:
        if type(item) is not bytes:
            if not isinstance(item, dict) or "x" not in item:
                return load_value(serde, item)
            item = join(item)
        template = self._templates.get(item, len(item))
        if template is not None:
            return copy_of(template)
        value = load_value(serde, item)
        if isinstance(value, BaseMessage) and (made := template_of(value)):
            self._templates.add(item, made, len(item))
        return value

    # --- to stored values --------------------------------------------------------------------------------------------

    def freeze(self, serde: SerializerProtocol, value: object) -> Frozen:
        """Read a value as it is now; see `Codec`."""
        if _is_known(serde):
            if isinstance(value, BaseMessage):
                item = self._freeze_message(serde, value)
                return lambda _, __: (item(), None)
            items = value.value if type(value) is _DeltaSnapshot else value
            if has_messages(items):
                wrapped = items is not value
                items = items.copy()
                if self._immutable is not None:
                    return self._freeze_immutable(serde, items, wrapped)
                kinds = list(map(type, items))
                bodies = _bodies_of(items, kinds)
                if bodies is not None:
                    return partial(self._store_messages, serde, kinds, bodies, wrapped)
                frozen = [self._freeze_message(serde, each) for each in items]
                return lambda _, __: _list_of(Image([], [], [item() for item in frozen]), wrapped)
        typed = dump_typed(serde, value)
        return lambda before, _: (store_typed(serde, typed, before), None)

    def _freeze_immutable(self, serde: SerializerProtocol, values: list[Any], wrapped: bool) -> Frozen:
        """Read only messages that were not seen before."""
        seen = self._immutable
        assert seen is not None
        items = [seen.get(value) for value in values]
        new = [
            (at, value, getattr(value, "id", None), self._freeze_message(serde, value))
            for at, value in enumerate(values)
            if items[at] is None
        ]

        def store(_: Stored, __: Image | None) -> tuple[Stored, Image | None]:
            for at, value, message_id, make in new:
                items[at] = item = make()
                seen.add(value, message_id, item)
            return _list_of(Image([], [], items), wrapped)  # type: ignore[arg-type] # all items are there

        return store

    def _store_messages(
        self,
        serde: SerializerProtocol,
        kinds: list[type],
        bodies: list[bytes],
        wrapped: bool,
        _: Stored,
        before: Image | None,
    ) -> tuple[Stored, Image | None]:
        same = len(before.kinds) if before is not None else 0
        if before is None or kinds[:same] != before.kinds or bodies[:same] != before.bodies:
            same = 0
        items = before.items[:same] if before is not None else []
        for kind, body in zip(kinds[same:], bodies[same:], strict=True):
            items.append(self._store_message(serde, kind, body))
        return _list_of(Image(kinds, bodies, items), wrapped)

    def _freeze_message(self, serde: SerializerProtocol, value: object) -> Callable[[], Piece]:
        body = _body_of(value)
        if body is not None:
            return partial(self._store_message, serde, type(value), body)  # type: ignore[arg-type] # it has a body
        return partial(_item, serde, dump_typed(serde, [value])[1])

    def _store_message(self, serde: SerializerProtocol, kind: type[BaseMessage], body: bytes) -> Piece:
        """The stored form of a message with this content. The message itself may have changed since it was read."""
        item = self._stored.get((kind, body), len(body))
        if item is None:
            fields = ormsgpack.unpackb(body, ext_hook=ormsgpack.Ext)
            item = _item(serde, dump_typed(serde, [copy_of(Template(kind, fields, (), set()))])[1])
            self._stored.add((kind, body), item, len(body))
        return item


def _is_known(serde: SerializerProtocol) -> bool:
    """Whether this is one of the serdes whose messages are known; another one must see every value itself."""
    kind = type(serde)
    return kind is StrictSerializer or (kind is JsonPlusSerializer and not serde._custom_unpack_ext_hook)  # type: ignore[attr-defined]


def has_messages(value: object) -> TypeGuard[list[Any]]:
    """Whether this looks like a list of messages."""
    return type(value) is list and bool(value) and isinstance(value[0], BaseMessage)


def _list_of(made: Image, wrapped: bool) -> tuple[Stored, Image | None]:
    """The stored form of a list of messages, or of a snapshot of it."""
    if not wrapped:
        return made.items if _is_cut(made.items, CUT_MIN) else join(made.items), made
    if _is_cut(made.items, EXT_CUT_MIN):
        return {"x": SNAPSHOT, "d": made.items}, made
    return cut(_pack(ormsgpack.Ext(SNAPSHOT, join(made.items)))), made


def _item(serde: SerializerProtocol, body: bytes) -> Piece:
    """The stored form of the only item of a serialised list."""
    if isinstance(serde, StrictSerializer):
        serde.check(body)
    return cut(body[1:])


def _is_cut(items: list[Piece], size_max: int) -> bool:
    """Whether a list of messages is larger than this, so that its stored form is cut at its items."""
    if len(items) * ITEM_MIN > size_max:  # messages are larger than that
        return True
    return sum(map(size_of, items)) > size_max


def _bodies_of(values: list[Any], kinds: list[type]) -> list[bytes] | None:
    """The contents of messages, which prove that equal ones have equal stored bytes; None if one has none."""
    if not all(map(_is_own, set(kinds))) or any(map(_extra_of, values)):
        return None
    try:
        return [_pack(value.__dict__, None, _EXACT) for value in values]
    except ormsgpack.MsgpackEncodeError:
        return None


def _body_of(value: object) -> bytes | None:
    bodies = _bodies_of([value], [type(value)])
    return bodies[0] if bodies else None


@lru_cache(64)
def _is_own(kind: type) -> bool:
    """Whether this is a message class of LangChain's own. Every serde rebuilds its messages equally."""
    return issubclass(kind, BaseMessage) and kind.__module__.startswith("langchain_core.messages.")


def template_of(message: BaseMessage) -> Template | None:
    """The template of a message of LangChain's own with plain data; None for others."""
    fields = message.__dict__
    if not _is_own(type(message)) or message.__pydantic_extra__ != {} or message.__pydantic_private__ is not None:
        return None
    if not _is_data(fields):
        return None
    parts: list[tuple[str, Callable[[], object]]] = []
    for name, value in fields.items():
        if type(value) in (dict, list):
            try:
                packed = _pack(value, None, _EXACT)
            except ormsgpack.MsgpackEncodeError:  # keys that are not text
                return None
            parts.append((name, partial(ormsgpack.unpackb, packed) if value else type(value)))
    return Template(type(message), fields.copy(), tuple(parts), message.__pydantic_fields_set__.copy())


def _is_data(value: object) -> bool:
    if type(value) is dict:
        return all(map(_is_data, value.values()))
    return all(map(_is_data, value)) if type(value) is list else type(value) in _ATOMS


def copy_of(template: Template) -> BaseMessage:
    """A message that shares no mutable part with the template."""
    kind, fields, parts, names = template
    message = kind.__new__(kind)
    fields = fields.copy()
    for name, make in parts:
        fields[name] = make()
    _set(message, "__dict__", fields)
    _set(message, "__pydantic_fields_set__", names.copy())
    _set(message, "__pydantic_extra__", {})
    _set(message, "__pydantic_private__", None)
    return message


def _is_extension(item: Piece) -> bool:
    return item[0] in _EXTENSIONS if type(item) is bytes else isinstance(item, dict) and "x" in item

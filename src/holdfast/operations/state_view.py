"""Lazy views of large states: read-only mappings and sequences that decode only what is read.

A view has *sections*: links to pages that were not read yet, and the parts that are stored beside them. A part that is
a dict or list is a view again, whatever its size. A view is neither a dict nor a list, so encoders refuse it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from typing import Any, Final, TypeVar, Unpack, overload

from holdfast.drivers import Plan, forbid_in_loop
from holdfast.errors import CheckpointNotFound, DamagedData
from holdfast.ids import check_id
from holdfast.model.rows import CheckpointRow, RunRow
from holdfast.model.views import Checkpoint
from holdfast.operations import views
from holdfast.operations.context import Access, StoreContext
from holdfast.operations.read import Selectors, find_checkpoint, selection
from holdfast.state.headers import array_header, map_header
from holdfast.state.rope import Link, Segment, gather, join, read, verify_chunk
from holdfast.state.value_stream import ValueStream
from holdfast.state.values import unpack
from holdfast.store.port import Select

R = TypeVar("R")
_CACHE_BYTES: Final = 4 * 1024 * 1024
_RACES_MAX: Final = 20
_AHEAD: Final = 32
"""How many pages an iteration fetches at once."""


def open_view(access: Access, run_id: str, **choice: Unpack[Selectors]) -> Plan[Checkpoint[Any] | None]:
    """The plan of `Store.view`, which documents it."""
    check_id("run_id", run_id)
    select = selection(choice.get("step"), choice.get("at"), choice.get("checkpoint_id"), choice.get("lane", ""))
    found: tuple[RunRow, CheckpointRow, Any] | None = yield lambda: _open(access.core, run_id, select)
    return None if found is None else views.checkpoint_view(*found)


def _open(core: StoreContext, run_id: str, select: Select) -> tuple[RunRow, CheckpointRow, Any] | None:
    found = find_checkpoint(core, run_id, select)
    if found is None:
        return None
    reader = _Reader(core, *found)
    root = found[1].root
    if root[:1] == b"\x01":
        return (*found, reader.part(unpack(root[1:], reader.place)))
    return (*found, reader.whole(read(root, reader.place)))


class _Reader:
    """Reads the chunks of one state; several threads may use it."""

    def __init__(self, core: StoreContext, run: RunRow, row: CheckpointRow) -> None:
        self.place = views.checkpoint_place(run.run_id, row)
        self._core = core
        self._run = run
        self._row = row
        self._fetch = core.fetch(run.family)
        self._lock = threading.Lock()
        self._chunks: OrderedDict[bytes, bytes] = OrderedDict()
        self._size = 0

    def _read(self, work: Callable[[], R]) -> R:
        """Read chunks, again if the run was changed meanwhile. A removed checkpoint is not reported as damaged."""
        forbid_in_loop("view")
        races = 0
        while True:
            try:
                return work()
            except DamagedData as damage:
                row = self._row
                found = find_checkpoint(self._core, self._run.run_id, Select(row.lane, row.checkpoint_id))
                if found is None or found[0].incarnation != self._run.incarnation or found[1].root != row.root:
                    raise CheckpointNotFound(self._run.run_id, repr(row.checkpoint_id)) from damage
                if found[0] == self._run or races == _RACES_MAX:
                    raise
                self._run, races = found[0], races + 1

    def fetch(self, links: Iterable[Link]) -> list[bytes]:
        """The plain bytes of chunks."""
        names = [link.hash for link in links]
        with self._lock:
            missing = list({name: None for name in names if name not in self._chunks})
            if missing:
                self._read(lambda: self._add(missing))
            for name in names:
                self._chunks.move_to_end(name)
            plain = [self._chunks[name] for name in names]
            while self._size > _CACHE_BYTES:
                self._size -= len(self._chunks.popitem(last=False)[1])
            return plain

    def _add(self, names: list[bytes]) -> None:
        found = self._fetch(names)
        for name in [name for name in names if name not in self._chunks]:
            plain = self._chunks[name] = verify_chunk(name, found.get(name), self.place)
            self._size += len(plain)

    def value(self, segments: Sequence[Segment]) -> Any:
        """The value of a rope, decoded as a whole."""
        with self._lock:
            chunks = self._read(lambda: gather(segments, self._fetch, self.place))
        return unpack(join(segments, chunks, self.place), self.place)

    def part(self, value: Any) -> Any:
        """A part of a view as its reader gets it."""
        if type(value) is Link:
            return self._linked(value)
        if type(value) is dict:
            return DictView(self, len(value), [value], None)
        if type(value) is list:
            return ListView(self, len(value), [value], None)
        return tuple([self.part(each) for each in value]) if type(value) is tuple else value

    def whole(self, segments: list[Segment]) -> Any:
        """The value whose rope this is."""
        stream = ValueStream(segments, self.place, self._view)
        if (link := stream.link()) is not None:
            return self._linked(link)
        return stream.container(0) if stream.is_container else self.part(self.value(segments))

    def _linked(self, link: Link) -> Any:
        plain = self.fetch([link])[0]
        if link.node:
            return self.whole(read(plain, self.place))
        return self.part(unpack(plain[1:], self.place))

    def sections(self, link: Link) -> list[Any]:
        """The sections of a page of a list or dict."""
        if link.count == 1 and not link.pairs:
            return [[self._linked(link)]]
        plain = self.fetch([link])[0]
        if link.node:
            return ValueStream(read(plain, self.place), self.place, self._view).sections(link.count, pairs=link.pairs)
        found = unpack((map_header if link.pairs else array_header)(link.count) + plain[1:], self.place)
        if len(found) != link.count:
            raise DamagedData(self.place, f"a page of it has {len(found)} parts instead of {link.count}")
        return [found]

    def _view(self, count: int, sections: list[Any], segments: list[Segment], pairs: bool) -> Any:
        return (DictView if pairs else ListView)(self, count, sections, segments)


class _View:
    """What views of dicts and lists have in common."""

    __slots__ = ("_count", "_reader", "_sections", "_segments")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, reader: _Reader, count: int, sections: list[Any], segments: list[Segment] | None) -> None:
        self._reader = reader
        self._count = count
        self._sections = sections
        self._segments = segments

    def value(self) -> Any:
        """A real dict or list of the whole content, as `load` returns it."""
        return _copy(self._sections[0]) if self._segments is None else self._reader.value(self._segments)

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        if isinstance(other, type(self)):
            return self._count == other._count and bool(self.value() == other.value())
        if not isinstance(other, dict if isinstance(self, DictView) else list):
            return NotImplemented
        return self._count == len(other) and bool(self.value() == other)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._count} in {self._reader.place}>"


class DictView(_View, Mapping[str, Any]):
    """A read-only view of a dict. A large one has pages, in which a key is searched from the first on."""

    __slots__ = ()

    def _each(self, sections: list[Any]) -> Iterator[Any]:
        """The parts of the dict in their order; a value may be a link."""
        for at in range(0, len(sections), _AHEAD):
            ahead = sections[at : at + _AHEAD]
            self._reader.fetch([section for section in ahead if type(section) is Link])
            for section in ahead:
                if type(section) is Link:
                    yield from self._each(self._reader.sections(section))
                else:
                    yield section

    def __getitem__(self, key: str) -> Any:
        for part in self._each(self._sections):
            if key in part:
                return self._reader.part(part[key])
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        for part in self._each(self._sections):
            yield from part

    def __contains__(self, key: object) -> bool:
        return any(key in part for part in self._each(self._sections))

    def items(self) -> ItemsView[str, Any]:
        """The keys with their values."""
        return _DictItems(self)

    def values(self) -> ValuesView[Any]:
        """The values."""
        return _DictValues(self)

    def _pairs(self) -> Iterator[tuple[str, Any]]:
        """The keys with their values, read page by page."""
        for part in self._each(self._sections):
            for key, value in part.items():
                yield key, self._reader.part(value)

    def value(self) -> dict[str, Any]:
        """A real dict of the whole content, as `load` returns it."""
        found: dict[str, Any] = super().value()
        return found


class ListView(_View, Sequence[Any]):
    """A read-only view of a list. A slice is a list of its items."""

    __slots__ = ()

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...
    def __getitem__(self, at: Any) -> Any:
        places = range(self._count)
        if not isinstance(at, slice):
            try:
                place = places[at]
            except IndexError:
                raise IndexError("list index out of range") from None
            return next(self._range(self._sections, place, place + 1))
        places = places[at]
        if not places:
            return []
        found = list(self._range(self._sections, min(places), max(places) + 1))
        return found[:: places.step] if len(places) > 1 else found

    def _range(self, sections: list[Any], start: int, stop: int) -> Iterator[Any]:
        """The items of these sections from place `start` to `stop`."""
        wanted, end = [], 0
        for section in sections:
            begin, end = end, end + (section.count if type(section) is Link else len(section))
            if begin < stop and end > start:
                wanted.append((section, max(0, start - begin), stop - begin))
        for at in range(0, len(wanted), _AHEAD):
            ahead = wanted[at : at + _AHEAD]
            self._reader.fetch([section for section, _, _ in ahead if type(section) is Link])
            for section, first, last in ahead:
                if type(section) is Link:
                    yield from self._range(self._reader.sections(section), first, last)
                else:
                    yield from map(self._reader.part, section[first:last])

    def __iter__(self) -> Iterator[Any]:
        return self._range(self._sections, 0, self._count)

    def value(self) -> list[Any]:
        """A real list of the whole content, as `load` returns it."""
        found: list[Any] = super().value()
        return found


class _DictItems(ItemsView[str, Any]):
    _mapping: DictView

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return self._mapping._pairs()


class _DictValues(ValuesView[Any]):
    _mapping: DictView

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._mapping._pairs())


def _copy(value: Any) -> Any:
    if isinstance(value, _View):
        return value.value()
    if type(value) is dict:
        return {key: _copy(part) for key, part in value.items()}
    if type(value) is list or type(value) is tuple:
        return type(value)([_copy(part) for part in value])
    return value


class AsyncView:
    """The lazy state that `store.aio.view` loads. Functions read it outside the event loop.

    Example:
        found = await store.aio.view("run-1")
        last = await found.state.read(lambda state: state["messages"][-1])
    """

    __slots__ = ("_core", "_state")

    def __init__(self, core: StoreContext, state: Any) -> None:
        self._core = core
        self._state = state

    async def read(self, fn: Callable[[Any], Any]) -> Any:
        """Call `fn` with the view of the state; what it returns is returned without views, as real dicts and lists."""

        def plan() -> Plan[Any]:
            return (yield lambda: _copy(fn(self._state)))

        return await self._core.awaiting.run(plan())

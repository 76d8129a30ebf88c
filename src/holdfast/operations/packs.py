"""Packs: many chunks of one family, compressed together.

    pack := body of the chunks, one after another

Chunks that are small and alike, such as messages and the pages that repeat them, shrink together to less than half of
what they take one by one. A save stores its chunks one by one. Later, in a commit of its own, they move to a pack and
keep their names; a process that dies before that has changed nothing. The large chunks of a pack, which every reader of
a state needs, come first, so that a reader decompresses only the beginning.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from holdfast.errors import DamagedData
from holdfast.limits import PACK_BYTES_MAX, PACK_CHUNKS_MAX, PACKS_READ_BYTES_MAX
from holdfast.model.views import Problem
from holdfast.state.compression import beginning, plain
from holdfast.state.rope import chunk_hash
from holdfast.store.packs import NewPack, PackSize, Place
from holdfast.store.port import StorePort

if TYPE_CHECKING:
    from holdfast.operations.context import StoreContext

PACK_EVERY: Final = 96
"""After so many checkpoints of a run, the chunks of its family are packed."""
CHUNKS_MIN: Final = 32
"""Fewer chunks are not worth a pack."""
_BODY_MAX: Final = 16 * 1024
"""A chunk with a larger body stays as it is: it was compressed well, or cannot be."""
_PACKS_AT_ONCE: Final = 4
"""Packs that one save makes at most."""


class ChunkReader:
    """Reads chunks of one family, wherever they are. Each pack is decompressed once, as far as it is needed."""

    def __init__(self, port: StorePort, family: int) -> None:
        self._port = port
        self._family = family
        self._packs: OrderedDict[int, tuple[bytes, bytes]] = OrderedDict()
        """Bodies of packs, and the plain bytes of their beginnings."""
        self._size = 0

    def __call__(self, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """The bodies of these chunks, without those that do not exist."""
        found = self._port.chunks(self._family, hashes)
        missing = [name for name in hashes if name not in found]
        for at in range(0, len(missing), PACK_CHUNKS_MAX):  # each of them may be in another pack
            self._add_packed(missing[at : at + PACK_CHUNKS_MAX], found)
        return found

    def _add_packed(self, hashes: Sequence[bytes], found: dict[bytes, bytes]) -> None:
        """Add the bodies of those of these chunks that are in packs."""
        places, bodies = self._port.packed(self._family, hashes, list(self._packs))
        chosen = _by_pack(places)
        packs = {number: (body, b"") for number, body in bodies.items()}
        packs |= {number: self._take(number) for number in chosen if number in self._packs}
        for number, wanted in chosen.items():
            where = f"pack {number} of family {self._family}"
            if number not in packs:
                raise DamagedData(where, "it is missing")
            body, data = packs.pop(number)
            end = max(place.start + place.size for _, place in wanted)
            if len(data) < end:
                data = beginning(body, end, where)
            found.update((name, b"\x00" + data[place.start : place.start + place.size]) for name, place in wanted)
            self._hold(number, body, data)

    def _take(self, number: int) -> tuple[bytes, bytes]:
        body, data = self._packs.pop(number)
        self._size -= len(body) + len(data)
        return body, data

    def _hold(self, number: int, body: bytes, data: bytes) -> None:
        """Keep the packs that were used last."""
        self._packs[number] = (body, data)
        self._size += len(body) + len(data)
        while self._size > PACKS_READ_BYTES_MAX:
            _, (body, data) = self._packs.popitem(last=False)
            self._size -= len(body) + len(data)


def _by_pack(places: Mapping[bytes, Place]) -> dict[int, list[tuple[bytes, Place]]]:
    """The chunks of each pack, in their order."""
    found: dict[int, list[tuple[bytes, Place]]] = {}
    for name, place in sorted(places.items(), key=lambda item: (item[1].pack, item[1].start)):
        found.setdefault(place.pack, []).append((name, place))
    return found


class StoredChunks:
    """All chunks of a family and their sizes, as they are stored, or as they would be after a removal."""

    def __init__(self, port: StorePort, family: int) -> None:
        self.loose = port.chunk_sizes(family)  # first: a chunk that moves to a pack meanwhile is in both
        self.places, self.packs = port.packs(family)
        self._virtual = 0

    @property
    def names(self) -> set[bytes]:
        """The hashes of all chunks."""
        return self.loose.keys() | self.places.keys()

    @property
    def stored_bytes(self) -> int:
        """The bytes that they take."""
        return sum(self.loose.values()) + sum(pack.stored for pack in self.packs.values())

    def remove(self, names: Iterable[bytes]) -> None:
        """What a sweep does."""
        for name in names:
            self.loose.pop(name, None)
            self.places.pop(name, None)
        self._drop_empty()

    def add(self, pack: NewPack) -> None:
        """What storing a pack does."""
        self._virtual -= 1
        self.places |= pack.places(self._virtual)
        self.packs[self._virtual] = PackSize(pack.size, len(pack.body))
        for name, _ in pack.chunks:
            self.loose.pop(name, None)
        self._drop_empty()

    def _drop_empty(self) -> None:
        used = {place.pack for place in self.places.values()}
        self.packs = {number: size for number, size in self.packs.items() if number in used}

    def sparse(self) -> list[list[bytes]]:
        """Groups of the chunks of packs that have lost more than half of their bytes, each for a new pack."""
        left: Counter[int] = Counter()
        for place in self.places.values():
            left[place.pack] += place.size
        sparse = {number for number, pack in self.packs.items() if left[number] * 2 < pack.size}
        chunks = [(name, place) for name, place in self.places.items() if place.pack in sparse]
        chunks.sort(key=lambda item: (item[1].pack, item[1].start))
        return [[name for name, _ in group] for group in _groups(chunks)]


def _groups(chunks: Iterable[tuple[bytes, Place]]) -> Iterator[list[tuple[bytes, Place]]]:
    """The chunks in groups within the limits of a pack."""
    group: list[tuple[bytes, Place]] = []
    size = 0
    for name, place in chunks:
        if group and (len(group) == PACK_CHUNKS_MAX or size + place.size > PACK_BYTES_MAX):
            yield group
            group, size = [], 0
        group.append((name, place))
        size += place.size
    if group:
        yield group


def _new_pack(core: StoreContext, family: int, names: Sequence[bytes]) -> NewPack | None:
    """A pack of these chunks, as far as they exist and fit, large ones first; None if one is damaged or none exists."""
    try:
        bodies = core.fetch(family)(list(names))
        pieces = {name: plain(body, PACK_BYTES_MAX, f"chunk {name.hex()}") for name, body in bodies.items()}
    except DamagedData:
        return None
    if not pieces or any(chunk_hash(piece) != name for name, piece in pieces.items()):
        return None
    chosen, size = [], 0
    for name in names:
        if name in pieces and size + len(pieces[name]) <= PACK_BYTES_MAX:
            chosen.append(name)
            size += len(pieces[name])
    chosen.sort(key=lambda name: -len(pieces[name]))
    content = b"".join([pieces[name] for name in chosen])
    return NewPack(tuple([(name, len(pieces[name])) for name in chosen]), core.body(content))


def pack_loose(core: StoreContext, family: int, packs_max: int, chunks_min: int = CHUNKS_MIN) -> int:
    """Move chunks that are not in packs into at most `packs_max` packs, each of at least `chunks_min`.

    Returns the number of packs.
    """
    sizes = core.port.chunk_sizes(family)
    chunks = [(name, Place(0, 0, size)) for name, size in sizes.items() if size <= _BODY_MAX]
    groups = [group for group in _groups(chunks) if len(group) >= chunks_min]
    packs = 0
    for group in groups[:packs_max]:
        pack = _new_pack(core, family, [name for name, _ in group])
        gained = sum(sizes[name] for name, _ in pack.chunks) - len(pack.body) if pack is not None else 0
        if pack is not None and gained > 0 and core.port.pack(family, pack):
            packs += 1
    return packs


def pack_after_save(core: StoreContext, family: int) -> None:
    """Pack after a save."""
    pack_loose(core, family, _PACKS_AT_ONCE)


def rewrite_sparse(core: StoreContext, family: int) -> int:
    """Write packs again that have lost more than half of their bytes. Returns how many bytes that freed."""
    stored = StoredChunks(core.port, family)
    return _rewrite(core, family, stored, store=True)


def estimate_removal(core: StoreContext, family: int, stored: StoredChunks, dead: Iterable[bytes]) -> int:
    """How many bytes a sweep of these chunks frees, with the packs that are then written again; updates `stored`."""
    before = stored.stored_bytes
    stored.remove(dead)
    _rewrite(core, family, stored, store=False)
    return before - stored.stored_bytes


def _rewrite(core: StoreContext, family: int, stored: StoredChunks, *, store: bool) -> int:
    before = stored.stored_bytes
    for names in stored.sparse():
        pack = _new_pack(core, family, names)
        if pack is None or (store and not core.port.pack(family, pack)):
            continue
        stored.add(pack)
    return before - stored.stored_bytes


def pack_problems(core: StoreContext, family: int, stored: StoredChunks) -> Iterator[Problem]:
    """The damage of packs, each with the chunks that are in it, whether a checkpoint needs them or not."""
    for number, chunks in _by_pack(stored.places).items():
        where, names = f"pack {number} of family {family}", [name for name, _ in chunks]
        try:
            bad, reason = _wrong_chunks(core.port, family, names, where), "it has other content than was stored"
        except DamagedData as damage:
            bad, reason = names, damage.reason
        if bad:
            yield Problem(place=where, reason=f"{reason}; it holds the chunks {', '.join([n.hex() for n in bad])}")


def _wrong_chunks(port: StorePort, family: int, names: list[bytes], where: str) -> list[bytes]:
    """The chunks of one pack whose content does not match their names."""
    places, bodies = port.packed(family, names)
    wrong = []
    for number, chunks in _by_pack(places).items():  # they may have moved to another pack meanwhile
        if number not in bodies:
            raise DamagedData(where, "it is missing")
        data = beginning(bodies[number], max(place.start + place.size for _, place in chunks), where)
        wrong += [n for n, place in chunks if chunk_hash(data[place.start : place.start + place.size]) != n]
    return wrong

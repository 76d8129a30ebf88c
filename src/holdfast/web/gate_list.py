"""The open gates of all runs, as the inbox lists them: filtered, in pages, longest waiting first.

Decoded gates are kept by run, gate and checksum of the row, so that a filter over ten thousand gates decodes each of
them once. What is kept is masked, so a search does not find what is not shown.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, ClassVar, Final, NamedTuple

from holdfast.clock import US
from holdfast.errors import HoldfastError, InvalidId
from holdfast.ids import check_id
from holdfast.inspect.threads import INTERRUPT, THREADS, readable_interrupts
from holdfast.model.rows import WAITING, GateRow, RunRow
from holdfast.model.views import GROUP, GateInfo
from holdfast.operations.gates import gate_info
from holdfast.runtime.answers import Place, place_of
from holdfast.store.port import RunQuery
from holdfast.web.identity import User
from holdfast.web.mask import Masker
from holdfast.web.render import as_json
from holdfast.web.site import Site

PAGE: Final = 50
SCAN: Final = 1_000
"""Gates read at once by a filter."""
COUNT_MAX: Final = 1_000
"""A filter counts the gates that fit up to this number, and stops then."""
KEPT_MAX: Final = 20_000
KEPT_BYTES_MAX: Final = 64 << 10
"""A larger gate is decoded each time."""
SEARCHED_MAX: Final = 20_000
"""Characters of one gate in which a text is searched."""
THREADS_MAX: Final = 200
"""Waiting threads of LangGraph that are searched for interrupts."""


class Entry:
    """A gate as it was read."""

    def __init__(self, run: RunRow, gate: str, opened_us: int, seal: int = 0) -> None:
        self.run_id = run.run_id
        self.workflow = run.workflow
        self.gate = gate
        self.opened_us = opened_us
        self.place: Place = (opened_us, run.run, gate)
        self.info: GateInfo | None = None
        """Masked. None: the gate could not be read."""
        self.problem = ""
        self.valid_until_us: int | None = None
        """The time of the next escalation: then other people may answer."""
        self._seal = seal
        self._searched: str | None = None
        self.parts: dict[str, Any] = {}
        """What a card shows of it, as it was rendered."""

    @property
    def id(self) -> str:
        """An id of the gate for elements of the page; it stays the same as long as the gate exists."""
        return f"g{_digest(self.run_id, self.gate)}"

    @property
    def question(self) -> str:
        """What identifies the question: another one under the same name has another."""
        return self.info.question if self.info is not None else ""

    @property
    def version(self) -> str:
        """What identifies the gate as it is now: it changes with each approval and each reassignment."""
        return _digest(self.question, self._seal)

    @property
    def cursor(self) -> str:
        """Where the page after this gate begins."""
        return "/".join(map(str, self.place))

    def is_expired(self, now_us: int) -> bool:
        """Whether its time is over, although no worker has closed it yet."""
        return self.info is not None and has_expired(self.info, now_us)

    @property
    def searched(self) -> str:
        """The text in which a search looks."""
        if self._searched is None:
            parts = [self.run_id, self.workflow, self.gate]
            if self.info is not None:
                parts += [self.info.prompt, "" if self.info.show is None else as_json(self.info.show, None)]
            self._searched = "\n".join(parts)[:SEARCHED_MAX].casefold()
        return self._searched


def has_expired(gate: GateInfo, now_us: int) -> bool:
    """Whether the time of a gate is over."""
    return gate.expires_at is not None and gate.expires_at.timestamp() * US <= now_us


def refusal_of(user: User, gate: GateInfo, now_us: int) -> str:
    """Why a user cannot answer a gate; empty if it can."""
    if not user.has_role("approver"):
        return f"answering needs the role approver, and {user.name!r} is {user.role}"
    if gate.state == "open" and has_expired(gate, now_us):
        return "it has expired"
    return gate.may_answer(user.name, user.groups) or ""


def _digest(*parts: object) -> str:
    return blake2b("\0".join(map(str, parts)).encode(), digest_size=9).hexdigest()


class Filter(NamedTuple):
    """Which gates are listed."""

    text: str = ""
    workflow: str = ""
    person: str = ""
    """Gates that name this person."""
    group: str = ""
    purpose: str = ""
    mine: bool = False
    """Gates that the user may answer."""

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> Filter:
        """The filter in a query."""
        texts = {name: query.get(name, "").strip()[:500] for name in ("text", "workflow", "person", "group", "purpose")}
        return cls(**texts, mine=query.get("mine", "") not in ("", "0"))

    @property
    def query(self) -> dict[str, str]:
        """The filter for a link."""
        found = {**self._asdict(), "mine": "1" if self.mine else ""}
        return {name: str(value) for name, value in found.items() if value}

    def fits(self, entry: Entry, user: User, now_us: int) -> bool:
        """Whether a gate is listed for this user."""
        if not user.can_see(entry.workflow) or self.workflow not in ("", entry.workflow):
            return False
        info = entry.info
        if info is None:
            return not (self.person or self.group or self.purpose or self.mine) and self._finds(entry)
        return (
            self.purpose in ("", info.purpose)
            and (not self.person or self.person in info.who)
            and (not self.group or f"{GROUP}{self.group.removeprefix(GROUP)}" in info.who)
            and (not self.mine or not refusal_of(user, info, now_us))
            and self._finds(entry)
        )

    def _finds(self, entry: Entry) -> bool:
        return all(word in entry.searched for word in self.text.casefold().split())


class GatePage(NamedTuple):
    """A page of open gates."""

    entries: list[Entry]
    next: str | None
    """Where the next page begins; None: this is the last one."""
    total: int
    """All open gates that the user sees; -1 if they are too many to count."""
    fitting: int
    """Those that fit the filter, up to COUNT_MAX; then there are more."""
    interrupts: list[Entry]
    """Interrupts of LangGraph's threads; on the first page."""
    mark: str
    """Changes when what the page shows changes."""


class GateList:
    """The gates of a site, with those that were decoded."""

    _of: ClassVar[weakref.WeakKeyDictionary[Site, GateList]] = weakref.WeakKeyDictionary()

    def __init__(self, site: Site) -> None:
        self._site = weakref.ref(site)
        self._kept: dict[tuple[int, str, int], Entry] = {}
        self._interrupts: dict[tuple[int, bytes], list[GateInfo]] = {}
        self._scanned: tuple[float, list[Entry]] = (-math.inf, [])
        self.shown = ShownGates()

    @classmethod
    def of(cls, site: Site) -> GateList:
        """The list of a site."""
        return cls._of.get(site) or cls._of.setdefault(site, cls(site))

    @property
    def site(self) -> Site:
        found = self._site()
        assert found is not None
        return found

    @property
    def now_us(self) -> int:
        """The time, by the clock of the store."""
        return self.site.store.access.core.clock.now_us()

    # --- one gate ----------------------------------------------------------------------------------------------------

    def entry(self, run: RunRow, row: GateRow, now_us: int) -> Entry:
        """A gate, decoded if it has changed since."""
        key = (run.run, row.gate, row.seal)
        found = self._kept.get(key)
        if found is not None and (found.valid_until_us is None or now_us < found.valid_until_us):
            return found
        entry = Entry(run, row.gate, row.opened_us, row.seal)
        try:
            info = gate_info(run, row, now_us)
            entry.info = Masker(self.site.mask).gate(info)
            later = [one.at for one in info.escalations if not one.due]
            entry.valid_until_us = int(min(later).timestamp() * US) if later else None
        except HoldfastError as error:  # one damaged gate must not hide the others
            entry.problem = str(error)
        if len(row.body) <= KEPT_BYTES_MAX:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept[key] = entry
        return entry

    def find(self, run_id: str, gate: str) -> Entry | None:
        """A gate by its full name, in any state; None if there is none."""
        core = self.site.store.access.core
        try:
            check_id("run", run_id)
        except InvalidId:
            return None
        run = core.port.run(run_id)
        if run is None:
            return None
        row = next((row for row in core.gates_of(run.run, None) if row.gate == gate), None)
        if row is not None:
            return self.entry(run, row, self.now_us)
        if run.workflow != THREADS:
            return None
        return next((entry for entry in self._interrupts_of(run) if entry.gate == gate), None)

    # --- lists -------------------------------------------------------------------------------------------------------

    def page(
        self, user: User, choice: Filter, after: str = "", limit: int = PAGE, *, max_age_s: float = 0.0
    ) -> GatePage:
        """A page of the gates that fit; raises InvalidCursor. A filter may search gates that were read a moment ago."""
        place = place_of(after or None)
        if choice == Filter() and user.sees_all:
            entries, total = self._read(place, limit + 1), self._count()
            fitting = total
        else:
            entries, total, fitting = self._search(self._scan(max_age_s), user, choice, place, limit)
        shown = entries[:limit]
        following = shown[-1].cursor if len(entries) > limit else None
        interrupts = self._find_interrupts(user, choice, limit) if place is None else []
        mark = self._mark([*shown, *interrupts], total, fitting, following)
        return GatePage(shown, following, total, fitting, interrupts, mark)

    def count_visible(self, user: User) -> int:
        """How many gates are open that the user sees."""
        place: Place | None = None
        count = 0
        while True:
            rows = self.site.store.access.core.port.gates("open", SCAN, place)
            count += sum(user.can_see(run.workflow) for run, _ in rows)
            if len(rows) < SCAN:
                return count
            run, gate = rows[-1]
            place = (gate.opened_us, run.run, gate.gate)

    def _search(
        self, entries: Iterable[Entry], user: User, choice: Filter, place: Place | None, limit: int
    ) -> tuple[list[Entry], int, int]:
        """The page after a place, with one more; how many gates are open, and how many fit."""
        found: list[Entry] = []
        total = fitting = 0
        now_us = self.now_us
        for entry in entries:
            total += user.can_see(entry.workflow)
            if not choice.fits(entry, user, now_us):
                continue
            fitting += 1
            if len(found) <= limit and (place is None or entry.place > place):
                found.append(entry)
            if fitting > COUNT_MAX and len(found) > limit:
                return found, self._count() if user.sees_all else -1, fitting
        return found, total, fitting

    def _scan(self, max_age_s: float) -> Iterable[Entry]:
        """All open gates, read now or at most this long ago."""
        if not max_age_s:
            return self._read_all()
        at, entries = self._scanned
        if time.monotonic() - at > max_age_s:
            at, entries = self._scanned = (time.monotonic(), list(self._read_all()))
        return entries

    def _read_all(self) -> Iterator[Entry]:
        place: Place | None = None
        while True:
            page = self._read(place, SCAN)
            yield from page
            if len(page) < SCAN:
                return
            place = page[-1].place

    def _read(self, place: Place | None, limit: int) -> list[Entry]:
        """Open gates after a place."""
        now_us, rows = self.now_us, self.site.store.access.core.port.gates("open", limit, place)
        return [self.entry(run, row, now_us) for run, row in rows]

    def _count(self) -> int:
        return self.site.store.access.core.port.open_gates()

    def _mark(self, shown: list[Entry], total: int, fitting: int, following: str | None) -> str:
        now_us = self.now_us
        facts: list[object] = [total, fitting, following]
        for entry in shown:
            facts += [entry.id, entry.version, entry.info and entry.info.who, entry.is_expired(now_us)]
        return _digest(*facts)

    # --- interrupts of LangGraph's threads ----------------------------------------------------------------------------

    def _find_interrupts(self, user: User, choice: Filter, limit: int) -> list[Entry]:
        """Interrupts of the threads that were created last; they are answered through their graphs."""
        if not user.can_see(THREADS) or choice.mine or choice.purpose not in ("", INTERRUPT):
            return []
        query = RunQuery(statuses=(WAITING,), workflow=THREADS, limit=THREADS_MAX)
        found: list[Entry] = []
        for run in self.site.store.access.core.port.runs(query):
            found += [entry for entry in self._interrupts_of(run) if choice.fits(entry, user, self.now_us)]
            if len(found) >= limit:
                break
        return sorted(found[:limit], key=lambda entry: entry.opened_us)

    def _interrupts_of(self, run: RunRow) -> list[Entry]:
        key = (run.run, run.commit_id)
        infos = self._interrupts.get(key)
        if infos is None:
            if len(self._interrupts) >= 2 * THREADS_MAX:
                self._interrupts.clear()
            masker = Masker(self.site.mask)
            infos = [masker.gate(info) for info in readable_interrupts(self.site.store.access.core, run)]
            self._interrupts[key] = infos
        found = []
        for info in infos:
            entry = Entry(run, info.gate, int(info.opened_at.timestamp() * US))
            entry.info = info
            found.append(entry)
        return found


class ShownGates:
    """Which gates this process has shown each user last.

    The card of a gate that another person has answered stays for a while, so that a live update reports who did. Cards
    with something typed in them stay without this: the browser names them.
    """

    STAY_S: Final = 60.0
    _VIEWS_MAX: Final = 2_000

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._views: OrderedDict[tuple[str, str], dict[tuple[str, str], float | None]] = OrderedDict()
        """By user and address: the gates, and since when each is not listed any more."""

    def note(self, user: User, address: str, listed: list[Entry]) -> list[tuple[str, str]]:
        """Note what is listed now; returns the run and the name of those that were listed until a moment ago."""
        now, key = time.monotonic(), (user.name, address)
        current: dict[tuple[str, str], float | None] = {(entry.run_id, entry.gate): None for entry in listed}
        with self._lock:
            before = self._views.pop(key, {})
            gone: dict[tuple[str, str], float | None] = {
                gate: since or now
                for gate, since in before.items()
                if gate not in current and now - (since or now) < self.STAY_S
            }
            self._views[key] = current | gone
            if len(self._views) > self._VIEWS_MAX:
                self._views.popitem(last=False)
        return list(gone)

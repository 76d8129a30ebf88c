"""The tracked state of a run: a save encodes only what has changed since the last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypedDict, TypeVar, Unpack, cast

from holdfast.drivers import Plan, forbid_in_loop
from holdfast.ids import check_id
from holdfast.model.views import Saved, StoredDict
from holdfast.operations import views
from holdfast.operations.context import Access, StoreContext
from holdfast.operations.read import Loaded, load_checkpoint, selection
from holdfast.operations.state_commit import SavedAs
from holdfast.operations.write import save
from holdfast.state.change_stamps import Tracking, clock
from holdfast.state.loaded_memo import memo_of_loaded
from holdfast.state.rope import Outline
from holdfast.state.settlement import settle_part, to_tracked
from holdfast.state.tracked import TrackedDict, TrackedList
from holdfast.store.port import Select

S = TypeVar("S")
Opened = TypeVar("Opened")


class SaveOptions(TypedDict, total=False):
    """What is saved with a state; see `Store.save`."""

    workflow: str | None
    step: int | None
    next_node: str | None
    status: str | None
    metadata: StoredDict | None
    covers: int | str | None
    checkpoint_id: str | None
    parent_id: str | None
    replace: bool


class TrackedBase(Generic[S]):
    """What the tracked states of blocking and async callers have in common."""

    def __init__(self, access: Access, run_id: str, lane: str, state: S) -> None:
        self.access = access
        self.run_id = run_id
        self.lane = lane
        self._held: TrackedList[S] = TrackedList([state])

    @property
    def state(self) -> S:
        """The state: dicts and lists that record their changes. Another value may be assigned."""
        return self._held[0]

    @state.setter
    def state(self, state: S) -> None:
        self._held[0] = state

    def _plan(self, options: SaveOptions) -> Plan[Saved]:
        with clock.lock:
            state = settle_part(self._held, 0)
        return save(self.access, self.run_id, state, lane=self.lane, **options)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} state of {self.run_id!r}>"


class Tracked(TrackedBase[S]):
    """A run's state whose save costs what has changed, not the whole. `store.tracked` and `claim.tracked` return one.

    Example:
        chat = store.tracked("run-1")
        chat.state.setdefault("messages", []).append({"role": "user", "content": "hi"})
        chat.save(step=1)
    """

    def save(self, **options: Unpack[SaveOptions]) -> Saved:
        """Save the state as a checkpoint, durably; the options are those of `Store.save`.

        If it raises, the changes are part of the next save.
        """
        forbid_in_loop("save")
        return self.access.run(self._plan(options))


class AsyncTracked(TrackedBase[S]):
    """The same for async callers: `await chat.save()`."""

    async def save(self, **options: Unpack[SaveOptions]) -> Saved:
        """Save the state as a checkpoint; see `Tracked.save`."""
        return await self.access.core.awaiting.run(self._plan(options))


def open_tracked(
    access: Access, make: Callable[[Access, str, str, Any], Opened], run_id: str, as_type: object, lane: str
) -> Plan[Opened]:
    """Load the newest state of a lane and track it; an empty dict if there is none."""
    check_id("run_id", run_id)
    select = selection(None, None, None, lane)
    found: Loaded | None = yield lambda: load_tracked(access.core, run_id, select, as_type)
    return make(access, run_id, lane, cast("Any", TrackedDict() if found is None else found.state))


def load_tracked(core: StoreContext, run_id: str, select: Select, as_type: object = None) -> Loaded | None:
    """The checkpoint, with its state as a tracked one that knows its chunks."""
    outline: Outline = {}
    found = load_checkpoint(core, run_id, select, outline)
    if found is None:
        return None
    run, row, state, cache = found
    del found
    if as_type is not None:
        state = views.convert_state(state, as_type, f"the state in {views.checkpoint_place(run_id, row)}")
    tracked = to_tracked(state)
    if as_type is None and cache is not None and isinstance(tracked, Tracking):
        tracked.memo = SavedAs(cache, memo_of_loaded(tracked, row.root, outline))
    return Loaded(run, row, tracked, cache)


def replace_content(state: dict[str, object], new: dict[str, object]) -> None:
    """Replace what a state contains. A loaded one hands over what it knows of its chunks."""
    with clock.lock:
        state.clear()
        state.update(new)
        if not isinstance(new, TrackedDict) or not isinstance(state, TrackedDict) or new.memo is None:
            return
        saved: SavedAs = new.memo
        if saved.memo is not None:
            state.log, new.log, new.memo = new.log, None, None
            state.memo = saved._replace(memo=saved.memo._replace(value=state, identity=id(state)))

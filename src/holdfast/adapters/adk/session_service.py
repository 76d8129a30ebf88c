"""`HoldfastSessionService`: ADK's sessions as journals."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session
from google.adk.sessions.state import State
from pydantic_core import to_jsonable_python

from holdfast.adapters.adk.codec import dump, load
from holdfast.adapters.shared.calls import current, next_key, record_call
from holdfast.errors import InvalidInput, RunNotFound
from holdfast.model.views import Entry
from holdfast.open_store import open as open_store
from holdfast.operations.store import Store

R = TypeVar("R")
_ADAPTER: Final = "holdfast.adapters.adk"
_PAGE: Final = 200


class HoldfastSessionService(BaseSessionService):
    """Sessions of ADK in a store: one run per session, and one for each `user:` and `app:` state.

    Events are journal entries, so concurrent appends are all kept. Inside a run, reads are recorded as positions, and
    an append that is repeated after a crash adds nothing.

    Example:
        sessions = HoldfastSessionService("sqlite:runs.db")
        runner = Runner(app_name="shop", agent=agent, session_service=sessions, plugins=[HoldfastPlugin()])
    """

    def __init__(self, store: Store | str, *, workflow: str = "adk-session") -> None:
        if not isinstance(store, (Store, str)):
            raise InvalidInput(f"a store or its URL is needed, not {type(store).__name__}")
        self._owned = isinstance(store, str)
        self.store = open_store(store) if isinstance(store, str) else store
        self._workflow = workflow

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Create a session; `app:` and `user:` entries of the state go to their own runs."""
        given = (session_id or "").strip()
        delta = to_jsonable_python(state or {}, bytes_mode="base64", fallback=repr)

        async def create(place: str) -> str | None:
            place = place or uuid.uuid4().hex
            made_id = given or str(uuid.uuid5(uuid.NAMESPACE_URL, place))
            run_id = _run_of(app_name, user_id, made_id)
            entry = {"kind": "created", "state": _scoped(delta, ""), "time": time.time(), "key": place}
            if not await self._read(run_id, limit=1):
                await self._append(run_id, entry)
            (first,) = await self._read(run_id, limit=1)
            if first.data.get("key") != place:  # another caller has created it
                return None
            await self._append_scoped(app_name, user_id, delta, place)
            return made_id

        made_id = await self._record(f"create session {app_name} {user_id} {given}", create)
        if made_id is None:
            raise AlreadyExistsError(f"Session with id {given} already exists.")
        session = await self.get_session(app_name=app_name, user_id=user_id, session_id=made_id)
        assert session is not None
        return session

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """The session with its events and the merged state; None if it does not exist."""
        session_id = session_id.strip()
        logs = [_run_of(app_name, user_id, session_id), _run_of(app_name, user_id), _run_of(app_name)]

        found = [await self._read(log) for log in logs]

        async def measure(_: str) -> list[int]:
            return [entries[-1].position if entries else 0 for entries in found]

        # The journals only grow, so their ends are enough to read the same again.
        ends = await self._record(f"get session {app_name} {user_id} {session_id}", measure)
        entries, user, app = [
            [entry for entry in entries if entry.position <= end] for entries, end in zip(found, ends, strict=True)
        ]
        if ends[0] and not entries:
            raise SessionNotFoundError(f"Session {session_id} was deleted while a run waited that had read it.")
        shared = {**_prefixed(State.APP_PREFIX, app), **_prefixed(State.USER_PREFIX, user)}
        return _session_of(Session(id=session_id, app_name=app_name, user_id=user_id), entries, shared, config)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """The sessions of an app or of one of its users without their events, oldest first."""
        prefix = _run_of(app_name, user_id, "") if user_id is not None else f"{_run_of(app_name)}/"

        async def read(_: str) -> list[list[str]]:
            found, after = [], None
            while True:
                page = await self.store.aio.runs(workflow=self._workflow, prefix=prefix, limit=_PAGE, after=after)
                found += [[unquote(name) for name in info.run_id.split("/")[2:]] for info in page]
                after = page.cursor
                if after is None:
                    return [names for names in found if len(names) == 2]

        names = await self._record(f"list sessions {app_name} {user_id}", read)
        nothing = GetSessionConfig(num_recent_events=0)
        found = [
            await self.get_session(app_name=app_name, user_id=user, session_id=session_id, config=nothing)
            for user, session_id in names
        ]
        sessions = sorted(filter(None, found), key=lambda each: (each.last_update_time, each.user_id, each.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with its events. The states of its user and app stay."""
        run_id = _run_of(app_name, user_id, session_id.strip())
        await self._record(f"delete session {run_id}", lambda _: self.store.aio.delete(run_id))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """The `user:` state, without the prefix."""
        log = _run_of(app_name, user_id)

        async def read(_: str) -> dict[str, Any]:
            return _prefixed("", await self._read(log))

        return dict(await self._record(f"get user state {app_name} {user_id}", read))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event to the stored session and to this object; `temp:` state is only kept in the object."""
        if event.partial:
            return event
        run_id = _run_of(session.app_name, session.user_id, session.id)
        data = dump(event) | {"id": event.id, "timestamp": event.timestamp}
        delta = data.get("actions", {}).get("state_delta", {})
        for name in [name for name in delta if name.startswith(State.TEMP_PREFIX)]:
            del delta[name]

        async def append(place: str) -> bool:
            if not await self._read(run_id, limit=1):
                return False
            key = place or _digest(data)  # an event that a caller passes twice is the same event
            await self._append_scoped(session.app_name, session.user_id, delta, key)
            await self._append(run_id, {"kind": "event", "event": data, "key": key})
            return True

        # A replay makes other ids and times, and parallel agents another order.
        same = {name: data.get(name) for name in ("author", "branch", "content", "actions")}
        if not await self._record(f"append event {run_id} {_digest(same)}", append):
            raise SessionNotFoundError(f"Session {session.id} not found.")
        appended = await super().append_event(session, event)
        session.last_update_time = event.timestamp
        return appended

    async def close(self) -> None:
        """Close the store if this object has opened it."""
        if self._owned:
            self.store.close()

    async def _record(self, name: str, act: Callable[[str], Awaitable[R]]) -> R:
        """Act; once, if there is a run. `act` then gets a name that is unique and the same in every replay."""
        run = current(_ADAPTER)
        if run is None:
            return await act("")
        key = next_key(run, name)
        place = f"{run.run_id} {run.scope.path} {key}"
        result: R = await record_call(run, key, lambda: act(place), name=name)
        return result

    async def _read(self, run_id: str, limit: int | None = None) -> list[Entry]:
        try:
            return await self.store.aio.journal(run_id, limit=limit)
        except RunNotFound:
            return []

    async def _append(self, run_id: str, entry: dict[str, Any]) -> None:
        await self.store.aio.append(run_id, [entry], workflow=self._workflow)

    async def _append_scoped(self, app_name: str, user_id: str, delta: dict[str, Any], key: str) -> None:
        for run_id, prefix in (
            (_run_of(app_name), State.APP_PREFIX),
            (_run_of(app_name, user_id), State.USER_PREFIX),
        ):
            if mine := _scoped(delta, prefix):
                await self._append(run_id, {"kind": "state", "state": mine, "key": key})


def _run_of(*names: str) -> str:
    """The run of an app's state, a user's state or a session."""
    return "/".join(["adk", *[quote(name, safe="") for name in names]])


def _scoped(state: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The entries of a state that belong to a scope, without its prefix. The scope of the session has none."""
    if prefix:
        return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    others = (State.APP_PREFIX, State.USER_PREFIX, State.TEMP_PREFIX)
    return {name: value for name, value in state.items() if not name.startswith(others)}


def _prefixed(prefix: str, entries: list[Entry]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in _distinct(entries):
        found |= {f"{prefix}{name}": value for name, value in entry.data["state"].items()}
    return found


def _distinct(entries: list[Entry]) -> list[Entry]:
    """Without those that were written twice, by a process that died or froze and by its successor."""
    found: dict[str, Entry] = {}
    for number, entry in enumerate(entries):
        found.setdefault(entry.data.get("key") or f"{number}", entry)
    return list(found.values())


def _session_of(
    session: Session, entries: list[Entry], shared: dict[str, Any], config: GetSessionConfig | None
) -> Session | None:
    if not entries or entries[0].kind != "created":
        return None
    events = []
    session.state, session.last_update_time = dict(entries[0].data["state"]), entries[0].data["time"]
    for entry in _distinct(entries[1:]):
        if entry.kind == "event":
            data = entry.data["event"]
            session.state |= _scoped(data.get("actions", {}).get("state_delta", {}), "")
            session.last_update_time = data["timestamp"]
            events.append(data)
    if config is not None and config.after_timestamp is not None:
        events = [data for data in events if data["timestamp"] >= config.after_timestamp]
    if config is not None and config.num_recent_events is not None:
        events = events[max(0, len(events) - config.num_recent_events) :]
    session.events = [load(Event, data) for data in events]
    session.state |= shared
    return session


def _digest(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:32]

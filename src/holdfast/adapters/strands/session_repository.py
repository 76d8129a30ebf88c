"""A session repository of Strands on a Holdfast store. A session is a run, whose journal has all changes."""

from __future__ import annotations

import threading
from typing import Any, Final

from strands.multiagent.base import MultiAgentBase
from strands.session.session_repository import SessionRepository
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage

from holdfast.adapters.shared.persister import LEASE_S, Persister, call_blocking
from holdfast.adapters.shared.run_claim import RunClaim, access_for
from holdfast.drivers import Plan
from holdfast.errors import InvalidInput, RunNotFound
from holdfast.model.rows import RunRow
from holdfast.model.views import Entry
from holdfast.operations import prune, read, write
from holdfast.operations.store import Store
from holdfast.runtime.run_base import current_run

Key = tuple[Any, ...]
"""The kind of a value and its ids: `("message", agent_id, message_id)`."""
_WORKFLOW: Final = "strands"
_SESSION: Final = "session"
_AGENT: Final = "agent"
_MESSAGE: Final = "message"
_MULTI_AGENT: Final = "multi_agent"


class HoldfastSessionRepository(SessionRepository):
    """Keeps the sessions of Strands in a Holdfast store, for `RepositorySessionManager`.

    A session is a run of the workflow "strands" with the session's id. Each change is durable when the call returns.
    It is for agents without a workflow; inside a run it is refused, because the run keeps the conversation.

    Example:
        repository = HoldfastSessionRepository("sqlite:sessions.db")
        with repository.claim("chat-1"):
            agent = Agent(session_manager=RepositorySessionManager("chat-1", repository))
            agent("Hello!")
    """

    def __init__(self, store: Store | str) -> None:
        self._persister = Persister(store, _WORKFLOW)
        self._folded: dict[str, _Folded] = {}
        self._lock = threading.Lock()

    @property
    def store(self) -> Store:
        """The store, for `verify`, `export_run` and others."""
        return self._persister.store

    def claim(self, session_id: str, *, lease: float = LEASE_S) -> RunClaim:
        """The exclusive right to change a session, for `with` or `async with`. Create the agent inside it."""
        return self._persister.claim(session_id, lease=lease, status=lambda *_: "waiting")

    def create_session(self, session: Session, **_: Any) -> Session:
        """Create a session."""
        self._create(session.session_id, (_SESSION,), session.to_dict())
        return session

    def read_session(self, session_id: str, **_: Any) -> Session | None:
        """Return a session, or None."""
        found = self._read(session_id).get((_SESSION,))
        return None if found is None else Session.from_dict(found)

    def delete_session(self, session_id: str, **_: Any) -> None:
        """Remove a session with all its agents and messages."""
        self._known(session_id)
        self._persister.run(prune.delete(self.store.access, session_id))
        self._folded.pop(session_id, None)

    def create_agent(self, session_id: str, session_agent: SessionAgent, **_: Any) -> None:
        """Create an agent in a session."""
        self._known(session_id)
        self._create(session_id, (_AGENT, session_agent.agent_id), session_agent.to_dict())

    def read_agent(self, session_id: str, agent_id: str, **_: Any) -> SessionAgent | None:
        """Return an agent, or None."""
        found = self._read(session_id).get((_AGENT, agent_id))
        return None if found is None else SessionAgent.from_dict(found)

    def update_agent(self, session_id: str, session_agent: SessionAgent, **_: Any) -> None:
        """Replace an agent; it keeps the time of its creation."""
        known = self._known(session_id, (_AGENT, session_agent.agent_id))
        value = {**session_agent.to_dict(), "created_at": known["created_at"]}
        self._append(session_id, (_AGENT, session_agent.agent_id), value)

    def create_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **_: Any) -> None:
        """Add a message to an agent."""
        self._known(session_id, (_AGENT, agent_id))
        self._create(session_id, (_MESSAGE, agent_id, session_message.message_id), session_message.to_dict())

    def read_message(self, session_id: str, agent_id: str, message_id: int, **_: Any) -> SessionMessage | None:
        """Return a message, or None."""
        found = self._read(session_id).get((_MESSAGE, agent_id, message_id))
        return None if found is None else SessionMessage.from_dict(found)

    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **_: Any) -> None:
        """Replace a message; it keeps the time of its creation."""
        key = (_MESSAGE, agent_id, session_message.message_id)
        known = self._known(session_id, key)
        self._append(session_id, key, {**session_message.to_dict(), "created_at": known["created_at"]})

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **_: Any
    ) -> list[SessionMessage]:
        """Return the messages of an agent in the order of their ids, `limit` of them from `offset`."""
        found = sorted(
            (key[2], value) for key, value in self._read(session_id).items() if key[:2] == (_MESSAGE, agent_id)
        )
        end = None if limit is None else offset + limit
        return [SessionMessage.from_dict(value) for _, value in found[offset:end]]

    def create_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **_: Any) -> None:
        """Store the state of a graph or a swarm."""
        self._known(session_id)
        self._append(session_id, (_MULTI_AGENT, multi_agent.id), multi_agent.serialize_state())

    def read_multi_agent(self, session_id: str, multi_agent_id: str, **_: Any) -> dict[str, Any] | None:
        """Return the state of a graph or a swarm, or None."""
        return self._read(session_id).get((_MULTI_AGENT, multi_agent_id))

    def update_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **_: Any) -> None:
        """Replace the state of a graph or a swarm."""
        self._known(session_id, (_MULTI_AGENT, multi_agent.id))
        self._append(session_id, (_MULTI_AGENT, multi_agent.id), multi_agent.serialize_state())

    def close(self) -> None:
        """Close the store if this object has opened it."""
        call_blocking(self._persister.close)

    def _known(self, session_id: str, key: Key = (_SESSION,)) -> dict[str, Any]:
        """The value of a session, agent or message that must exist."""
        values = self._read(session_id)
        if (_SESSION,) not in values:
            raise SessionException(f"there is no session {session_id!r}; create it first")
        if key not in values:
            raise SessionException(f"session {session_id!r} has no {_describe(key)}; create it first")
        return values[key]

    def _create(self, session_id: str, key: Key, value: dict[str, Any]) -> None:
        if key in self._read(session_id):
            raise SessionException(f"{_describe(key)} of session {session_id!r} already exists")
        position = self._append(session_id, key, value, is_new=True)
        if self._fold(session_id).created[key] != position:
            raise SessionException(
                f"another process has created {_describe(key)} of session {session_id!r} at the same time; "
                "use the session inside `with repository.claim(session_id)`"
            )

    def _append(self, session_id: str, key: Key, value: dict[str, Any], *, is_new: bool = False) -> int:
        if current_run() is not None:
            raise InvalidInput(
                f"session {session_id!r} cannot be changed inside a run, which would repeat the change on a resume; "
                "leave out the session manager, because the run keeps the conversation"
            )
        entry = {"kind": key[0], "key": list(key), "value": value, "is_new": is_new}
        access = access_for(self.store.access.core, session_id)
        return self._persister.run(write.append(access, session_id, [entry], workflow=_WORKFLOW))

    def _read(self, session_id: str) -> dict[Key, dict[str, Any]]:
        return self._fold(session_id).values

    def _fold(self, session_id: str) -> _Folded:
        """Apply what was appended since the last call."""
        with self._lock:
            known = self._folded.get(session_id) or _Folded(b"")
            try:
                run, entries = self._persister.run(self._news(session_id, known))
            except RunNotFound:
                self._folded.pop(session_id, None)
                return _Folded(b"")
            if run.incarnation != known.incarnation:  # another session of this id, or the first call
                known = _Folded(run.incarnation)
            for entry in entries:
                known.apply(entry)
            self._folded[session_id] = known
            return known

    def _news(self, session_id: str, known: _Folded) -> Plan[tuple[RunRow, list[Entry]]]:
        core = self.store.access.core
        run: RunRow = yield lambda: read.known_run(core, session_id)
        after = known.position if run.incarnation == known.incarnation else 0
        entries = (yield from read.journal(self.store.access, session_id, after=after)) if run.position > after else []
        return run, entries


class _Folded:
    """The values of a session after all entries up to a position."""

    def __init__(self, incarnation: bytes) -> None:
        self.incarnation = incarnation
        self.position = 0
        self.values: dict[Key, dict[str, Any]] = {}
        self.created: dict[Key, int] = {}

    def apply(self, entry: Entry) -> None:
        """Apply an entry. Of two that create the same, the first counts."""
        self.position = entry.position
        if "key" not in entry.data:  # an entry of the store itself
            return
        key = tuple(entry["key"])
        if entry["is_new"]:
            if key in self.created:
                return
            self.created[key] = entry.position
        self.values[key] = entry["value"]


def _describe(key: Key) -> str:
    return " ".join([key[0], *map(repr, key[1:])])

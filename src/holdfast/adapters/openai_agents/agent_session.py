"""`HoldfastSession`: a session of the SDK in a store of Holdfast."""

from __future__ import annotations

from typing import Any

import agents
from agents.memory.session_settings import coerce_session_settings
from pydantic_core import PydanticSerializationError, to_jsonable_python

from holdfast.adapters.shared.session_log import SessionLog
from holdfast.errors import InvalidInput
from holdfast.open_store import open as open_store
from holdfast.operations.store import Store


class HoldfastSession:
    """A session of the SDK in a store of Holdfast, or its URL. Items of concurrent writers are all kept.

    The session is a run of its own, `session <session_id>`. Inside a run it adds nothing twice, whatever crashes.

    Example:
        session = HoldfastSession("ana", "sqlite:agents.db")
        await Runner.run(agent, "Hello", session=session)
    """

    def __init__(
        self,
        session_id: str,
        store: Store | str,
        *,
        session_settings: agents.SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        if not isinstance(store, (Store, str)):
            raise InvalidInput(f"a store or its URL is needed, not {type(store).__name__}")
        self.session_id = session_id
        self.session_settings: agents.SessionSettings | None = coerce_session_settings(session_settings or {})
        self._owned = isinstance(store, str)
        self._store = open_store(store) if isinstance(store, str) else store
        self._log = SessionLog(self._store, f"session {session_id}", "openai_agents session")

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the newest `limit` items, or all, oldest first. Without a limit, `session_settings` has it."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        return await self._log.items(limit)

    async def add_items(self, items: list[Any]) -> None:
        """Append items, all or none."""
        try:
            plain = to_jsonable_python(items, by_alias=True)
        except PydanticSerializationError as error:
            raise InvalidInput(f"items of session {self.session_id!r} cannot be stored: {error}") from error
        await self._log.add(plain)

    async def pop_item(self) -> Any | None:
        """Remove the newest item and return it; None if there is none."""
        return await self._log.pop()

    async def clear_session(self) -> None:
        """Remove all items."""
        await self._log.clear()

    def close(self) -> None:
        """Close the store if this session has opened it."""
        if self._owned:
            self._store.close()

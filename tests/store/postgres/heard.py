"""Notes every statement that is executed."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from holdfast.store.postgres.prepared import PreparedStatements


class Heard:
    """Statements that were executed, with what was bound to them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[tuple[bytes, Any]] = []
        execute = psycopg.Cursor.execute

        def heard(cursor: Any, query: Any, params: Any = None, **more: Any) -> Any:
            self.statements.append((query if isinstance(query, bytes) else str(query).encode(), params))
            return execute(cursor, query, params, **more)

        monkeypatch.setattr(psycopg.Cursor, "execute", heard)
        executed = PreparedStatements.execute

        def prepared(one: Any, parts: Any, values: Any) -> Any:
            self.statements.append((b" ".join([one._sql[part] for part in parts]), values))
            return executed(one, parts, values)

        monkeypatch.setattr(PreparedStatements, "execute", prepared)

"""The engine held to its specification: each behaviour on SQLite and PostgreSQL, as `def` and as `async def`."""

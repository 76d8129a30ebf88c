"""Servers that several tests share, one of each version, and a schema of its own for each store."""

from __future__ import annotations

import atexit
import functools
import itertools
import os

from tests.postgres.server import Server, newest, oldest

_URL = os.environ.get("HOLDFAST_TEST_POSTGRES", "")
_count = itertools.count()


@functools.cache
def shared(major: int) -> Server:
    """A server that does not sync, for tests that do not harm it; it ends with this process."""
    server = Server(major, fast=True)
    atexit.register(server.remove)
    return server.create()


def majors() -> list[int]:
    """The oldest and the newest version there is."""
    return sorted({oldest(), newest()})


def new_schema() -> str:
    """A name that no other test uses."""
    return f"test_{os.getpid()}_{next(_count)}"


def new_url(major: int = 0, **options: object) -> str:
    """The URL of a new schema, on the shared server of this version or on the server the environment names."""
    options = {"schema": new_schema(), "durability": "relaxed", **options}
    if _URL:
        return _URL + ("&" if "?" in _URL else "?") + "&".join(f"{name}={value}" for name, value in options.items())
    return shared(major or newest()).url(**options)  # type: ignore[arg-type]

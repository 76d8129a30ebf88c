"""Whether there is a store at a URL, without making one: looking must not leave an empty store behind."""

from __future__ import annotations

import os

from holdfast.cli.exits import NoStore
from holdfast.errors import HoldfastError
from holdfast.store.url import hide_password


def shown(url: str) -> str:
    """A store's URL without its password, wherever in it that stands."""
    if not url.startswith(("postgresql://", "postgres://")):
        return hide_password(url)
    try:
        from holdfast.store.postgres.settings import read_url

        return read_url(url).shown
    except (ImportError, HoldfastError):
        return "postgresql://…"


def require(url: str) -> None:
    """Raise NoStore if opening the URL would make a store rather than find one."""
    scheme, _, path = url.partition(":")
    missing = False
    if scheme == "sqlite":
        missing = bool(path) and (not os.path.exists(path) or os.path.getsize(path) == 0)
    elif scheme == "dir":
        missing = bool(path) and (not os.path.exists(path) or (os.path.isdir(path) and not os.listdir(path)))
    elif scheme in ("postgresql", "postgres"):
        missing = not _has_schema(url)
    if missing:
        raise NoStore(f"there is no store at {shown(url)} yet; it is made when a first run is started or imported")


def same(one: str, other: str) -> bool:
    """Whether two URLs mean the same store, as far as their text tells."""
    return _normal(one) == _normal(other)


def _normal(url: str) -> str:
    scheme, _, path = url.partition(":")
    if scheme in ("sqlite", "dir"):
        return f"{scheme}:{os.path.realpath(path)}"
    return shown(url)


def _has_schema(url: str) -> bool:
    try:
        from holdfast.store.postgres.migrations import version_at
    except ImportError:  # opening it says what to install
        return True
    return version_at(url) > 0

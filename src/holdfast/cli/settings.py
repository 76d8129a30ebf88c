"""Settings of the command: an option, the environment, `pyproject.toml` or the default.

The first of these that has the setting wins. `pyproject.toml` is searched for in the current directory and its parents.
Relative paths in it are relative to its directory, so every directory of a project uses the same store.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from holdfast.cli.exit_codes import NoStore
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.open_store import hide_password

STORE_DEFAULT: Final = "sqlite:holdfast.db"
DEFAULT: Final = "default"
"""The source of a setting that is not set anywhere."""
_FILE: Final = "pyproject.toml"
_KNOWN: Final = ("store", "app", "web", "notifications")
"""The keys of `[tool.holdfast]`; any other is reported as a mistake."""
_WEB: Final = {
    "host": str,
    "port": int,
    "users": str,
    "allowed-host": list,
    "proxy-header": str,
    "groups-header": str,
    "trust": list,
    "role": str,
    "behind-https": bool,
    "mask": list,
}
"""The keys of `[tool.holdfast.web]`: options of `holdfast web`, and their types. Those of lists may be repeated."""
_FILE_BYTES_MAX: Final = 16 << 20


class Setting(NamedTuple):
    """A setting and its source."""

    value: str
    source: str
    folder: str | None = None
    """The directory of relative paths in it, if that is not the current directory."""


def store_setting(given: str | None) -> Setting:
    """Return the URL of the store."""
    found = _find("store", given, "HOLDFAST_STORE", "--store")
    if found is None:
        return Setting(STORE_DEFAULT, DEFAULT)
    scheme, _, path = found.value.partition(":")
    if found.folder is not None and scheme in ("sqlite", "dir") and path and not os.path.isabs(path):
        return found._replace(value=f"{scheme}:{os.path.relpath(os.path.join(found.folder, path))}")
    return found


def app_setting(given: str | None) -> Setting | None:
    """Return the user's app, if one is named."""
    return _find("app", given, "HOLDFAST_APP", "--app")


def web_settings() -> dict[str, object]:
    """Return `[tool.holdfast.web]`: options of `holdfast web`, by their names. Relative paths are resolved."""
    for folder in _folders():
        path = os.path.join(folder, _FILE)
        if os.path.isfile(path):
            table = _tool_table(path).get("web", {})
            where = f"[tool.holdfast.web] in {os.path.relpath(path)}"
            if not isinstance(table, dict):
                raise InvalidInput(f"{where} must be a table")
            for name, value in table.items():
                if name not in _WEB:
                    raise InvalidInput(f"{where} has {name!r}, which is not a setting; they are {_and_list(_WEB)}")
                if type(value) is not _WEB[name]:
                    raise InvalidInput(f"{name} in {where} must be of the type {_WEB[name].__name__}, not {value!r}")
                if isinstance(value, list) and not all(isinstance(item, str) for item in value):
                    raise InvalidInput(f"{name} in {where} must be a list of texts")
            return table | ({"users": os.path.join(folder, table["users"])} if "users" in table else {})
    return {}


def notifications_settings() -> tuple[dict[str, object], str] | None:
    """Return `[tool.holdfast.notifications]` and the directory of relative paths in it; None if there is no table.

    Paths that the page masks are masked in notifications, too.
    """
    for folder in _folders():
        path = os.path.join(folder, _FILE)
        if os.path.isfile(path):
            table = _tool_table(path).get("notifications")
            if table is None:
                return None
            if not isinstance(table, dict):
                raise InvalidInput(f"[tool.holdfast.notifications] in {os.path.relpath(path)} must be a table")
            own, shared = table.get("mask", []), web_settings().get("mask", [])
            both = [*own, *shared] if isinstance(own, list) and isinstance(shared, list) else own
            return table | ({"mask": both} if both else {}), folder
    return None


def _folders() -> Iterator[str]:
    """The current directory and its parents."""
    folder = os.getcwd()
    while True:
        yield folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return
        folder = parent


def _and_list(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}"


def _find(name: str, given: str | None, variable: str, option: str) -> Setting | None:
    if given is not None:
        if not given:
            raise InvalidInput(f"{option} is empty")
        return Setting(given, option)
    if os.environ.get(variable):
        return Setting(os.environ[variable], variable)
    for folder in _folders():
        path = os.path.join(folder, _FILE)
        if os.path.isfile(path):
            value = _tool_table(path).get(name)
            if value is None:
                return None
            if not isinstance(value, str) or not value:
                raise InvalidInput(f"[tool.holdfast] {name} in {os.path.relpath(path)} must be text, not {value!r}")
            return Setting(value, f"[tool.holdfast] in {os.path.relpath(path)}", folder)
    return None


def _tool_table(path: str) -> dict[str, object]:
    name = os.path.relpath(path)
    try:
        with open(path, "rb") as file:
            text = file.read(_FILE_BYTES_MAX)
        if b"holdfast" not in text:
            return {}
        from tomllib import TOMLDecodeError, loads  # imported only if there is such a table

        try:
            tools = loads(text.decode("utf-8")).get("tool", {})
        except (TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{name} cannot be read: {error}") from error
    except OSError as error:
        raise InvalidInput(f"{name} cannot be read: {error.strerror}") from error
    table = tools.get("holdfast", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise InvalidInput(f"[tool.holdfast] in {name} must be a table")
    unknown = sorted(set(table) - set(_KNOWN))
    if unknown:
        raise InvalidInput(
            f"[tool.holdfast] in {name} has {', '.join(map(repr, unknown))}, which is not a setting; "
            f"the settings are {_and_list(_KNOWN)}"
        )
    return table


def shown(url: str) -> str:
    """Return the URL of a store without its password."""
    if not url.startswith(("postgresql://", "postgres://")):
        return hide_password(url)
    try:
        from holdfast.store.postgres.settings import read_url

        return read_url(url).shown
    except (ImportError, HoldfastError):
        return "postgresql://…"


def require(url: str) -> None:
    """Raise NoStore if opening the URL would create a store."""
    scheme, _, path = url.partition(":")
    missing = False
    if scheme == "sqlite":
        missing = bool(path) and (not os.path.exists(path) or os.path.getsize(path) == 0)
    elif scheme == "dir":
        missing = bool(path) and (not os.path.exists(path) or (os.path.isdir(path) and not os.listdir(path)))
    elif scheme in ("postgresql", "postgres"):
        missing = not _has_schema(url)
    if missing:
        raise NoStore(f"there is no store at {shown(url)} yet; starting or importing a run creates it")


def same(one: str, other: str) -> bool:
    """Return whether two URLs name the same store, as far as their text shows."""
    return _normal(one) == _normal(other)


def _normal(url: str) -> str:
    scheme, _, path = url.partition(":")
    if scheme in ("sqlite", "dir"):
        return f"{scheme}:{os.path.realpath(path)}"
    return shown(url)


def _has_schema(url: str) -> bool:
    try:
        from holdfast.store.postgres.migrations import version_at
    except ImportError:  # opening the store reports what to install
        return True
    return version_at(url) > 0

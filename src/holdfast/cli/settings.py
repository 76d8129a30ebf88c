"""Where a setting comes from: an option, the environment, `pyproject.toml`, or the default. The first that says wins.

`pyproject.toml` is looked for in the current directory and in those above it. Relative paths in it are meant from where
it lies, so the same store is found from every directory of a project.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdfast.errors import InvalidInput

STORE_DEFAULT: Final = "sqlite:holdfast.db"
DEFAULT: Final = "default"
"""The source of a setting that nobody made."""
_FILE: Final = "pyproject.toml"
_KNOWN: Final = ("store", "app")
"""What `[tool.holdfast]` may hold; anything else is a slip that nobody would notice."""
_FILE_BYTES_MAX: Final = 16 << 20


class Setting(NamedTuple):
    """A setting and where it came from."""

    value: str
    source: str
    folder: Path | None = None
    """Where relative paths in it are meant from, if that is not the current directory."""


def store_setting(given: str | None) -> Setting:
    """The store's URL."""
    found = _found("store", given, "HOLDFAST_STORE", "--store")
    if found is None:
        return Setting(STORE_DEFAULT, DEFAULT)
    scheme, _, path = found.value.partition(":")
    if found.folder is not None and scheme in ("sqlite", "dir") and path and not os.path.isabs(path):
        return found._replace(value=f"{scheme}:{os.path.relpath(found.folder / path)}")
    return found


def app_setting(given: str | None) -> Setting | None:
    """The user's app, if one is named."""
    return _found("app", given, "HOLDFAST_APP", "--app")


def _found(name: str, given: str | None, variable: str, option: str) -> Setting | None:
    if given is not None:
        if not given:
            raise InvalidInput(f"{option} is empty")
        return Setting(given, option)
    if os.environ.get(variable):
        return Setting(os.environ[variable], variable)
    for folder in (Path.cwd(), *Path.cwd().parents):
        path = folder / _FILE
        if path.is_file():
            value = _tool_table(path).get(name)
            if value is None:
                return None
            if not isinstance(value, str) or not value:
                raise InvalidInput(f"[tool.holdfast] {name} in {_shown(path)} must be text, not {value!r}")
            return Setting(value, f"[tool.holdfast] in {_shown(path)}", folder)
    return None


def _tool_table(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(_FILE_BYTES_MAX)
        if b"holdfast" not in text:
            return {}
        from tomllib import TOMLDecodeError, loads  # paid for by those who have such a table

        try:
            tools = loads(text.decode("utf-8")).get("tool", {})
        except (TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{_shown(path)} cannot be read: {error}") from error
    except OSError as error:
        raise InvalidInput(f"{_shown(path)} cannot be read: {error.strerror}") from error
    table = tools.get("holdfast", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise InvalidInput(f"[tool.holdfast] in {_shown(path)} must be a table")
    unknown = sorted(set(table) - set(_KNOWN))
    if unknown:
        raise InvalidInput(
            f"[tool.holdfast] in {_shown(path)} has {', '.join(map(repr, unknown))}, which is no setting; "
            f"there are {' and '.join(_KNOWN)}"
        )
    return table


def _shown(path: Path) -> str:
    return os.path.relpath(path)

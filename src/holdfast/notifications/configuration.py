"""Notifications from settings: the table `[tool.holdfast.notifications]` of a TOML file.

Secrets are named in it, by an environment variable or a file, and are never in it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import InvalidInput
from holdfast.notifications.delivery import SecretMissing, Target
from holdfast.notifications.notifier import Notifications
from holdfast.notifications.smtp import Email
from holdfast.notifications.webhook import Slack, Webhook

if TYPE_CHECKING:
    from holdfast.runtime.app import App

KINDS: Final[dict[str, type[Target]]] = {"webhook": Webhook, "slack": Slack, "email": Email}
_SECRETS: Final = ("secret", "password", "token", "key")
"""Keys that would hold a secret itself."""
_log: Final = logging.getLogger("holdfast.notifications")
_TABLE: Final = "[tool.holdfast.notifications]"


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table, apart from its targets."""

    base_url: str
    events: tuple[str, ...] | None = None
    expiring_s: float | None = None
    workflows: tuple[str, ...] | None = None
    mask: tuple[str, ...] | None = None
    keep_days: float | None = None


def from_settings(app: App, table: Mapping[str, Any], folder: Path | None = None) -> Notifications:
    """The notifications that a table of settings describes. Relative paths of secrets are relative to `folder`.

    Targets whose secret this process does not have are left to other processes: see `Notifications.unavailable`.

    Example:
        from_settings(app, {"base_url": "https://holdfast.example.org", "targets": []})
    """
    given = dict(table)
    targets = given.pop("targets", [])
    if not isinstance(targets, list) or not all(isinstance(target, dict) for target in targets):
        raise InvalidInput(f"targets of {_TABLE} must be tables: write [[tool.holdfast.notifications.targets]]")
    found = _convert(given, Settings, _TABLE)
    options = {name: value for name, value in msgspec.structs.asdict(found).items() if value is not None}
    found_targets = [_target(target, folder) for target in targets]
    missing = {target.name: problem for target in found_targets if (problem := _missing_secret(target))}
    for problem in missing.values():
        _log.warning("%s; its notifications are left to other processes", problem)
    usable = [target for target in found_targets if target.name not in missing]
    return Notifications(app, usable, **options, unavailable=missing)


def _missing_secret(target: Target) -> str:
    """Which secret of a target this process does not have; empty if it has all. Other mistakes are errors."""
    try:
        target.check()
    except SecretMissing as error:
        return str(error)
    return ""


def _target(given: dict[str, Any], folder: Path | None) -> Target:
    table = dict(given)
    kind = table.pop("kind", None)
    place = f"target {table.get('name', '')!r} of {_TABLE}"
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidInput(f"kind of {place} must be one of {', '.join(KINDS)}, not {kind!r}")
    _refuse_secrets(table, kind, place)
    fields = KINDS[kind].__struct_fields__
    unknown = sorted(set(table) - set(fields))
    if unknown:
        raise InvalidInput(
            f"{place} has {', '.join(map(repr, unknown))}, which is not a setting; a {kind} has {', '.join(fields)}"
        )
    for name in [name for name in table if name.endswith("_file")]:
        if folder is not None and isinstance(table[name], str):
            table[name] = os.path.join(folder, os.path.expanduser(table[name]))
    target: Target = _convert(table, KINDS[kind], place)
    return target


def _refuse_secrets(table: dict[str, Any], kind: str, place: str) -> None:
    for name in _SECRETS:
        if name in table:
            where = "password" if kind == "email" else "url" if kind == "slack" else "secret"
            raise InvalidInput(
                f"{place} has {name!r}, but secrets are not written into this file; name an environment variable "
                f"with {where}_env, or a file with {where}_file"
            )
    url = table.get("url")
    if kind == "slack" and isinstance(url, str) and (urlsplit(url).hostname or "").endswith("slack.com"):
        raise InvalidInput(
            f"the url of {place} is a secret; name an environment variable with url_env, or a file with url_file"
        )


def _convert(table: dict[str, Any], kind: type[Any], place: str) -> Any:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{place} is invalid: {error}") from None

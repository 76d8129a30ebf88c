"""The state directory of the page: the session secret, and the sessions that were ended.

It is `$XDG_STATE_HOME/holdfast`, or `~/.local/state/holdfast`. Nothing of it is ever in the store: a copy of the store
must not allow forging a session.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from typing import Final

from holdfast.errors import InvalidInput
from holdfast.files.durable import put_file
from holdfast.files.os_files import SystemFiles, translate_os_errors
from holdfast.web.users import check_mode

SECRET_VARIABLE: Final = "HOLDFAST_WEB_SECRET"  # noqa: S105 - the name of a variable
SECRET_CHARS_MIN: Final = 32
_ENDED_MAX: Final = 10_000
"""Ended sessions that are kept; the oldest are forgotten first, and those that have expired."""

_log = logging.getLogger("holdfast.web")


def state_directory() -> str:
    """The path of the state directory, which may not exist yet."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):  # the specification ignores relative paths
        base = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "holdfast")


def users_path() -> str:
    """The users file that is used if no other is named."""
    return os.path.join(state_directory(), "web-users.toml")


def make_secret(given: str | bytes) -> bytes:
    """The key made of a secret that a user chose; InvalidInput if it is too short."""
    data = given.encode() if isinstance(given, str) else given
    if len(data) < SECRET_CHARS_MIN:
        raise InvalidInput(
            f"the session secret has {len(data)} characters, at least {SECRET_CHARS_MIN} are needed; "
            'make one with: python3 -c "import secrets; print(secrets.token_urlsafe(32))"'
        )
    return hashlib.sha256(b"holdfast web secret\0" + data).digest()


def secret_from_environment() -> bytes | None:
    """The key made of HOLDFAST_WEB_SECRET, if it is set."""
    found = os.environ.get(SECRET_VARIABLE)
    return make_secret(found) if found else None


def load_secret() -> bytes:
    """The session secret: from the environment, or from its file, which is created if it is missing."""
    found = secret_from_environment()
    if found is not None:
        return found
    path = os.path.join(state_directory(), "web-secret")
    with translate_os_errors(f"the session secret {path} cannot be used"):
        if not os.path.lexists(path):
            _create(path, secrets.token_urlsafe(48).encode())
        check_mode(path, "session secret")
        data = SystemFiles().read(path)
    try:
        return make_secret(data)
    except InvalidInput as error:
        raise InvalidInput(f"{path} is too short for a session secret; remove it, and another is made") from error


def _create(path: str, data: bytes) -> None:
    files = SystemFiles()
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with contextlib.suppress(FileExistsError):  # another process was first
        put_file(files, f"{path}.{secrets.token_hex(8)}", path, data, replace=False)
    files.sync_directory(os.path.dirname(path))


class EndedSessions:
    """Sessions that were ended by a logout, until they would have expired. Their cookies are refused.

    With a path they are kept in a file, one `key expires` per line, so that a restart does not revive them.
    """

    def __init__(self, path: str | None = None, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now = now
        self._lock = threading.Lock()
        self._ended: dict[str, int] = {}
        if path is not None:
            self._load(path)

    def __contains__(self, key: str) -> bool:
        return key in self._ended

    def add(self, key: str, expires: int) -> None:
        """End a session."""
        with self._lock:
            self._ended[key] = expires
            while len(self._ended) > _ENDED_MAX:
                del self._ended[next(iter(self._ended))]
            now = self._now()
            self._ended = {key: until for key, until in self._ended.items() if until > now}
            if self._path is None:
                return
            text = "".join(f"{key} {until}\n" for key, until in self._ended.items())
            try:
                os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
                put_file(SystemFiles(), f"{self._path}.{secrets.token_hex(8)}", self._path, text.encode())
            except OSError as error:
                _log.warning("a logout is only remembered until the server stops: %s", error)

    def _load(self, path: str) -> None:
        try:
            lines = SystemFiles().read(path).decode("ascii", "replace").splitlines()
        except OSError:
            return
        now = self._now()
        for line in lines:
            key, _, until = line.partition(" ")
            if until.isascii() and until.isdigit() and int(until) > now:
                self._ended[key] = int(until)

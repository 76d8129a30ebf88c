"""The users file: names, hashed tokens, roles, groups, visible workflows and expiry.

    [[user]]
    name = "ben"
    token = "sha256:5f2b…"          # of the whole token; the token itself is not stored
    role = "approver"
    groups = ["finance"]
    workflows = ["refund*"]
    expires = 2027-02-14T00:00:00Z

Spaces around a name do not count, nor does the form of Unicode in which it is written; upper and lower case do.

The file is checked at every request and read again when it has changed, so a removed user has no access from the next
request on. A file that cannot be read or is invalid admits no user.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import threading
import time
import tomllib
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from holdfast.errors import Conflict, HoldfastError, InvalidInput, NotFound
from holdfast.files.durable import put_file
from holdfast.files.os_files import SystemFiles, translate_os_errors
from holdfast.web.identity import User, clean_name

TOKEN_PREFIX: Final = "hf_"  # noqa: S105 - tokens begin so; secret scanners find them by it
TOKEN_CHARS_MAX: Final = 512
USERS_MAX: Final = 1_000
FILE_BYTES_MAX: Final = 1 << 20
_HASH: Final = re.compile(r"sha256:([0-9a-f]{64})")
_HEADING: Final = re.compile(r"^[ \t]*\[\[[ \t]*user[ \t]*\]\]", re.MULTILINE)
_KEYS: Final = ("name", "token", "role", "groups", "workflows", "expires")
_SETTLED_NS: Final = 2_000_000_000
"""A file changed within this time may change again without a new timestamp, so it is read again."""

_log = logging.getLogger("holdfast.web")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A user of the file."""

    user: User
    token_hash: str = ""
    """SHA-256 of the token, in hex. Empty: the user has no token, and a proxy identifies it."""
    expires: dt.datetime | None = None

    def is_valid(self, now: dt.datetime) -> bool:
        """Whether the entry has not expired."""
        return self.expires is None or now < self.expires


def new_token() -> str:
    """Make a token of 256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    """The hash that is stored for a token. Tokens are random and long, so it needs neither salt nor iterations."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class Users:
    """The users of a file, as it is now."""

    def __init__(
        self, path: str, *, optional: bool = False, now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
    ) -> None:
        self.path = os.path.abspath(path)
        self._optional = optional
        self._now = now
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] = ()
        self._entries: Sequence[Entry] = ()
        self._problem = ""

    def check(self) -> None:
        """Raise InvalidInput if the file cannot be used."""
        if not (self._optional and not os.path.lexists(self.path)):
            read_users(self.path)

    def by_name(self, name: str) -> Entry | None:
        """The valid entry of a name."""
        return next((entry for entry in self._valid() if entry.user.name == name), None)

    def has_name(self, name: str) -> bool:
        """Whether the file has an entry of this name, also an expired one. InvalidInput if it cannot be used."""
        entries, problem = self._read()
        if problem:
            raise InvalidInput(problem)
        return any(entry.user.name == name for entry in entries)

    def by_token(self, token: str) -> Entry | None:
        """The valid entry of a token. The time it takes does not depend on which entry it is."""
        wanted = hash_token(token[: TOKEN_CHARS_MAX + 1])
        found = None
        for entry in self._valid():
            if hmac.compare_digest(entry.token_hash, wanted):
                found = entry
        return found

    def _valid(self) -> list[Entry]:
        now = self._now()
        return [entry for entry in self._read()[0] if entry.is_valid(now)]

    def _read(self) -> tuple[Sequence[Entry], str]:
        """The entries of the file, and why it cannot be used; then there are none."""
        with self._lock:
            try:
                found = _stamp(self.path)
                is_settled = bool(found) and time.time_ns() - found[0] > _SETTLED_NS
                if found != self._seen or not is_settled or self._problem:
                    self._entries = () if not found and self._optional else read_users(self.path)
                    self._seen, self._problem = found, ""
            except (HoldfastError, OSError) as error:
                self._entries = ()
                if str(error) != self._problem:
                    self._problem = str(error)
                    _log.error("no user has access: %s", error)
            return self._entries, self._problem


def _stamp(path: str) -> tuple[int, ...]:
    """Changes when the file, or the right to read it, changes; empty if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return ()
    return found.st_ctime_ns, found.st_mtime_ns, found.st_ino, found.st_size


def check_mode(path: str, what: str) -> None:
    """Raise InvalidInput if others than the owner can read the file or write to it, as ssh does with keys."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise InvalidInput(f"the {what} {path} cannot be read: {error.strerror}") from error
    if found.st_mode & 0o027:
        mode = f"{found.st_mode & 0o777:04o}"
        raise InvalidInput(f"the {what} {path} has the mode {mode}, so others can use it; chmod 600 {path}")
    if found.st_uid not in (0, os.geteuid()):
        raise InvalidInput(f"the {what} {path} belongs to another user; it must belong to the user of this process")


def read_users(path: str) -> list[Entry]:
    """Read a users file; InvalidInput if it is invalid or if others have access to it."""
    check_mode(path, "users file")
    return _parse(_read_text(path), path)


def _read_text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise InvalidInput(f"the users file {path} has more than {FILE_BYTES_MAX} bytes")
        return data.decode("utf-8")
    except OSError as error:
        raise InvalidInput(f"the users file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the users file {path} is not UTF-8") from error


def _parse(text: str, path: str) -> list[Entry]:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"the users file {path} is not valid TOML: {error}") from error
    found = tables.pop("user", [])
    if tables or not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
        raise InvalidInput(f"the users file {path} must contain [[user]] tables and nothing else")
    if len(found) > USERS_MAX:
        raise InvalidInput(f"the users file {path} has {len(found)} users, at most {USERS_MAX} are allowed")
    entries = [_entry(table, path) for table in found]
    names = [entry.user.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(f"the users file {path} names {name!r} twice")
    return entries


def _entry(table: dict[str, Any], path: str) -> Entry:
    name = table.get("name")
    name = clean_name(name) if isinstance(name, str) else name
    where = f"user {name!r} in {path}"
    unknown = sorted(set(table) - set(_KEYS))
    if unknown:
        raise InvalidInput(f"{where} has {', '.join(map(repr, unknown))}; the keys are {', '.join(_KEYS)}")
    lists = {key: table.get(key, default) for key, default in (("groups", []), ("workflows", ["*"]))}
    for key, value in lists.items():
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise InvalidInput(f"{where}: {key} must be a list of texts")
    token = table.get("token", "")
    matched = _HASH.fullmatch(token) if isinstance(token, str) else None
    if token and matched is None:
        raise InvalidInput(f"{where}: token must be sha256: and 64 hexadecimal digits; `holdfast web token` makes it")
    expires = table.get("expires")
    if type(expires) is dt.date:
        expires = dt.datetime.combine(expires, dt.time(), dt.UTC)
    if expires is not None and not isinstance(expires, dt.datetime):
        raise InvalidInput(f"{where}: expires must be a date or a time")
    if expires is not None and expires.tzinfo is None:
        expires = expires.replace(tzinfo=dt.UTC)
    role = table.get("role", "viewer")
    if not isinstance(role, str):
        raise InvalidInput(f"{where}: role must be text")
    user = User(
        name=name,  # type: ignore[arg-type]  # User checks it
        role=role,
        groups=tuple(lists["groups"]),
        workflows=tuple(lists["workflows"]),
    )
    return Entry(user=user, token_hash=matched[1] if matched else "", expires=expires)


# --- changing the file -----------------------------------------------------------------------------------------------


def put_user(path: str, entry: Entry) -> None:
    """Add a user, or replace the one of the same name. The file and its directory are created if they are missing."""
    _rewrite(path, lambda text: _without(text, entry.user.name) + _block(entry), entry.user.name, entry)


def remove_user(path: str, name: str) -> None:
    """Remove a user; NotFound if the file does not have it."""
    name = clean_name(name)
    if name not in [entry.user.name for entry in read_users(path)]:
        raise NotFound(f"there is no user {name!r} in {path}; `holdfast web token --list` lists them")
    _rewrite(path, lambda text: _without(text, name), name, None)


def _rewrite(path: str, change: Callable[[str], str], name: str, entry: Entry | None) -> None:
    """Change the text of the file and keep the rest of it, comments included. The file is replaced as a whole."""
    path = os.path.realpath(path)
    files = SystemFiles()
    with translate_os_errors(f"{path} cannot be written"):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        before = files.identity(path)
        text, entries = "", []
        if before is not None:
            entries = read_users(path)
            text = _read_text(path)
        changed = change(text)
        expected = [kept for kept in entries if kept.user.name != name] + ([entry] if entry else [])
        try:
            is_expected = _parse(changed, path) == expected
        except InvalidInput:
            is_expected = False
        if not is_expected:
            raise InvalidInput(f"{path} is not written as [[user]] tables; edit it by hand")
        beside = f"{path}.{secrets.token_hex(8)}"
        if not put_file(files, beside, path, changed.encode(), confirm=lambda _: files.identity(path) == before):
            raise Conflict(f"{path} was changed by another process; repeat the command")
        files.sync_directory(os.path.dirname(path))


def _without(text: str, name: str) -> str:
    """The text without the table of a user."""
    starts = [found.start() for found in _HEADING.finditer(text)]
    if not starts:
        return text
    kept = text[: starts[0]]
    for at, start in enumerate(starts):
        table = text[start : starts[at + 1] if at + 1 < len(starts) else len(text)]
        try:
            names = [clean_name(str(user.get("name"))) for user in tomllib.loads(table)["user"]]
        except tomllib.TOMLDecodeError:
            names = []
        if names != [name]:
            kept += table
    return kept


def _block(entry: Entry) -> str:
    user = entry.user
    values: dict[str, str] = {"name": _quote(user.name)}
    if entry.token_hash:
        values["token"] = _quote(f"sha256:{entry.token_hash}")
    values["role"] = _quote(user.role)
    if user.groups:
        values["groups"] = f"[{', '.join(map(_quote, user.groups))}]"
    if user.workflows != ("*",):
        values["workflows"] = f"[{', '.join(map(_quote, user.workflows))}]"
    if entry.expires is not None:
        values["expires"] = entry.expires.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return "\n[[user]]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())


def _quote(text: str) -> str:
    """A TOML string. JSON escapes the same signs in the same way; ids have no other control characters."""
    return json.dumps(text, ensure_ascii=False)

"""Store URLs: the four accepted forms, and the right spelling of a near miss.

    memory:    sqlite:PATH    dir:PATH    postgresql://user@host/database

Any other spelling is refused before anything is opened or created. A path written as `sqlite:///x.db` is relative for
some programs and absolute for others, so the error shows both spellings instead of choosing one. No message repeats a
password.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from holdfast.errors import InvalidInput

MEMORY: Final = "memory"
SQLITE: Final = "sqlite"
DIRECTORY: Final = "dir"
POSTGRESQL: Final = "postgresql"

_MEANT: Final = {
    **dict.fromkeys(("sqlite", "sqlite3", "sqlite2", "file", "db"), SQLITE),
    **dict.fromkeys(("dir", "directory", "folder", "path", "fs"), DIRECTORY),
    **dict.fromkeys(("memory", "mem", "inmemory", "in-memory", "ram"), MEMORY),
    **dict.fromkeys(("postgresql", "postgres", "postgre", "pg", "pgsql", "psql"), POSTGRESQL),
}
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+-]*):(.*)", re.DOTALL)
_KEYWORDS: Final = re.compile(r"\b(host|hostaddr|dbname|user|password|port)\s*=")
_OPTIONS: Final = re.compile(r"\?[^/=]+=")
_OPTIONS_START: Final = re.compile(r"\?|[&;](?=\w+=)")
"""Also what was meant to begin the options."""
_FILE_ENDINGS: Final = (".db", ".db3", ".sqlite", ".sqlite3")
_FORMS: Final = (
    "write memory:, sqlite:PATH, dir:PATH or postgresql://user@host/database, "
    "for example sqlite:runs.db or dir:/var/lib/runs"
)


class StoreUrl(NamedTuple):
    """An accepted URL."""

    scheme: str
    path: str
    """The file or the directory; of PostgreSQL the whole URL; empty for memory."""


def parse_store_url(url: str) -> StoreUrl:
    """Take an accepted URL apart; raise InvalidInput with the right spelling for any other."""
    if type(url) is not str:
        raise InvalidInput(f"the store's URL must be text, not {type(url).__name__}")
    scheme, _, path = url.partition(":")
    if url.startswith(("postgresql://", "postgres://")):
        return StoreUrl(POSTGRESQL, url)
    if url == "memory:":
        return StoreUrl(MEMORY, "")
    if scheme in (SQLITE, DIRECTORY) and _is_plain_path(path):
        return StoreUrl(scheme, path)
    raise InvalidInput(f"{_quoted(url)} is not the URL of a store; {_right_spelling(url)}")


def hide_password(url: str) -> str:
    """The URL as it may be shown: without a password and without options, which may hold one."""
    url, *options = _OPTIONS_START.split(url, maxsplit=1)
    scheme = _SCHEME.fullmatch(url)
    if scheme and "@" in url and scheme[1].lower().partition("+")[0] not in _MEANT:
        scheme = None  # it is the user's name
    rest = scheme[2] if scheme else url
    user, at, place = rest.rpartition("@")
    if at and ":" in user:
        rest = f"{user.partition(':')[0]}:…@{place}"
    elif _KEYWORDS.search(rest):
        rest = "…"
    return (f"{scheme[1]}:" if scheme else "") + rest + ("?…" if options else "")


def _quoted(url: str) -> str:
    return repr(hide_password(url))


def _is_plain_path(path: str) -> bool:
    """Whether a path is meant as it stands: not the rest of another program's URL."""
    return (
        bool(path)
        and path == path.strip()
        and not path.startswith(("//", "~"))
        and path != ":memory:"
        and _OPTIONS.search(path) is None
    )


def _right_spelling(url: str) -> str:
    text = url.strip()
    found = _SCHEME.fullmatch(text)
    if found is None and text.lower() in _MEANT:
        found = _SCHEME.fullmatch(f"{text}:")
    if text == ":memory:" or (found and found[2].strip("/") == ":memory:"):
        return "write memory:"
    if found is None:
        return _spelling_of_path(text)
    meant = _MEANT.get(found[1].lower().partition("+")[0])
    if meant == MEMORY:
        return "write memory:, which takes nothing behind it"
    if meant == POSTGRESQL:
        return _spelling_of_postgresql(found[2])
    if meant is None or "@" in found[2]:
        return _FORMS
    return _spelling_of_file(meant, found[1].lower(), found[2].strip())


def _spelling_of_path(text: str) -> str:
    """A URL without a scheme: most likely a path."""
    if not text or "@" in text:
        return _FORMS
    if _KEYWORDS.search(text):
        return "write postgresql://user@host:port/database"
    if text.lower().endswith(_FILE_ENDINGS):
        return f"write {SQLITE}:{_expanded(text)}"
    if text.endswith("/") or os.path.isdir(text):
        return f"write {DIRECTORY}:{_expanded(text)}"
    return f"write {SQLITE}:{_expanded(text)} for a file, or {DIRECTORY}:{_expanded(text)} for a directory of files"


def _spelling_of_file(meant: str, scheme: str, rest: str) -> str:
    path = _OPTIONS.split(rest)[0]
    bare = _expanded(path.lstrip("/"))
    why = f"{meant}: takes no options; " if path != rest else ""
    if not bare:
        return _FORMS
    slashes = len(path) - len(path.lstrip("/"))
    if slashes in (0, 2):
        return f"{why}write {meant}:{bare}"
    if slashes == 3 and scheme != "file":
        here = f"{'file' if meant == SQLITE else 'directory'} in the current directory"
        return f"{why}write {meant}:{bare} for a {here}, or {meant}:/{bare} for that absolute path"
    return f"{why}write {meant}:/{bare}"


def _spelling_of_postgresql(rest: str) -> str:
    if not rest.startswith("//"):
        return "write postgresql://user@host:port/database"
    return f"write {hide_password(f'postgresql:{rest}')}"


def _expanded(path: str) -> str:
    """The path, with the home directory written out: nothing expands `~` inside a URL."""
    return os.path.expanduser(path)

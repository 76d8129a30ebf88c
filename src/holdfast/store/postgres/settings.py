"""What a PostgreSQL URL says: the part for libpq, and the part for Holdfast.

    postgresql://user@host/database?schema=holdfast&pool_size=8&durability=relaxed&sslmode=require

`schema`, `pool_size`, `durability` and `owner_grace` are ours and are taken off; everything else is libpq's. A
password may stand in the URL, but is never shown: not in `Settings.shown`, which is the store's `url`, and not in any
message.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast.errors import InvalidInput

_SCHEMA: Final = "holdfast"
_SCHEMA_BYTES_MAX: Final = 63
_POOL_SIZE: Final = 8
_OURS: Final = ("schema", "pool_size", "durability", "owner_grace")
_PLACE_OPTIONS: Final = ("hostaddr", "service", "target_session_attrs")
"""Options that decide which server is meant, and so are shown."""
_OWNER_GRACE_S: Final = 0.75
_OWNER_GRACE_S_MIN: Final = 0.1
_OWNER_GRACE_S_MAX: Final = 3600.0


class Settings(NamedTuple):
    """How to connect, and what to use there."""

    conninfo: dict[str, Any]
    """For libpq, with the password if there is one."""
    schema: str
    pool_size: int
    relaxed: bool
    """True: a server that does not sync is taken. Then a power cut may lose what was acknowledged."""
    shown: str
    """The URL without secrets."""
    owner_grace_s: float = _OWNER_GRACE_S
    """How long the session of an announced owner may be missing before the owner counts as dead; 0: only leases do."""


def read_url(url: str) -> Settings:
    """Take a URL apart, or raise InvalidInput, which does not repeat the URL: it may hold a password."""
    try:
        place, _, query = url.partition("://")[2].partition("?")
        if place.count("@") > 1 or "@" in place.partition("/")[2]:
            raise ValueError("an unescaped sign in the password: libpq would take the rest of it for a host or a name")
        if "=" in place.partition("/")[2]:
            raise ValueError("an option in the name of the database, which may be a password")
        options = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
        theirs = urlencode([(name, value) for name, value in options if name not in _OURS], quote_via=quote)
        conninfo = conninfo_to_dict(f"postgresql://{place}" + (f"?{theirs}" if theirs else ""))
        for port in filter(None, str(conninfo.get("port") or "").split(",")):
            int(port)
    except (ValueError, psycopg.Error):
        raise InvalidInput(
            "this PostgreSQL URL cannot be read; write postgresql://user@host:port/database?schema=name, "
            "with %-escapes for signs that have a meaning in URLs"
        ) from None
    ours = dict(options)
    schema = check_schema(ours.get("schema", _SCHEMA))
    durability = ours.get("durability", "full")
    if durability not in ("full", "relaxed"):
        raise InvalidInput(f"durability in a PostgreSQL URL is full or relaxed, not {durability!r}")
    return Settings(
        conninfo,
        schema,
        _pool_size(ours.get("pool_size")),
        durability == "relaxed",
        _shown(conninfo, schema),
        _owner_grace_s(ours.get("owner_grace")),
    )


def check_schema(name: str) -> str:
    """Return `name` if a schema may be called so; it is quoted wherever it is used."""
    if not 0 < len(name.encode("utf-8", "replace")) <= _SCHEMA_BYTES_MAX or not name.isprintable():
        raise InvalidInput(
            f"schema must be 1 to {_SCHEMA_BYTES_MAX} bytes of text without control characters, not {name!r}"
        )
    if name.startswith("pg_") or name == "information_schema":
        raise InvalidInput(f"schema {name!r} is PostgreSQL's own; choose another name")
    return name


def _pool_size(text: str | None) -> int:
    if text is None:
        return _POOL_SIZE
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 1000):
        raise InvalidInput(f"pool_size in a PostgreSQL URL must be 1 to 1000, not {text!r}")
    return int(text)


def _owner_grace_s(text: str | None) -> float:
    if text is None:
        return _OWNER_GRACE_S
    if text == "off":
        return 0.0
    try:
        grace_s = float(text)
    except ValueError:
        grace_s = 0.0
    if not _OWNER_GRACE_S_MIN <= grace_s <= _OWNER_GRACE_S_MAX:
        raise InvalidInput(
            f"owner_grace in a PostgreSQL URL must be off, or {_OWNER_GRACE_S_MIN:g} to {_OWNER_GRACE_S_MAX:g} "
            f"seconds, not {text!r}"
        )
    return grace_s


def _shown(conninfo: dict[str, Any], schema: str) -> str:
    """The URL without secrets. Each of several hosts stands with its own port; sockets and addresses are options."""
    hosts, ports = (str(conninfo.get(name) or "") for name in ("host", "port"))
    options = {"schema": schema}
    place = ""
    if hosts and not any(host.startswith(("/", "@")) for host in hosts.split(",")):
        each = ports.split(",") if "," in ports else [ports] * len(hosts.split(","))
        pairs = zip_longest(hosts.split(","), each, fillvalue="")
        place = ",".join((f"[{host}]" if ":" in host else host) + (f":{port}" if port else "") for host, port in pairs)
    elif "," in hosts or "," in ports:
        options |= {name: text for name, text in (("host", hosts), ("port", ports)) if text}
    else:
        place = f":{ports}" if ports else ""
        options |= {"host": hosts} if hosts else {}
    options |= {name: str(conninfo[name]) for name in _PLACE_OPTIONS if conninfo.get(name)}
    user = f"{quote(str(conninfo['user']), safe='')}@" if conninfo.get("user") else ""
    name = quote(str(conninfo.get("dbname") or ""), safe="")
    return f"postgresql://{user}{place}/{name}?{urlencode(options, safe='/,', quote_via=quote)}"

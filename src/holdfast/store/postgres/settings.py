"""The settings in a PostgreSQL URL: those of libpq and those of Holdfast.

    postgresql://user@host/database?schema=holdfast&pool_size=8&durability=relaxed&sslmode=require

`schema`, `pool_size`, `durability` and `owner_grace` belong to Holdfast; everything else is passed to libpq. The URL
may contain a password, which is never shown: neither in `Settings.shown`, the `url` of the store, nor in any message.
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
"""Options that select the server, and so are shown."""
_OWNER_GRACE_S: Final = 0.75
_OWNER_GRACE_S_MIN: Final = 0.1
_OWNER_GRACE_S_MAX: Final = 3600.0


class Settings(NamedTuple):
    """How to connect, and which schema to use."""

    conninfo: dict[str, Any]
    """For libpq, with the password if there is one."""
    schema: str
    pool_size: int
    relaxed: bool
    """True: a server that does not sync is accepted. Then a power cut may lose acknowledged commits."""
    shown: str
    """The URL without secrets."""
    owner_grace_s: float = _OWNER_GRACE_S
    """How long the session of an announced owner may be missing before it is declared dead; 0: only leases are used."""


def read_url(url: str) -> Settings:
    """Parse a URL, or raise InvalidInput, which does not repeat the URL: it may contain a password."""
    try:
        place, _, query = url.partition("://")[2].partition("?")
        if place.count("@") > 1 or "@" in place.partition("/")[2]:
            raise ValueError("an unescaped character in the password: libpq would parse the rest as a host or a name")
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
            "with %-escapes for reserved characters"
        ) from None
    ours = dict(options)
    schema = check_schema(ours.get("schema", _SCHEMA))
    durability = ours.get("durability", "full")
    if durability not in ("full", "relaxed"):
        raise InvalidInput(f"durability in a PostgreSQL URL must be full or relaxed, not {durability!r}")
    return Settings(
        conninfo=conninfo,
        schema=schema,
        pool_size=_pool_size(ours.get("pool_size")),
        relaxed=durability == "relaxed",
        shown=_shown(conninfo, schema),
        owner_grace_s=_owner_grace_s(ours.get("owner_grace")),
    )


def check_schema(name: str) -> str:
    """Return `name` if it is allowed as a schema; it is quoted wherever it is used."""
    if not 0 < len(name.encode("utf-8", "replace")) <= _SCHEMA_BYTES_MAX or not name.isprintable():
        raise InvalidInput(
            f"schema must be 1 to {_SCHEMA_BYTES_MAX} bytes of text without control characters, not {name!r}"
        )
    if name.startswith("pg_") or name == "information_schema":
        raise InvalidInput(f"schema {name!r} is reserved by PostgreSQL; choose another name")
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
    """The URL without secrets. Each host is shown with its port; sockets and addresses are shown as options."""
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

"""`mcp`: serve runs and gates to the client of a model."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from holdfast.cli import exit_codes
from holdfast.cli.session import Session
from holdfast.cli.settings import web_settings
from holdfast.errors import InvalidInput

if TYPE_CHECKING:
    from holdfast.runtime.app import App

_ALLOWED: Final = ("start", "answer")
_WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104 - they are recognized, not bound by default
_EXTRA: Final = ("mcp", "mcp_types", "pydantic", "starlette", "uvicorn", "jinja2", "markupsafe", "anyio", "h11")


@click.command()
@click.option("--allow", metavar="TOOLS", default="", help="Tools that change something: start, answer or both.")
@click.option("--http", metavar="HOST:PORT", help="Serve streamable HTTP instead of stdio; port 0 picks a free one.")
@click.option("--users", metavar="FILE", help="With --http: a users file, written by `holdfast web token`.")
@click.option("--allowed-host", multiple=True, metavar="NAME", help="With --http: a host name of it; repeatable.")
@click.option(
    "--page", metavar="URL", default="", help="Where `holdfast web` is, for gates that must be answered there."
)
@click.option("--mask", multiple=True, metavar="PATH", help="A path whose values are not shown; repeatable.")
@click.pass_obj
def mcp_command(
    session: Session,
    allow: str,
    http: str | None,
    users: str | None,
    allowed_host: tuple[str, ...],
    page: str,
    mask: tuple[str, ...],
) -> int:
    """Serve runs and gates to the client of a model (MCP).

    The client starts this command and talks to it on stdin and stdout. Its model can list and read runs and gates.
    With --allow start it can start runs, which workers execute; with --allow answer it can ask the person at the
    client to answer a gate. It never answers one itself.

    With --http other programs connect to http://HOST:PORT/mcp, with a token of `holdfast web token`.

    \b
    Examples:
      holdfast mcp --store sqlite:agent.db
      holdfast mcp --allow start,answer --page http://127.0.0.1:8484
      holdfast mcp --http 127.0.0.1:8585 --users users.toml
    """
    allowed = tuple(dict.fromkeys(name for name in allow.replace(",", " ").split()))
    if unknown := [name for name in allowed if name not in _ALLOWED]:
        raise click.UsageError(f"--allow takes {' and '.join(_ALLOWED)}, not {unknown[0]!r}")
    if http is None and (users or allowed_host):
        raise click.UsageError(
            "--users and --allowed-host belong to --http; on stdio the client is not asked for a token"
        )
    if page and not page.startswith(("http://", "https://")):
        raise click.UsageError(f"--page {page!r} is not an address such as http://127.0.0.1:8484")
    with _extra():
        from holdfast.mcp_server.service import Service
        from holdfast.mcp_server.transports import serve_stdio
        from holdfast.web.mask import check_masks

        settings = web_settings()
        given = settings.get("mask", [])
        masks = check_masks([*mask, *(given if isinstance(given, list) else [])])
        if http is not None:
            file = users or settings.get("users")
            _serve_http(session, http, str(file) if file else None, allowed_host, allowed, masks, page)
            return exit_codes.OK
        with _divert_stdout():
            app = _app(session)
            service = Service(app, None, mask=masks, page=page)
        serve_stdio(service, allowed)
    return exit_codes.OK


@contextlib.contextmanager
def _divert_stdout() -> Iterator[None]:
    """Write to stderr what the user's modules and their processes print: stdout belongs to the protocol.

    The server does the same while it serves.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _app(session: Session) -> App:
    """The app of the command; without one, an app without workflows on its store."""
    named = session.app_named() is not None
    app = session.app(create=named)
    if named:
        app.publish_workflows()
    elif app.store.url == "memory:":
        raise click.UsageError(
            "only the process that opened it sees a store in memory, so there would be nothing to read; "
            "name the store of the workers, as --store sqlite:PATH"
        )
    return app


def _serve_http(
    session: Session,
    address: str,
    users_file: str | None,
    allowed_hosts: tuple[str, ...],
    allow: tuple[str, ...],
    masks: tuple[str, ...],
    page: str,
) -> None:
    from holdfast.mcp_server.service import Service
    from holdfast.mcp_server.transports import PATH, http_application, serve_http
    from holdfast.web.http_server import bind, is_loopback
    from holdfast.web.security import LOOPBACK_NAMES, Host
    from holdfast.web.state_directory import users_path
    from holdfast.web.users import Users

    host, port = _host_and_port(address)
    for one in allowed_hosts:
        if Host.parse(one) is None:
            raise click.UsageError(f"--allowed-host {one!r} is not a host name")
    file = users_file or users_path()
    if not os.path.lexists(file):
        raise click.UsageError(f"--http needs a users file; `holdfast web token NAME --users FILE` makes it, {file}")
    users = Users(file)
    users.check()
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    with contextlib.closing(bind(host, port)) as listener:
        port = listener.getsockname()[1]
        name = socket.gethostname() if host in _WILDCARDS else f"[{host}]" if ":" in host else host
        names = (*LOOPBACK_NAMES, name, *allowed_hosts)
        hosts = [f"{one}:{port}" for one in names] + list(allowed_hosts)
        public = allowed_hosts[0] if allowed_hosts else name
        origin = f"http://{public}" if ":" in public.rpartition("]")[2] else f"http://{public}:{port}"
        service = Service(_app(session), users, mask=masks, page=page)
        application = http_application(service, users, allow, origin=origin, hosts=hosts)
        if not is_loopback(host):
            session.out.note("tokens and answers travel unencrypted; let a proxy in front serve https")

        def announce() -> None:
            if session.json:
                session.out.give({"url": origin + PATH})
            else:
                session.say(f"Serving {origin}{PATH}")
                session.out.stream.flush()

        serve_http(application, listener, announce)


def _host_and_port(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise click.UsageError(f"--http {address!r} is not HOST:PORT, such as 127.0.0.1:8585")
    return host.strip("[]"), int(port)


@contextlib.contextmanager
def _extra() -> Iterator[None]:
    """Report which extra is missing."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise InvalidInput('the MCP server needs the package mcp; pip install "holdfast[mcp]"') from error

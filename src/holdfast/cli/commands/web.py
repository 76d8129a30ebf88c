"""`web`: serve the page, and make the tokens of its users."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import logging
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click
import msgspec

from holdfast.cli import exit_codes
from holdfast.cli.commands.notifications import notifying
from holdfast.cli.format import age
from holdfast.cli.session import Session
from holdfast.cli.settings import web_settings
from holdfast.errors import InvalidInput
from holdfast.runtime.control import default_actor

if TYPE_CHECKING:
    from holdfast.web.sessions import Access
    from holdfast.web.users import Entry

_ROLES: Final = click.Choice(["viewer", "approver", "operator"])
_EXTRA: Final = ("starlette", "uvicorn", "jinja2", "markupsafe", "anyio", "h11")
_WILDCARDS: Final = ("0.0.0.0", "::", "")  # noqa: S104 - they are recognized, not bound by default


@click.group(invoke_without_command=True)
@click.option("--host", metavar="ADDRESS", help="The address to listen on; default 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; 0 picks a free one; default 8484.")
@click.option("--users", metavar="FILE", help="A users file, written by `holdfast web token`.")
@click.option("--proxy-header", metavar="NAME", help="The header in which a proxy names the user.")
@click.option("--groups-header", metavar="NAME", help="The header in which a proxy names the groups of the user.")
@click.option("--trust", multiple=True, metavar="CIDR", help="Addresses of the proxy; repeatable.")
@click.option("--role", type=_ROLES, help="The role of users that a proxy names; default viewer.")
@click.option("--allowed-host", multiple=True, metavar="NAME", help="A host name of the page; repeatable.")
@click.option("--https-cert", metavar="FILE", help="Serve https with this certificate.")
@click.option("--https-key", metavar="FILE", help="The private key of the certificate.")
@click.option("--behind-https", is_flag=True, default=None, help="A proxy in front of the page serves https.")
@click.option("--mask", multiple=True, metavar="PATH", help="A path whose values are not shown; repeatable.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a client may take to send a request.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@click.pass_context
def web_command(context: click.Context, /, timeout: float, opens: bool, **given: object) -> int:
    """Serve the page: inbox, runs and a JSON API.

    Prints an address to open. It is valid once; the browser that opens it is logged in under the name of the user of
    this process, as operator. Only this machine reaches the page.

    To serve it to other machines, name the users: with a users file, to which `holdfast web token` adds them, or with
    --proxy-header and --trust behind a proxy that logs users in. The page executes no workflows; a worker does.

    \b
    Examples:
      holdfast web
      holdfast web --store sqlite:agent.db --port 0 --open
      holdfast web --host 0.0.0.0 --users users.toml --https-cert cert.pem --https-key key.pem
      holdfast web --proxy-header X-Forwarded-User --trust 127.0.0.1/32 --behind-https --allowed-host runs.example.com
      holdfast web token ben --role approver --group finance
    """
    if context.invoked_subcommand is not None:
        return exit_codes.OK
    settings = web_settings()
    for name, value in given.items():
        if value not in (None, ()):
            settings[name.replace("_", "-")] = value
    with _extra():
        return _serve(context.ensure_object(Session), Options.made_of(settings), timeout, opens)


class Options(msgspec.Struct, rename="kebab", kw_only=True):
    """The options of the page, of the command line or of pyproject.toml."""

    host: str = "127.0.0.1"
    port: int = 8484
    users: str | None = None
    proxy_header: str | None = None
    groups_header: str = ""
    trust: tuple[str, ...] = ()
    role: str | None = None
    allowed_host: tuple[str, ...] = ()
    https_cert: str | None = None
    https_key: str | None = None
    behind_https: bool = False
    mask: tuple[str, ...] = ()

    @classmethod
    def made_of(cls, settings: dict[str, object]) -> Options:
        """Check the options together; UsageError if they do not fit."""
        try:
            options = msgspec.convert(settings, cls)
        except msgspec.ValidationError as error:
            raise click.UsageError(str(error)) from error
        if options.proxy_header and not options.trust:
            raise click.UsageError("--proxy-header needs --trust CIDR: only a proxy at these addresses may name users")
        for option, value in (("--role", options.role), ("--groups-header", options.groups_header)):
            if value and not options.proxy_header:
                raise click.UsageError(
                    f"{option} is for users that a proxy names, with --proxy-header; "
                    "`holdfast web token NAME --role ROLE --group NAME` gives others theirs"
                )
        if (options.https_cert is None) != (options.https_key is None):
            raise click.UsageError("--https-cert and --https-key belong together")
        for path in (options.https_cert, options.https_key):
            if path is not None and not os.path.isfile(path):
                raise click.UsageError(f"{path} does not exist")
        for cidr in options.trust:
            try:
                ipaddress.ip_network(cidr, strict=False)
            except ValueError as error:
                raise click.UsageError(f"--trust {cidr!r} is not a network such as 10.0.0.0/8") from error
        return options

    @property
    def is_https(self) -> bool:
        """Whether browsers use https."""
        return self.behind_https or self.https_cert is not None


def _serve(session: Session, options: Options, timeout: float, opens: bool) -> int:
    from holdfast.web.http_server import bind, is_loopback, serve
    from holdfast.web.live import Live
    from holdfast.web.mask import check_masks
    from holdfast.web.render import renderer
    from holdfast.web.security import HostRules
    from holdfast.web.server import build
    from holdfast.web.site import Site

    check_masks(options.mask)
    is_local = is_loopback(options.host)
    if not is_local and not options.users and not options.proxy_header:
        raise click.UsageError(
            f"other machines reach --host {options.host}, so the page must know its users: --users FILE "
            "(`holdfast web token NAME --users FILE` adds one), or --proxy-header NAME with --trust CIDR"
        )
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("holdfast.web").setLevel(logging.INFO)
    listener = bind(options.host, options.port)
    with contextlib.closing(listener):
        port = listener.getsockname()[1]
        access = _access(options, port)
        app = session.app(create=session.app_named() is not None)
        if session.app_named() is not None:
            app.publish_workflows()
        elif app.store.url == "memory:":
            raise click.UsageError(
                "only the process that opened it sees a store in memory, so this page would stay empty; "
                "name the store of the workers, as --store sqlite:PATH"
            )
        location = session.where()
        where = location.shown if location is not None else app.store.url
        site = Site(app, access, renderer(), Live(), mask=options.mask, owns_app=False)
        rules = HostRules(_hosts(options, port, is_local=is_local), scheme="https" if options.is_https else "http")
        if not is_local and not options.is_https:
            session.out.note("tokens and answers travel unencrypted; --https-cert or --behind-https changes that")

        def announce() -> None:
            url = _url(options, port, access)
            session.out.note(f"serving {where} on {_bracketed(options.host)}:{port}; Ctrl-C stops")
            if session.json:
                session.out.give({"url": url})
            else:
                session.say(f"Open {url}")
                session.out.stream.flush()
            if opens:
                threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

        if access.local is not None:
            access.local.on_used = lambda _: _announce_next(session, _url(options, port, access))
        with notifying(app):
            serve(
                build(site, rules),
                listener,
                on_start=announce,
                on_stop=site.stop,
                certificate=options.https_cert,
                key=options.https_key,
                request_s=timeout,
            )
    return exit_codes.OK


def _announce_next(session: Session, url: str) -> None:
    if session.json:
        session.out.note(f"for another browser: {url}")
    else:
        session.say(f"For another browser: {url}")
        session.out.stream.flush()


def _access(options: Options, port: int) -> Access:
    from holdfast.web.identity import User
    from holdfast.web.security import Networks
    from holdfast.web.sessions import Access, LocalLogin, Proxy
    from holdfast.web.state_directory import EndedSessions, load_secret, state_directory, users_path
    from holdfast.web.users import Users

    trusted = Networks(options.trust)
    users = proxy = local = None
    if options.users or not options.proxy_header:
        users = Users(options.users or users_path(), optional=options.users is None)
        users.check()
    if options.proxy_header:
        role = options.role or ("" if options.users else "viewer")
        proxy = Proxy(options.proxy_header, trusted, options.groups_header, role)
    elif not options.users:
        local = LocalLogin(User(name=default_actor(None), role="operator"))
    return Access(
        load_secret(),
        users=users,
        local=local,
        proxy=proxy,
        cookie=f"holdfast_{port}",
        secure=options.is_https,
        ended=EndedSessions(os.path.join(state_directory(), "web-ended")),
        trusted=trusted,
    )


def _hosts(options: Options, port: int, *, is_local: bool) -> list[str]:
    """The hosts under which the page is reached. A host without a port is accepted with every port."""
    from holdfast.web.security import LOOPBACK_NAMES, Host

    for name in options.allowed_host:
        if Host.parse(name) is None:
            raise click.UsageError(f"--allowed-host {name!r} is not a host name")
    own = [] if options.host in _WILDCARDS else [_bracketed(options.host)]
    if is_local:
        return [*(f"{name}:{port}" for name in (*LOOPBACK_NAMES, *own)), *options.allowed_host]
    return [*LOOPBACK_NAMES, socket.gethostname(), *own, *options.allowed_host]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _url(options: Options, port: int, access: Access) -> str:
    """The address to open."""
    host = _bracketed(socket.gethostname() if options.host in _WILDCARDS else options.host)
    place = f"{host}:{port}"
    if options.allowed_host:
        first = options.allowed_host[0]
        place = first if options.behind_https or ":" in first.rpartition("]")[2] else f"{first}:{port}"
    path = f"/login?token={access.local.token}" if access.local is not None else "/"
    return f"{'https' if options.is_https else 'http'}://{place}{path}"


@contextlib.contextmanager
def _extra() -> Iterator[None]:
    """Report which extra is missing."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise InvalidInput('the page needs starlette, uvicorn and jinja2; pip install "holdfast[web]"') from error


# --- tokens ----------------------------------------------------------------------------------------------------------


@web_command.command("token")
@click.argument("name", metavar="NAME", required=False)
@click.option("--role", type=_ROLES, help="What the user may do; default viewer, or as before.")
@click.option("--group", "groups", multiple=True, metavar="NAME", help="A group of the user; repeatable.")
@click.option("--workflow", "workflows", multiple=True, metavar="PATTERN", help="Workflows it sees; repeatable.")
@click.option("--expires", metavar="AGE", help="When the token expires: 90d, 12h or never.")
@click.option("--users", metavar="FILE", help="The users file; default: the one of the state directory.")
@click.option("--list", "lists", is_flag=True, help="List the users.")
@click.option("--remove", "removes", is_flag=True, help="Remove the user.")
@click.pass_obj
def token_command(
    session: Session,
    name: str | None,
    role: str | None,
    groups: tuple[str, ...],
    workflows: tuple[str, ...],
    expires: str | None,
    users: str | None,
    lists: bool,
    removes: bool,
) -> int:
    """Make a token for a user of the page and of the JSON API.

    The token is printed once; the users file contains only its hash. A new token replaces the one that the user had,
    and ends its sessions; options that are not given stay as they were. A running page notices changes of the file.

    \b
    Examples:
      holdfast web token ben --role approver --group finance --workflow 'refund*' --expires 90d
      holdfast web token --list
      holdfast web token --remove ben
    """
    with _extra():
        from holdfast.web.identity import User, clean_name
        from holdfast.web.state_directory import users_path
        from holdfast.web.users import Entry, hash_token, new_token, put_user, read_users, remove_user
    setting = web_settings().get("users")
    path = os.path.abspath(users or (str(setting) if setting else users_path()))
    entries = read_users(path) if os.path.lexists(path) else []
    if lists:
        return _list(session, path, entries)
    if name is None:
        raise click.UsageError("name the user, or give --list")
    name = clean_name(name)
    if removes:
        remove_user(path, name)
        if session.json:
            session.out.give({"name": name, "removed": True, "file": path})
        else:
            session.say(f"removed {name}")
        return exit_codes.OK
    before = next((entry for entry in entries if entry.user.name == name), None)
    if before is not None and before.expires is not None and expires is None:
        raise click.UsageError(f"the token of {name!r} had an expiry; give --expires again, or --expires never")
    until = None
    if expires not in (None, "never"):
        assert expires is not None, "compared above"
        until = dt.datetime.now(dt.UTC).replace(microsecond=0) + age(expires)
    old = before.user if before is not None else User(name=name)
    user = User(name=name, role=role or old.role, groups=groups or old.groups, workflows=workflows or old.workflows)
    token = new_token()
    entry = Entry(user=user, token_hash=hash_token(token), expires=until)
    put_user(path, entry)
    if session.json:
        session.out.give({"token": token, **_facts(entry), "file": path})
        return exit_codes.OK
    session.say(token)
    replaced = "it replaces the token before, and ends its sessions; " if before is not None else ""
    session.out.note(f"the token of {name} ({user.role}) is not shown again; {replaced}{path} has its hash")
    return exit_codes.OK


def _list(session: Session, path: str, entries: list[Entry]) -> int:
    if session.json:
        session.out.give({"users": [_facts(entry) for entry in entries], "file": path})
        return exit_codes.OK
    rows = [
        (
            entry.user.name,
            entry.user.role,
            ", ".join(entry.user.groups),
            session.out.time(entry.expires) or "never",
            ", ".join(entry.user.workflows),
        )
        for entry in entries
    ]
    session.out.table(("NAME", "ROLE", "GROUPS", "EXPIRES", "WORKFLOWS"), rows)
    return exit_codes.OK


def _facts(entry: Entry) -> dict[str, object]:
    user = entry.user
    facts = {"name": user.name, "role": user.role, "groups": user.groups, "workflows": user.workflows}
    return {**facts, "expires": entry.expires}

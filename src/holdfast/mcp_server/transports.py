"""The server on stdio, and on streamable HTTP with bearer tokens."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection

import anyio
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl
from starlette.types import ASGIApp

from holdfast.mcp_server.caller import Tokens
from holdfast.mcp_server.service import Service
from holdfast.mcp_server.tools import build
from holdfast.web.http_server import serve
from holdfast.web.users import Users

PATH = "/mcp"


def serve_stdio(service: Service, allow: Collection[str]) -> None:
    """Serve the client at stdin and stdout until it closes them."""
    anyio.run(build(service, allow).run_stdio_async)


def http_application(
    service: Service, users: Users, allow: Collection[str], *, origin: str, hosts: Collection[str]
) -> ASGIApp:
    """The server as an application at `/mcp`. Every request needs a token; no web page may send one.

    Requests of 2026-07-28 have no sessions. Those of 2025-11-25 have, because a question is a request to the client; a
    session belongs to the user of the token that began it.
    """
    url = AnyHttpUrl(origin + PATH)
    auth = AuthSettings(issuer_url=AnyHttpUrl(origin), resource_server_url=url, validate_token_resource=False)
    server = build(service, allow, auth=auth, token_verifier=Tokens(users))
    security = TransportSecuritySettings(allowed_hosts=list(hosts), allowed_origins=[])
    return server.streamable_http_app(streamable_http_path=PATH, transport_security=security, max_sessions=1_000)


def serve_http(application: ASGIApp, listener: socket.socket, on_start: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM."""
    serve(application, listener, on_start=on_start, on_stop=lambda: None)

"""The caller of a tool: the user of its token, or the client at the other end of stdio."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, Protocol

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from starlette.concurrency import run_in_threadpool

from holdfast.web.identity import User
from holdfast.web.users import Users

VIA: Final = "mcp"
_CLIENT_CHARS_MAX: Final = 64
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._/@-]+")


class GateRules(Protocol):
    """The rules of a gate about people."""

    @property
    def who(self) -> Any: ...
    @property
    def not_by(self) -> Any: ...
    @property
    def approvals(self) -> int: ...


class Caller(NamedTuple):
    """Who calls a tool."""

    user: User
    has_token: bool
    """Whether a token names the user. Without one the name is what the client calls itself."""

    def by_for(self, gate: GateRules) -> str:
        """The name under which an answer is recorded.

        Rules about people count names, so a gate with such rules is answered under the name of the token: under
        another name, one person could approve twice.
        """
        if not self.has_token or _names_people(gate):
            return self.user.name
        return f"mcp:{self.user.name}"

    def refusal_of(self, gate: GateRules) -> str:
        """Why a gate is not answered for this caller, if no token names it; empty if it may be."""
        if self.has_token or not _names_people(gate):
            return ""
        people = f"it is for {', '.join(gate.who)}" if gate.who else "it has rules about the people that answer it"
        return f"{people}, and this client has no token that names a person"


def _names_people(gate: GateRules) -> bool:
    return bool(gate.who or gate.not_by or gate.approvals > 1)


def client_name(ctx: Context) -> str:
    """The name that the client gives itself, with plain characters only."""
    params = ctx.session.client_params
    name = _NOT_IN_NAMES.sub("-", params.client_info.name if params is not None else "").strip("-")
    return name[:_CLIENT_CHARS_MAX] or "unknown"


def caller_of(ctx: Context, users: Users | None) -> Caller:
    """The caller of a tool. The users file is read at every call, so a removed user has no access from then on."""
    if users is None:
        return Caller(User(name=f"mcp:{client_name(ctx)}", role="operator"), has_token=False)
    request = ctx.request_context.request
    found = request.scope.get("user") if request is not None else None
    entry = users.by_token(found.access_token.token) if isinstance(found, AuthenticatedUser) else None
    if entry is None:
        raise ToolError("the token of this client is not valid any more")
    return Caller(entry.user, has_token=True)


class Tokens:
    """Verifies the tokens of a users file."""

    def __init__(self, users: Users) -> None:
        self._users = users

    async def verify_token(self, token: str) -> AccessToken | None:
        """What the token stands for; None if it is not valid."""
        entry = await run_in_threadpool(self._users.by_token, token.strip())
        if entry is None:
            return None
        return AccessToken(token=token.strip(), client_id=entry.user.name, scopes=[], subject=entry.user.name)

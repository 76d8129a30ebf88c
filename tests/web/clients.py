"""The page as `holdfast web` builds it, in this process, and browsers of its users."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.testclient import TestClient

import holdfast
from holdfast.web.identity import User
from holdfast.web.live import Live
from holdfast.web.render import renderer
from holdfast.web.security import LOOPBACK_NAMES, HostRules
from holdfast.web.server import build
from holdfast.web.sessions import Access, LocalLogin
from holdfast.web.site import Site
from holdfast.web.state_directory import EndedSessions
from holdfast.web.users import Entry, Users, hash_token, new_token, put_user

PORT = 8484
ORIGIN = f"http://127.0.0.1:{PORT}"
SECRET = bytes(range(32))


class Served:
    """The page with a users file: ana is operator, ben approver, vera viewer, and rita sees only refunds."""

    def __init__(self, folder: Path, app: holdfast.App, *, clock: Callable[[], float] = time.time, **more: Any) -> None:
        self.folder = folder
        self.path = str(folder / "users.toml")
        self.tokens: dict[str, str] = {}
        for user in (
            User(name="ana", role="operator"),
            User(name="ben", role="approver", groups=("finance",)),
            User(name="vera", role="viewer"),
            User(name="rita", role="operator", workflows=("refund*",)),
        ):
            self.put(user)
        self.local = LocalLogin(User(name="root-user", role="operator"))
        self.scheme = more.pop("scheme", "http")
        self.clock = clock
        self.more = more
        self.app = app
        self.application: Starlette
        self.restart()

    def restart(self, secret: bytes = SECRET) -> None:
        """Another server with the same files."""
        self.access = Access(
            secret,
            users=Users(self.path),
            local=self.local,
            cookie=f"holdfast_{PORT}",
            secure=self.scheme == "https",
            ended=EndedSessions(str(self.folder / "ended"), now=self.clock),
            clock=self.clock,
        )
        self.site = Site(self.app, self.access, renderer(), Live(), owns_app=False)
        rules = HostRules([f"{name}:{PORT}" for name in LOOPBACK_NAMES], scheme=self.scheme)
        self.application = build(self.site, rules, **self.more)

    def put(self, user: User) -> str:
        """Add a user, or give it another token or role."""
        token = new_token()
        put_user(self.path, Entry(user=user, token_hash=hash_token(token)))
        self.tokens[user.name] = token
        return token

    def browser(self, name: str | None = None) -> TestClient:
        """A browser, logged in as this user."""
        client = TestClient(
            self.application,
            base_url=f"{self.scheme}://127.0.0.1:{PORT}",
            follow_redirects=False,
            raise_server_exceptions=False,
        )
        if name is not None:
            done = client.post("/login", data={"token": self.tokens[name]})
            assert done.status_code == 303, done.text
        return client

    def bearer(self, name: str) -> dict[str, str]:
        """The headers of a program that has this user's token."""
        return {"Authorization": f"Bearer {self.tokens[name]}"}


@contextmanager
def served(folder: Path, **more: Any) -> Iterator[Served]:
    """The page on an empty store in memory."""
    with holdfast.App("memory:") as app:
        yield Served(folder, app, **more)


def csrf_of(client: TestClient | httpx.Client, path: str = "/") -> str:
    """The CSRF token in the forms of a page."""
    found = re.search(r'name="csrf" value="([^"]+)"', client.get(path).text)
    assert found is not None, "the page has no form"
    return found[1]

"""The page, served by a real server in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request

from holdfast.web import User, asgi
from tests.harness import until
from tests.web.browser.seed import app_on

if TYPE_CHECKING:
    from holdfast import App

R = TypeVar("R")

USERS: Final = {
    "ana": User(name="ana", role="operator", groups=("finance",)),
    "ben": User(name="ben", role="operator", groups=("finance", "leads")),
    "carl": User(name="carl", role="approver"),
    "vera": User(name="vera", role="viewer"),
    "ria": User(name="ria", role="operator", workflows=("refund*",)),
}
WHO: Final = "who"
"""A cookie of the tests: the application that mounts the page knows its users."""


def user_of(request: Request) -> User | None:
    """The user of a request; ana if the cookie is missing."""
    return USERS.get(request.cookies.get(WHO, "ana"))


def in_thread(function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    """Call something on another thread: Playwright's loop runs on that of the test, where an app must not block."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(function, *args, **kwargs).result(240)


class Served:
    """An ASGI application on a port of this machine."""

    def __init__(self, application: Starlette | Any) -> None:
        config = uvicorn.Config(application, host="127.0.0.1", port=0, log_level="critical", access_log=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        until(lambda: self._server.started or not self._thread.is_alive(), "the server starts")
        assert self._server.started
        self.port: int = self._server.servers[0].sockets[0].getsockname()[1]
        self.origin = f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._server.force_exit = self._server.should_exit = True
        self._thread.join(60)


class Site(Served):
    """The page on a store, and an app of another process, so to speak, on the same store.

    Playwright's own loop runs on the thread of the test, so the app is called on threads of its own: `do`.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        self._threads = ThreadPoolExecutor(4)
        self.app: App = self.do(app_on, url)
        options.setdefault("user", user_of)
        super().__init__(asgi(url, **options))
        self._worker: threading.Thread | None = None

    def do(self, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """Call something of the app on another thread."""
        return self._threads.submit(function, *args, **kwargs).result(240)

    def status(self, run_id: str) -> str:
        return self.do(lambda: self.app.handle(run_id).status())

    def work(self) -> None:
        """Execute everything that is ready."""
        self.do(lambda: self.app.worker(concurrency=4).run(until_idle=True))

    def close(self) -> None:
        self.stop()
        self.do(self.app.close)
        self._threads.shutdown()

"""The processes of the load test: the page on one core, and a worker beside it.

`python -m bench.web_server page URL` prints its port. `/bench` returns how many views are watched, how many streams are
open and the processor time used. `python -m bench.web_server worker URL` executes the runs.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from tests.web.browser.seed import app_on

import holdfast.web.server
from holdfast.web import User
from holdfast.web.live import Live

_lives: list[Live] = []


class ObservedLive(Live):
    """The live updates of the page, found again here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _lives.append(self)


def application(url: str) -> Starlette:
    """The page for users named by a cookie, and the numbers of this process."""
    vars(holdfast.web.server)["Live"] = ObservedLive

    def user_of(request: Request) -> User:
        return User(name=request.cookies.get("who", "ana"), role="operator")

    async def facts(_: Request) -> Response:
        numbers = {"watched": sum(live.watched for live in _lives), "readers": sum(live.readers for live in _lives)}
        return JSONResponse({**numbers, "cpu_s": time.process_time()})

    page = holdfast.web.server.asgi(url, user=user_of)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with page.router.lifespan_context(page):
            yield

    return Starlette(routes=[Route("/bench", facts), Mount("/", page)], lifespan=lifespan)


class _Server(uvicorn.Server):
    async def startup(self, *args: Any, **kwargs: Any) -> None:
        await super().startup(*args, **kwargs)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)


def main(kind: str, url: str, core: str) -> None:
    """Serve the page, or work, on one core."""
    os.sched_setaffinity(0, {int(core)})
    if kind == "worker":
        app_on(url).worker(concurrency=4).run()
        return
    config = uvicorn.Config(application(url), host="127.0.0.1", port=0, log_level="warning", access_log=False)
    _Server(config).run()


if __name__ == "__main__":
    main(*sys.argv[1:])

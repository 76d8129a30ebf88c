"""Workflows to act on: a page that executes nothing, and a worker in another app on the same store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

import holdfast
from holdfast.web.api.operation import PREFIX
from tests.today import select_daily
from tests.web.clients import Served
from tests.web.html_page import HtmlForm, HtmlPage

STORES = select_daily(("memory:", "sqlite:"), 1)
"""Each day one of them: the page reads both through the same port."""


class World:
    """A store, a page on it, a worker beside it, and what the workflows did."""

    def __init__(self, url: str, folder: Path, *, page_knows: bool = False) -> None:
        self.store = holdfast.open(f"sqlite:{folder}/runs.db" if url == "sqlite:" else url)
        self.app = holdfast.App(self.store)
        self.page_app = self.app if page_knows else holdfast.App(self.store)
        self.did: list[Any] = []
        self.rates: dict[str, int] = {}
        self._register()
        self.app.publish_workflows()
        self.served = Served(folder, self.page_app, changes_per_minute=1_000_000)

    def _register(self) -> None:
        app, did = self.app, self.did

        @app.undo
        def take_back(receipt: object, order: str, amount: int) -> None:
            did.append(("take back", order))

        def pay(order: str, amount: int) -> dict[str, object]:
            did.append(("pay", order))
            return {"receipt": f"R-{order}", "card": {"number": "4242"}}

        def ship(order: str) -> str:
            did.append(("ship", order))
            return f"parcel {order}"

        @app.workflow
        def order(run: holdfast.Run, order: str, amount: int = 40) -> object:
            """Pay an order, ask, then ship it."""
            run.state["order"] = {"name": order, "amount": amount}
            run.state["customer"] = {"name": "Ana", "iban": "DE02"}
            paid = run.effect(pay, order, amount, undo=take_back)
            run.checkpoint()
            answer = run.ask(f"Ship {order}?", {"ok": bool}, show=paid, key="approve")
            if answer["ok"]:
                run.effect(ship, order)
            return {"order": dict(run.state["order"]), "ok": answer["ok"]}

        @app.workflow
        def convert(run: holdfast.Run, amount: int) -> int:
            """Fails until the rate is known."""
            run.step(lambda: did.append("convert"), name="begin")
            return run.step(lambda: amount * self.rates["eur"], name="rate")

        @app.workflow
        def listen(run: holdfast.Run) -> object:
            """Wait for a parcel."""
            return run.wait_for("shipped")

        app.graph(
            {
                "id": "hello",
                "input": {"name": "text"},
                "stages": [{"type": "end", "id": "end", "result": "hello {{ input.name }}"}],
            }
        )

    def work(self) -> None:
        """Let a worker do what there is to do."""
        self.app.worker().run(until_idle=True)

    def start(self, workflow: str, *args: object, run_id: str, **more: Any) -> str:
        """Start a run and execute it until it waits."""
        self.app.start(workflow, *args, run_id=run_id, **more)
        return run_id

    def status(self, run_id: str) -> str:
        return self.app.handle(run_id).status()

    def entries(self, run_id: str, kind: str) -> list[dict[str, Any]]:
        return [entry.data for entry in self.store.journal(run_id) if entry.kind == kind]

    def page(self, browser: TestClient, path: str, status: int = 200) -> HtmlPage:
        done = browser.get(path)
        assert done.status_code == status, done.text
        return HtmlPage(done.text)

    def api(self, name: str = "ana") -> Api:
        return Api(self.served, name)

    def close(self) -> None:
        for app in {id(app): app for app in (self.app, self.page_app)}.values():
            app.close()
        self.store.close()


class Api:
    """A program that uses the JSON API with a bearer token."""

    def __init__(self, served: Served, name: str) -> None:
        self._client = served.browser()
        self._headers = served.bearer(name)

    def get(self, path: str, status: int = 200, /, **query: Any) -> Any:
        done = self._client.get(PREFIX + path, params=query or None, headers=self._headers)
        assert done.status_code == status, done.text
        return done.json()

    def post(self, path: str, body: object = None, status: int = 200) -> Any:
        more: dict[str, Any] = {} if body is None else {"json": body}
        done = self._client.post(PREFIX + path, headers=self._headers, **more)
        assert done.status_code == status, done.text
        return done.json()


def send(browser: TestClient, form: HtmlForm, status: int = 303, **more: Any) -> Any:
    """Submit a form."""
    done = browser.post(form.action, data={**form.submit(), **more})
    assert done.status_code == status, done.text
    return done


def twins(w: World, browser: TestClient) -> list[TestClient]:
    """Two windows of one browser, for two threads."""
    found = [w.served.browser(), w.served.browser()]
    for window in found:
        window.cookies.update(browser.cookies)
    return found


@contextmanager
def world(url: str, folder: Path, **more: Any) -> Iterator[World]:
    found = World(url, folder, **more)
    try:
        yield found
    finally:
        found.close()

"""Runs that wait for answers, a page that executes nothing, and the browsers of several people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.testclient import TestClient

import holdfast
from holdfast.model.views import GateInfo
from holdfast.web import User, asgi
from holdfast.web.gate_list import GateList
from holdfast.web.site import Site
from tests.harness import ShiftedClock
from tests.today import select_daily
from tests.web.html_page import HtmlForm, HtmlPage

STORES = select_daily(("memory:", "sqlite:"), 1)
"""Each day one of them: the page reads both through the same port."""
PEOPLE = {
    "ana": User(name="ana", role="operator"),
    "ben": User(name="ben", role="approver", groups=("finance",)),
    "cleo": User(name="cleo", role="approver"),
    "vera": User(name="vera", role="viewer"),
    "rita": User(name="rita", role="operator", workflows=("refund*",)),
}


class InboxWorld:
    """A store, an app whose worker executes runs, and a page of another app on the same store."""

    def __init__(self, url: str, folder: Path, *, mask: tuple[str, ...] = ()) -> None:
        self.clock = ShiftedClock()
        self.store = holdfast.open(f"sqlite:{folder}/runs.db" if url == "sqlite:" else url, clock=self.clock)
        self.app = holdfast.App(self.store)
        self.page_app = holdfast.App(self.store)
        self.site = asgi(
            self.page_app,
            user=lambda request: PEOPLE[request.headers["x-user"]],
            mask=mask,
            changes_per_minute=1_000_000,
        )
        self._count = 0

        @self.app.workflow
        def ask(run: holdfast.Run, prompt: str, fields: Any, options: Any) -> Any:
            """Ask what the test asks."""
            return run.ask(prompt, _spec(fields), **options)

        @self.app.workflow
        def refund(run: holdfast.Run, order: str) -> Any:
            """Ask whether to refund."""
            return run.ask(f"Refund **{order}**?", {"approve": bool}, show={"order": order})

    def ask(
        self, prompt: str = "Go on?", fields: Any = "approve", *, run_id: str | None = None, **options: Any
    ) -> GateInfo:
        """Start a run that waits at a gate. `fields` names one of SPECS."""
        self._count += 1
        handle = self.app.start("ask", prompt, fields, options, run_id=run_id or f"run-{self._count}")
        (gate,) = self.app.gates(handle.run_id)
        return gate

    def refund(self, order: str, run_id: str | None = None) -> GateInfo:
        handle = self.app.start("refund", order, run_id=run_id or f"refund-{order}")
        return self.app.gates(handle.run_id)[0]

    def work(self) -> None:
        """Let a worker do what there is to do."""
        self.app.worker().run(until_idle=True)

    def browser(self, name: str) -> TestClient:
        return TestClient(self.site, follow_redirects=False, headers={"x-user": name})

    def close(self) -> None:
        self.app.close()
        self.page_app.close()
        self.store.close()

    # --- pages -------------------------------------------------------------------------------------------------------

    def page(
        self, name: str, path: str = "/", *, status: int = 200, update: bool = False, typed: tuple[GateInfo, ...] = ()
    ) -> HtmlPage:
        """A page as a person gets it. `update`: fetched by a live update; `typed`: gates whose forms have text."""
        headers = {"HX-Request": "true"} if update else {}
        if typed:
            headers["X-Typed"] = " ".join(f"{quote(one.run_id, safe='')}/{quote(one.gate, safe='')}" for one in typed)
        response = self.browser(name).get(path, headers=headers)
        assert response.status_code == status, response.text
        return check_page(response.text)

    def submit(
        self, name: str, form: HtmlForm, button: str = "", value: str = "", *, status: int = 303, **more: str
    ) -> Any:
        """Submit a form; returns the page, or the redirect."""
        values = {**form.submit(button, value), **{key: [text] for key, text in more.items()}}
        response = self.browser(name).post(form.action, data=values)
        assert response.status_code == status, response.text
        return check_page(response.text) if status != 303 else response

    def answer_form(self, name: str, gate: GateInfo) -> HtmlForm:
        """The form on the page of a gate."""
        return self.page(name, gate_path(gate)).form("/answer")


SPECS: dict[str, Any] = {
    "labelled": {
        "cost_center": holdfast.field(int, choices={100: "100 Sales", 200: "200 Marketing"}),
        "tags": holdfast.field(list[str], choices={"a": "Amber", "b": "Blue"}),
        "note": str,
    },
    "approve": {"approve": bool},
    "noted": {"approve": bool, "note": holdfast.field(str, default="")},
    "bool": bool,
    "order": {"amount": holdfast.field(int, minimum=1, maximum=9), "tags": list[str], "note": str},
    "free": None,
}


def _spec(fields: Any) -> Any:
    return SPECS[fields] if isinstance(fields, str) else fields


def gate_path(gate: GateInfo, *parts: str) -> str:
    return "/".join([f"/runs/{quote(gate.run_id, safe='')}/gates/{quote(gate.gate, safe='')}", *parts])


def check_page(html: str) -> HtmlPage:
    """What holds for every page: ids are unique, references exist, nothing is inline, forms carry the token."""
    page = HtmlPage(html)
    assert len(page.ids) == len(set(page.ids)), [one for one in page.ids if page.ids.count(one) > 1]
    assert page.described <= set(page.ids)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    for tag, attributes in page.tags:
        assert tag not in ("style", "iframe", "object")
        assert tag != "script" or "src" in attributes
        assert not any(name == "style" or name.startswith("on") for name in attributes), attributes
    for form in page.forms:
        assert form.method != "post" or any(control.name == "csrf" for control in form.controls) or not form.submit()
    return page


def site_of(world: InboxWorld) -> Site:
    """The site behind the pages of a world."""
    world.page("ana")
    return next(site for site in GateList._of if site.app is world.page_app)


@contextmanager
def inbox_world(url: str, folder: Path, **options: Any) -> Iterator[InboxWorld]:
    world = InboxWorld(url, folder, **options)
    try:
        yield world
    finally:
        world.close()

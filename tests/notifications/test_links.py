"""The link of a message opens the page of its gate or run, whatever their names are."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.notifications.message import page_url

pytest.importorskip("starlette")

from starlette.testclient import TestClient

import holdfast.web


@pytest.mark.parametrize("run_id", ["order/17", ".", "..", "~", "a b?#%", "ü", "x" * 500])
@pytest.mark.parametrize("key", [None, ".", "~", "a/b"])
def test_a_link_opens_the_page(run_id: str, key: str | None) -> None:
    with holdfast.App("memory:") as app:

        @app.workflow
        def asks(run: holdfast.Run) -> object:
            return run.ask("Pay this?", {"pay": bool}, key=key)

        app.start(asks, run_id=run_id)
        (gate,) = app.gates(run_id)
        page = holdfast.web.asgi(app, user=lambda _: holdfast.web.User(name="ana", role="viewer"))
        with TestClient(page) as client:
            for link in (page_url("", run_id, gate.gate), page_url("", run_id, None)):
                found = client.get(link)
                assert found.status_code == 200, link
                assert "Pay this?" in found.text
        assert app.gates(run_id) == [gate], "opening it decided nothing"

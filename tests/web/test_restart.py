"""A restart of the server, also by SIGKILL, loses no session and no answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness import until
from tests.web.browser.seed import app_on
from tests.web.browser.web_process import WebProcess

ANSWERS = 24


@pytest.fixture
def web(tmp_path: Path) -> Iterator[WebProcess]:
    url = f"sqlite:{tmp_path / 'runs.db'}"
    with app_on(url) as app:
        app.start("remind", 0, run_id="reminder-1")
    web = WebProcess(tmp_path, url)
    yield web
    web.stop()


def token_of(web: WebProcess, name: str, role: str) -> str:
    return web.command("token", name, "--role", role).split()[0]


def test_a_session_survives_a_killed_server(tmp_path: Path, web: WebProcess) -> None:
    token = token_of(web, "ben", "approver")
    with httpx.Client(base_url=web.origin, timeout=240) as client:
        assert client.post("/login", data={"token": token}).status_code == 303
        before = client.get("/")
        assert before.status_code == 200
        web.kill()
        web.start()
        after = client.get("/")
        assert after.status_code == 200
        assert "ben" in after.text
        assert client.get("/logout").status_code == 303  # a GET changes nothing
        assert client.get("/").status_code == 200


def test_a_logout_survives_a_killed_server(web: WebProcess) -> None:
    token = token_of(web, "ben", "approver")
    with httpx.Client(base_url=web.origin, timeout=240) as client:
        client.post("/login", data={"token": token})
        cookies = dict(client.cookies)
        csrf = client.get("/").text.partition('name="csrf" value="')[2].partition('"')[0]
        assert client.post("/logout", data={"csrf": csrf}).status_code == 303
    web.kill()
    web.start()
    assert httpx.get(f"{web.origin}/", cookies=cookies, timeout=240).status_code == 303


def test_no_confirmed_answer_is_lost_when_the_server_is_killed_between_answers(tmp_path: Path, web: WebProcess) -> None:
    headers = {"Authorization": f"Bearer {token_of(web, 'ana', 'operator')}"}
    confirmed: list[str] = []
    with app_on(f"sqlite:{tmp_path / 'runs.db'}") as app:
        ids = [f"refund-{number}" for number in range(ANSWERS)]
        for run_id in ids:
            app.start("refund", "1", run_id=run_id)

        def answer_all() -> None:
            for run_id in ids:
                while run_id not in confirmed:
                    try:
                        reply = httpx.post(
                            f"{web.origin}/api/v1/runs/{run_id}/answer",
                            json={"answer": {"approve": True, "note": "ok"}},
                            headers=headers,
                            timeout=240,
                        )
                    except httpx.TransportError:  # the server was killed: the answer is sent again
                        continue
                    assert reply.status_code in (200, 202, 409), reply.text
                    confirmed.append(run_id)

        thread = threading.Thread(target=answer_all)
        thread.start()
        for count in (ANSWERS // 4, ANSWERS // 2):
            until(lambda count=count: len(confirmed) >= count or not thread.is_alive(), "answers")  # type: ignore[misc]
            web.kill()
            web.start()
        thread.join(240)
        assert confirmed == ids
        gates = {gate.run_id: gate for gate in app.gates(state=None)}
        assert {(gates[run_id].state, gates[run_id].answered_by) for run_id in ids} == {("answered", "ana")}
        app.worker().run(until_idle=True)
        assert {app.handle(run_id).status() for run_id in ids} == {"completed"}

"""A server that is killed while it records an answer: the answer is stored once, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

import holdfast
from holdfast.model.views import GateInfo
from tests.harness import until
from tests.web.browser.web_process import WebProcess
from tests.web.clients import csrf_of

RUNS = 12
YES = {"approve": True}


class Office:
    """A run that two people must approve, and that pays then; ana and ben have tokens."""

    def __init__(self, folder: Path, scheme: str) -> None:
        self.folder = folder
        self.url = f"{scheme}:{folder / 'runs'}"
        self.paid: list[str] = []
        self.app = holdfast.App(self.url)

        @self.app.workflow(name="pay")
        def pay(run: holdfast.Run, bill: str) -> str:
            if not run.ask(f"Pay {bill}?", {"approve": bool}, key="approve", approvals=2)["approve"]:
                return "refused"
            run.effect(self.paid.append, bill)
            return "paid"

        self.servers: list[WebProcess] = []
        self.tokens: dict[str, str] = {}

    def serve(self, when: str = "") -> WebProcess:
        """A server of its own; with `when` one that is killed at its first answer."""
        program = ("tests.web.dying_server", when) if when else ("holdfast",)
        server = WebProcess(self.folder, self.url, program=program)
        self.servers.append(server)
        for name in ("ana", "ben") if not self.tokens else ():
            self.tokens[name] = server.command("token", name, "--role", "approver").split()[0]
        return server

    def start(self, run_id: str) -> None:
        self.app.start("pay", run_id, run_id=run_id, enqueue=True)
        self.work()

    def work(self) -> None:
        self.app.worker().run(until_idle=True)

    def gate(self, run_id: str) -> GateInfo:
        (gate,) = self.app.gates(run_id, state=None)
        return gate

    def post(self, server: WebProcess, who: str, run_id: str) -> httpx.Response:
        """An approval by the API."""
        return httpx.post(
            f"{server.origin}/api/v1/runs/{run_id}/gates/approve/answer",
            json={"answer": YES},
            headers={"Authorization": f"Bearer {self.tokens[who]}"},
            timeout=240,
        )

    def submit(self, server: WebProcess, who: str, run_id: str) -> httpx.Response:
        """An approval by the form of the gate's page."""
        with httpx.Client(base_url=server.origin, timeout=240) as browser:
            assert browser.post("/login", data={"token": self.tokens[who]}).status_code == 303
            page = f"/runs/{run_id}/gates/approve"
            csrf = csrf_of(browser, page)
            return browser.post(f"{page}/answer", data={"csrf": csrf, "f/approve": "true"})


@pytest.fixture
def office(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Office]:
    made = Office(tmp_path, getattr(request, "param", "sqlite"))
    try:
        yield made
    finally:
        for server in made.servers:
            server.stop()
        made.app.close()


Send = Callable[[Office, WebProcess, str, str], httpx.Response]


@pytest.mark.parametrize(
    ("office", "killed_at", "when", "send"),
    [
        ("sqlite", 1, "before", Office.post),
        ("dir", 1, "after", Office.submit),
        ("dir", 2, "before", Office.post),
        ("sqlite", 2, "after", Office.submit),
    ],
    ids=["first-before", "first-after", "last-before", "last-after"],
    indirect=["office"],
)
def test_a_server_killed_at_an_approval_has_recorded_it_once_or_not_at_all(
    office: Office, killed_at: int, when: str, send: Send
) -> None:
    dying, healthy = office.serve(when), office.serve()
    office.start("bill-1")
    people = ["ana", "ben"]
    for number, who in enumerate(people, 1):
        if number == killed_at:
            with pytest.raises(httpx.TransportError):
                send(office, dying, who, "bill-1")
            dying.wait_killed()
            gate = office.gate("bill-1")
            recorded = [one.by for one in gate.approved] + ([gate.answered_by] if gate.state == "answered" else [])
            assert recorded == people[: number if when == "after" else number - 1]
        reply = office.post(healthy, who, "bill-1")
        is_repeated = number == killed_at and when == "after"
        assert reply.status_code == ((403 if number == 1 else 409) if is_repeated else 200), reply.text
    office.work()
    assert office.paid == ["bill-1"]
    gate = office.gate("bill-1")
    assert (gate.state, [one.by for one in gate.approved], gate.answered_by) == ("answered", ["ana"], "ben")
    assert office.app.store.verify().problems == []


def test_of_two_servers_that_record_approvals_one_is_killed_and_none_counts_twice(office: Office) -> None:
    servers = {"ana": office.serve(), "ben": office.serve()}
    ids = [f"bill-{number}" for number in range(RUNS)]
    for run_id in ids:
        office.start(run_id)
    done: dict[str, list[str]] = {"ana": [], "ben": []}
    wrong: list[str] = []

    def approve_all(who: str) -> None:
        for run_id in ids:
            while run_id not in done[who]:
                try:
                    reply = office.post(servers[who], who, run_id)
                except httpx.TransportError:  # killed: the approval is sent again
                    continue
                if reply.status_code not in (200, 403, 409):
                    wrong.append(reply.text)
                done[who].append(run_id)

    threads = [threading.Thread(target=approve_all, args=(who,)) for who in servers]
    for thread in threads:
        thread.start()
    for count in (1, RUNS // 2):
        until(lambda count=count: len(done["ben"]) >= count, "approvals of ben")  # type: ignore[misc]
        servers["ben"].kill()
        servers["ben"].start()
    for thread in threads:
        thread.join(240)
    assert wrong == []
    for run_id in ids:
        gate = office.gate(run_id)
        first = [one.by for one in gate.approved]
        assert gate.state == "answered"
        assert sorted([*first, gate.answered_by or ""]) == ["ana", "ben"]
    office.work()
    assert sorted(office.paid) == sorted(ids)
    assert office.app.store.verify().problems == []

"""The common story of all adapters; see `tests.adapters.story`.

`make test` runs it for the adapters whose framework is installed, `make test-adapters` for every one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

import holdfast
from tests.adapters import bank, story

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # newer releases prefer another HTTP client
    from starlette.testclient import TestClient

ROOT: Final = Path(__file__).parents[2]
FRAMEWORKS: Final = {
    "agent": "holdfast",
    "adk": "google.adk",
    "ag2": "ag2",
    "agent_framework": "agent_framework",
    "burr": "burr",
    "crewai": "crewai",
    "llama_index": "workflows",
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai",
    "strands": "strands",
}
APPROVE: Final = {"approve": True}
REFUSE: Final = {"approve": False, "note": "not this one"}


def is_installed(adapter: str) -> bool:
    """Whether the framework of an adapter can be imported here."""
    try:
        found = importlib.util.find_spec(FRAMEWORKS[adapter])
    except ModuleNotFoundError:
        found = None
    return found is not None


@pytest.fixture(
    params=[
        pytest.param(name, marks=() if is_installed(name) else pytest.mark.skip(f"{FRAMEWORKS[name]} is not installed"))
        for name in story.ADAPTERS
    ]
)
def told(request: pytest.FixtureRequest, tmp_path: Path) -> Story:
    return Story(request.param, tmp_path)


class Story:
    """One story: a store, the file of the outside world, and the processes that act."""

    def __init__(self, adapter: str, place: Path) -> None:
        self.adapter = adapter
        self.log = place / "world.jsonl"
        self.url = f"sqlite:{place / 'runs.db'}"
        self._environment = {**os.environ, "STORY_STORE": self.url, bank.LOG: str(self.log)}

    def tell(self, *words: str, kill: str = "") -> dict[str, Any]:
        """Carry out a verb in a process of its own."""
        command = [sys.executable, "-m", "tests.adapters.story", self.adapter, *words]
        environment = {**self._environment, bank.KILL: kill}
        ran = _run(command, ROOT, environment)
        if kill and ran.returncode < 0:
            return {}
        assert ran.returncode == 0, ran.stderr[-3000:]
        return dict(json.loads(ran.stdout.splitlines()[-1]))

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Call the command, which does not know the workflow."""
        command = [sys.executable, "-m", "holdfast", *words, "--store", self.url]
        return _run(command, self.log.parent, self._environment)

    def answer(self, gate: str, answer: dict[str, Any], by: str = "ana", kill: str = "") -> dict[str, Any]:
        return self.tell("answer", gate, json.dumps(answer), by, kill=kill)

    def count(self, what: str) -> int:
        return len(bank.lines(self.log, what))

    def paid(self) -> list[str]:
        return [line["order"] for line in bank.lines(self.log, "pay")]

    def gates(self) -> dict[str, str]:
        """The open gates by the order that they are about."""
        with holdfast.App(self.url) as app:
            return {gate.show["order"]: gate.gate for gate in app.gates(story.RUN_ID) if gate.purpose == "ask"}


def _run(command: list[str], place: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=240, check=False)


def test_both_approvals_are_in_one_inbox_and_nothing_is_repeated(told: Story) -> None:
    first = told.tell("start", "ask")
    assert first["status"] == "waiting"
    gates = told.gates()
    assert sorted(gates) == list(story.ORDERS)
    assert told.count("look") == 2
    models = told.count("model")
    assert told.answer(gates["A-17"], APPROVE)["status"] == "waiting"
    last = told.answer(gates["B-20"], REFUSE, by="ben")
    assert last["status"] == "completed"
    assert "paid 40 for A-17" in last["result"]
    assert "not this one" in last["result"]
    assert told.paid() == ["A-17"]
    assert told.count("look") == 2
    assert told.count("model") == models + 1


def test_answers_come_from_the_command_and_the_page(told: Story) -> None:
    from holdfast.web import User, asgi

    told.tell("start", "ask")
    gates = told.gates()
    ran = told.command("answer", story.RUN_ID, "--gate", gates["A-17"], "approve=yes", "--by", "ana")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    with TestClient(asgi(told.url, user=lambda _: User(name="ben", role="approver"))) as page:
        text = page.get("/").text
        assert "B-20" in text
        form = _form_of(page, gates["B-20"])
        reply = page.post(form.pop("action"), data={**form, **_yes(form)}, follow_redirects=False)
        assert reply.status_code in (200, 303), reply.text
    assert told.tell("resume")["status"] == "completed"
    assert sorted(told.paid()) == list(story.ORDERS)


def test_of_two_answers_one_counts(told: Story) -> None:
    told.tell("start", "ask")
    gate = told.gates()["A-17"]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda by: told.answer(gate, APPROVE, by=by), ("ana", "ben")))
    assert [answer.get("refused") for answer in answers].count("AlreadyAnswered") == 1, answers
    told.answer(told.gates()["B-20"], APPROVE)
    assert sorted(told.paid()) == list(story.ORDERS)


@pytest.mark.parametrize("policy", ["ask", "check", "retry", "fail"])
def test_a_payment_in_doubt_is_decided_by_its_policy(told: Story, policy: str) -> None:
    told.tell("start", policy)
    gates = told.gates()
    told.answer(gates["B-20"], REFUSE)
    told.answer(gates["A-17"], APPROVE, kill="after-pay")
    assert told.paid() == ["A-17"]
    models = told.count("model")
    found = told.tell("resume")
    keys = {line["key"] for line in bank.lines(told.log, "pay")}
    assert len(keys) == 1
    assert keys != {None}
    if policy == "fail":
        assert found["status"] == "failed"
        assert "EffectInDoubt" in found["error"] or "AgentStopped" in found["error"]
        assert told.paid() == ["A-17"]
        assert told.count("model") == models
        return
    if policy == "ask":
        assert found["status"] == "waiting"
        assert told.paid() == ["A-17"]
        ((gate, prompt),) = found["gates"]
        assert "pay" in prompt
        found = told.answer(gate, {"outcome": "happened", "result": "paid 40 for A-17"})
    assert found["status"] == "completed"
    assert "paid 40 for A-17" in found["result"]
    assert told.paid() == (["A-17"] * 2 if policy == "retry" else ["A-17"])


def test_without_a_run_the_adapter_is_transparent(told: Story) -> None:
    found = told.tell("without_run")
    assert "paid 40 for A-17" in found["result"]
    assert not list(told.log.parent.glob("runs.db*"))


def _form_of(page: TestClient, gate: str) -> dict[str, str]:
    """The form of a gate as a browser without JavaScript would send it."""

    class Forms(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.forms: list[dict[str, str]] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            given = dict(attrs)
            if tag == "form":
                self.forms.append({"action": given.get("action") or ""})
            elif tag in ("input", "textarea") and self.forms and given.get("name"):
                if given.get("type") not in ("radio", "checkbox"):
                    self.forms[-1][given["name"] or ""] = given.get("value") or ""
                else:
                    self.forms[-1].setdefault(given["name"] or "", "")

    path = f"/runs/{quote(story.RUN_ID, safe='')}/gates/{quote(gate, safe='')}"
    reply = page.get(path)
    assert reply.status_code == 200, (path, reply.text[:500])
    parser = Forms()
    parser.feed(reply.text)
    return next(form for form in parser.forms if any("approve" in name for name in form))


def _yes(form: dict[str, str]) -> dict[str, str]:
    return {name: "true" for name in form if name.endswith("approve")}

"""An app in memory with runs of every kind, and a reader that checks the HTML of a page."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import quote

from starlette.testclient import TestClient

import holdfast
from holdfast import App
from holdfast.web import User, asgi
from tests.harness import ShiftedClock

HOSTILE: Final = "<script>alert('x')</script>\"&"
GRAPH: Final[dict[str, Any]] = {
    "id": "declared",
    "name": "Refund <b>flow</b>",
    "stages": [
        {"id": "quote", "type": "call", "function": "price", "with": {"order": "{{ input.order }}"}, "output_key": "q"},
        {"id": "approve", "type": "ask", "prompt": "Refund {{ q }}?", "fields": {"ok": "bool"}, "output_key": "a"},
        {"id": "again", "type": "set", "values": {"tried": True}},
        {"id": "paid", "type": "end", "result": "{{ q }}"},
        {"id": "denied", "type": "end", "failed": "denied"},
    ],
    "edges": [
        {"from": "quote", "to": "approve"},
        {"from": "approve", "to": "paid", "conditions": [{"key": "a.ok", "value": True}]},
        {"from": "approve", "to": "again", "default": True},
        {"from": "again", "to": "quote", "conditions": [{"key": "input.order", "value": "never"}]},
        {"from": "again", "to": "denied", "default": True},
    ],
}
TABS: Final = ("", "journal", "state", "ledger", "family", "graph", "logs", "diff")


class Stage:
    """An app whose clock can be set forward, and a client of its page."""

    def __init__(self, mask: tuple[str, ...] = (), **user: Any) -> None:
        self.clock = ShiftedClock()
        self.store = holdfast.open("memory:", clock=self.clock)
        self.app = App(self.store)
        self.client = client_of(self.app, mask, **user)

    def close(self) -> None:
        self.client.close()
        self.app.close()
        self.store.close()

    def get(self, path: str, status: int = 200) -> Page:
        """A page, checked."""
        answer = self.client.get(path)
        assert answer.status_code == status, (path, answer.status_code, answer.text[-1500:])
        return Page(answer.text)

    def run(self, run_id: str, tab: str = "", query: str = "", status: int = 200) -> Page:
        return self.get(run_path(run_id, tab) + (f"?{query}" if query else ""), status)


def client_of(app: App, mask: tuple[str, ...] = (), **user: Any) -> TestClient:
    person = User(**{"name": "ana", "role": "operator", **user})
    return TestClient(asgi(app, user=lambda _: person, mask=mask), base_url="http://localhost")


def run_path(run_id: str, tab: str = "") -> str:
    return f"/runs/{quote(run_id, safe='')}" + (f"/{tab}" if tab else "")


def links_with(page: Page, *parts: str) -> list[str]:
    """The links of a page that contain all these texts."""
    return [link for link in page.links if all(part in link for part in parts)]


_INLINE: Final = frozenset(["a", "code", "del", "em", "ins", "mark", "span", "strong", "time", "title"])
_VOID: Final = frozenset(["area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "track", "wbr"])


class Page(HTMLParser):
    """The text of a page. Reading it checks that tags are closed, ids are unique, and references have a target."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = source
        self.links: list[str] = []
        self.forms: list[str] = []
        self._open: list[str] = []
        self._ids: list[str] = []
        self._wanted: list[str] = []
        self._texts: list[str] = []
        self.feed(source)
        self.close()
        assert self._open == [], self._open
        assert len(set(self._ids)) == len(self._ids), sorted(name for name in self._ids if self._ids.count(name) > 1)
        assert set(self._wanted) <= set(self._ids), set(self._wanted) - set(self._ids)

    @property
    def text(self) -> str:
        """What a reader sees, with single spaces."""
        return " ".join("".join(self._texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        assert "style" not in given, tag
        assert not any(name.startswith("on") for name in given), given
        assert tag != "style"
        assert tag != "script" or "src" in given
        if tag == "a":
            self.links.append(given["href"])
        if tag == "form" and given.get("method") == "post":
            self.forms.append(given["action"])
        self._ids += [given["id"]] if "id" in given else []
        self._wanted += [given["for"]] if tag == "label" and "for" in given else []
        for name in ("aria-describedby", "aria-labelledby", "list"):
            self._wanted += given.get(name, "").split()
        if tag not in _VOID:
            self._open.append(tag)
        self._texts += [] if tag in _INLINE else [" "]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1:] == [tag], (tag, self._open[-5:], self.getpos())
        self._open.pop()
        self._texts += [] if tag in _INLINE else [" "]

    def handle_data(self, data: str) -> None:
        self._texts.append(data)


# --- workflows -------------------------------------------------------------------------------------------------------


def say(word: str) -> str:
    return word


def fail(word: str) -> str:
    raise ValueError(f"no {word}")


def doubtful(amount: int, idempotency_key: str) -> None:
    raise holdfast.InDoubt("the bank did not answer")


def pay(order: str, amount: int) -> dict[str, Any]:
    return {"receipt": order, "amount": amount}


def take_back(result: Any, order: str, amount: int) -> None: ...


def fill(stage: Stage) -> list[str]:
    """Make runs of every kind; their ids."""
    _register(stage.app)
    app, clock = stage.app, stage.clock
    app.start("steps", HOSTILE, run_id=f"steps {HOSTILE}", metadata={"team": HOSTILE, "n": 1})
    app.start("failing", run_id="failing")
    app.start("doubt", run_id="doubt")
    app.start("gates", run_id="gates")
    app.start("gates", run_id="answered")
    clock.advance(3 * 86_400)
    app.answer("answered", {"ok": True}, by="ben")
    app.start("sleeping", run_id="sleeping")
    app.start("sleeping", run_id="later", after=86_400)
    app.start("waiting", run_id="waiting")
    app.start("parent", run_id="parent")
    app.start("parallel", run_id="parallel")
    app.start("agent", 12, run_id="agent")
    app.start("refund", "A-17", run_id="rolled-back")
    app.answer("rolled-back", {"ok": True}, by="ana")
    app.rollback("rolled-back", to="ask#1", by="carl")
    app.start("refund", "A-18", run_id="forked")
    app.fork("forked", "a/fork", at="ask#1", update={"order": "B"})
    app.start("declared", {"order": "A-19"}, run_id="declared")
    app.start("declared", {"order": "A-20"}, run_id="declared-failed")
    app.answer("declared-failed", {"ok": False}, by="ben")
    app.start("sleeping", run_id="paused")
    app.pause("paused", by="carl")
    app.start("sleeping", run_id="cancelled")
    app.cancel("cancelled", by="carl")
    app.start("steps", "x", run_id="queued", enqueue=True)
    app.cancel("queued", by="ben", enqueue=True)
    stage.store.save("by-hand", {"turn": 1, "text": "a\nb"}, metadata={"note": "first"})
    stage.store.append("by-hand", [{"kind": "note", "text": HOSTILE}])
    stage.store.save("by-hand", {"turn": 2, "text": "a\nc"})
    stage.store.mark_intent("by-hand", "effect-1", tool="mail")
    return [run.run_id for run in stage.store.runs(limit=100)]


def _register(app: App) -> None:
    app.undo(take_back)

    @app.function
    def price(order: str) -> int:
        return 40

    app.graph(GRAPH)

    @app.workflow
    def steps(run: Any, word: str) -> str:
        run.log(f"hello {HOSTILE}", level="warning", n=1)
        run.state["word"] = {"text": run.step(say, word), "list": [1, 2.5, None, True, (1, 2)]}
        run.checkpoint()
        run.state["word"]["more"] = "x" * 5_000
        run.checkpoint()
        return word

    @app.workflow
    def failing(run: Any) -> object:
        return run.step(fail, HOSTILE, retry=holdfast.Retry(attempts=2, initial_delay=0.001))

    @app.workflow
    def doubt(run: Any) -> object:
        return run.effect(doubtful, 1250)

    @app.workflow
    def gates(run: Any) -> object:
        return run.ask(f"Sure {HOSTILE}?", {"ok": bool}, show={"draft": HOSTILE}, expires=86_400 * 30)

    @app.workflow
    def sleeping(run: Any) -> None:
        run.sleep(86_400)

    @app.workflow
    def waiting(run: Any) -> object:
        return run.wait_for("shipped", timeout=3_600)

    @app.workflow
    def child(run: Any, name: str) -> str:
        return str(run.ask(f"Import {name}?", str))

    @app.workflow
    def parent(run: Any) -> object:
        return run.child(child, "lamps")

    @app.workflow
    def parallel(run: Any) -> object:
        return run.map(len, ["a", "bb"]), run.gather(lambda r: r.step(say, "a"), lambda r: r.ask("b?", bool))

    @app.workflow
    def agent(run: Any, turns: int) -> object:
        for turn in run.loop():
            run.state["turn"] = run.step(say, f"thought {turn}")
            if turn >= turns:
                return run.ask("Enough?", bool)
        return None

    @app.workflow
    def refund(run: Any, order: str) -> object:
        run.state["order"] = run.step(say, order)
        run.checkpoint()
        answer = run.ask("Refund?", {"ok": bool})
        run.state["answer"] = answer
        return run.effect(pay, order, 40, undo=take_back)

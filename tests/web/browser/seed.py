"""A store with runs of all kinds, as the tests of the page, the screenshots and the load test see it.

The runs are executed with a clock that is set back, so that they are hours old.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import random
from pathlib import Path
from typing import Any, Final

from examples.research import app as research

import holdfast
from holdfast import App, Run, Store, field
from holdfast.clock import SystemClock

HOUR: Final = 3600.0
GATES: Final = ("refund-4711", "refund-4712", "letter-9", "supplier-31", "payroll-11", "night-import", "question-7")
"""Runs with an open gate."""


class PastClock(SystemClock):
    """The machine's clock, set back by hours until it has caught up."""

    def __init__(self, back_s: float) -> None:
        super().__init__()
        self._back_us = int(back_s * 1e6)

    def now_us(self) -> int:
        return super().now_us() - self._back_us

    def advance(self, seconds: float) -> None:
        self._back_us = max(0, self._back_us - int(seconds * 1e6))


@dataclasses.dataclass
class Address:
    """A nested object of a form."""

    street: str
    city: str
    floor: int = 0


# --- the functions of the workflows ----------------------------------------------------------------------------------


def price(order: str) -> dict[str, Any]:
    return {"order": order, "amount": 39.9, "currency": "EUR", "customer": {"name": "Ida Brandt", "iban": "DE02 1203"}}


def pay(order: str, amount: float, idempotency_key: str) -> dict[str, str]:
    return {"receipt": f"R-{idempotency_key[:8]}"}


def take_back(receipt: dict[str, str], order: str, amount: float) -> None: ...


def send_money(supplier: str, amount: float, idempotency_key: str) -> None:
    raise holdfast.InDoubt("the bank closed the connection after 30 s")


def write_mail(to: str, text: str) -> dict[str, str]:
    return {"to": to, "id": "M-88"}


def search(query: str) -> list[str]:
    return [f"{query}: result {number}" for number in range(3)]


def reply(turn: int) -> dict[str, str]:
    chance = random.Random(turn)
    words = ("parcel", "lost", "hub", "refund", "order", "customer", "carrier", "address", "late")
    return {"role": "assistant", "content": " ".join(chance.choice(words) for _ in range(12))}


def read_rates() -> dict[str, float]:
    raise ConnectionError("rates.example answered 503")


def measure(item: str) -> int:
    return len(item)


# --- the workflows ---------------------------------------------------------------------------------------------------


def refund(run: Run, order: str) -> str:
    """Pay an order back, after a person has approved it."""
    found = run.step(price, order)
    run.state["order"] = found
    run.log("priced", amount=found["amount"])
    run.checkpoint()
    answer = run.ask(
        f"Refund **{found['amount']:.2f} EUR** for order `{order}`?\n\n"
        "The parcel is *lost*. See the [terms](https://shop.example/terms).\n\n- paid by card\n- delivered: no",
        {"approve": bool, "note": field(str, default="", required=False, help="The customer reads this.")},
        show=found,
        who=["ana", "ben", "demo"],
        expires=3 * 24 * HOUR,
    )
    run.state["approved"] = answer["approve"]
    if not answer["approve"]:
        return "denied"
    receipt = run.effect(pay, order, found["amount"], undo=take_back)
    run.state["receipt"] = receipt["receipt"]
    run.checkpoint()
    run.effect(write_mail, "ida@example.org", "Your money is on its way.")
    return str(receipt["receipt"])


def letter(run: Run, topic: str) -> str:
    """Ask with a form that has every kind of field."""
    answer = run.ask(
        f"How shall the letter about {topic} be sent?",
        {
            "send": field(bool, label="Send it"),
            "tone": field(str, choices={"plain": "Plain", "proud": "Proud", "sorry": "Sorry"}, label="Tone"),
            "parts": field(list[str], choices=["greeting", "reasons", "offer"], default=["greeting"], label="Parts"),
            "copies": field(int, minimum=1, maximum=5, default=1, label="Copies", help="1 to 5"),
            "discount": field(float, minimum=0, maximum=0.5, required=False, label="Discount"),
            "on": field(dt.date, required=False, label="Send on"),
            "at": field(dt.datetime, required=False, label="Exact time"),
            "subject": field(str, min_length=3, max_length=60, label="Subject"),
            "text": field(str, multiline=True, required=False, label="Text"),
            "tags": field(list[str], required=False, label="Tags"),
            "address": field(Address, required=False, label="Address"),
        },
        show={"draft": "Dear Ida,\n\nwe are sorry.", "topic": topic},
    )
    return str(answer["subject"])


def pay_supplier(run: Run, supplier: str, amount: float) -> object:
    """An effect whose outcome is unknown: a person is asked."""
    return run.effect(send_money, supplier, amount)


def payroll(run: Run, month: str) -> bool:
    """Two people must approve, and not the one who asked."""
    total = run.step(lambda: 84_120.55, name="sum_salaries")
    answer = run.ask(
        f"Pay the salaries of {month}?",
        {"approve": bool},
        show={"total": total, "people": 31},
        who="group:finance",
        not_by="carl",
        approvals=2,
        escalate=[(2 * HOUR, "group:leads")],
    )
    return bool(answer["approve"])


def agent(run: Run, question: str, turns: int) -> str:
    """A loop, as an agent has it."""
    run.state["messages"] = [{"role": "user", "content": question}]
    for turn in run.loop():
        run.state["messages"] = [*run.state["messages"][-19:], run.step(reply, turn)]
        if turn % 10 == 9:
            run.step(search, f"turn {turn}")
        if turn >= turns:
            return f"done after {turn} turns"
    raise AssertionError("the loop ends with a return")


def import_catalog(run: Run, files: list[str]) -> list[Any]:
    """A parent with children, and calls in parallel."""
    run.map(measure, files)
    return run.gather(*[lambda r, name=name: r.child("import_file", name, key=f"file-{name}") for name in files])


def import_file(run: Run, name: str) -> int:
    """A child: it asks if the file is doubtful."""
    rows = run.step(measure, name)
    if name.startswith("x"):
        run.ask(f"Import {name}, which has {rows} unknown columns?", bool)
    return rows


def convert(run: Run, amount: float) -> float:
    """A run that fails."""
    run.effect(write_mail, "team@example.org", "The conversion begins.")
    rates = run.step(read_rates, retry=holdfast.Retry(attempts=2, initial_delay=0.001))
    return amount * float(rates["eur"])


def remind(run: Run, days: int) -> str:
    """A run that waits for a timer, and one that waits for an event."""
    if days:
        run.sleep(days * 24 * HOUR)
    return str(run.wait_for("shipped", timeout=None))


WORKFLOWS: Final = (refund, letter, pay_supplier, payroll, agent, import_catalog, import_file, convert, remind)


def app_on(store: Store | str) -> App:
    """An app with all workflows of the seed."""
    app = App(store)
    app.undo(take_back)
    for workflow in WORKFLOWS:
        app.workflow(workflow)
    for function in (research.think, research.use_tool, research.remember, research.write):
        app.function(function)
    return app


def seed(url: str, *, langgraph: bool = False) -> None:
    """Fill a store: more than twelve runs of all kinds, from yesterday until now."""
    clock = PastClock(26 * HOUR)
    with holdfast.open(url, clock=clock) as store, app_on(store) as app:
        app.graph(Path(research.__file__).with_name("flow.yaml"))
        _completed_runs(app, clock)
        _waiting_runs(app, clock)
        _other_runs(app, clock)
        publish = getattr(app, "publish_workflows", None)
        if publish is not None:
            publish()
    if langgraph:
        _thread(url)


def _completed_runs(app: App, clock: PastClock) -> None:
    app.start("agent", "Where is my parcel?", 14, run_id="agent-long", metadata={"team": "support", "tier": 1})
    clock.advance(2 * HOUR)
    support = {"team": "support", "customer": "C-88"}
    app.start("refund", "4700", run_id="refund-4700", metadata=support)
    clock.advance(0.5 * HOUR)
    app.answer("refund-4700", {"approve": True, "note": "lost"}, by="ana")
    clock.advance(1 * HOUR)
    app.rollback("refund-4700", to="ask#1", by="carl", force=True)  # the mail cannot be taken back
    clock.advance(0.2 * HOUR)
    app.answer("refund-4700", {"approve": False, "note": "it arrived"}, by="ben")
    app.start("refund", "4701", run_id="refund-4701", metadata=support)
    clock.advance(1 * HOUR)
    app.answer("refund-4701", {"approve": True, "note": ""}, by="ana")
    app.fork("refund-4701", "refund-4701-fork", at="ask#1", update={"order.amount": 20.0})


def _waiting_runs(app: App, clock: PastClock) -> None:
    clock.advance(1 * HOUR)
    app.start("import_catalog", ["lamps.csv", "xylophones.csv", "chairs.csv"], run_id="night-import")
    clock.advance(2 * HOUR)
    app.start("pay_supplier", "Lumen AG", 1250.0, run_id="supplier-31", metadata={"team": "finance"})
    clock.advance(2 * HOUR)
    app.start("payroll", "November", run_id="payroll-11", metadata={"team": "finance"})
    app.start("refund", "4711", run_id="refund-4711", metadata={"team": "support", "customer": "C-90"})
    clock.advance(2 * HOUR)
    app.start("refund", "4712", run_id="refund-4712", metadata={"team": "support", "customer": "C-91"})
    app.start("letter", "the delay", run_id="letter-9")
    app.start("research", {"question": "solar lamps"}, run_id="question-7")


def _other_runs(app: App, clock: PastClock) -> None:
    app.start("convert", 12.5, run_id="convert-3", metadata={"team": "finance"})
    clock.advance(4 * HOUR)
    app.start("remind", 3, run_id="reminder-1")
    app.start("remind", 0, run_id="shipment-5")
    app.start("remind", 0, run_id="shipment-6")
    app.cancel("shipment-6", by="ben")
    app.start("remind", 1, run_id="reminder-2")
    app.pause("reminder-2", by="carl")
    clock.advance(20 * HOUR)
    app.start("refund", "4799", run_id="refund-4799", enqueue=True)
    app.cancel("refund-4799", by="ana", enqueue=True)


def _thread(url: str) -> None:
    """A LangGraph thread that waits at an interrupt."""
    from typing import TypedDict

    from langgraph.graph import START, StateGraph
    from langgraph.types import interrupt

    from holdfast.adapters.langgraph import HoldfastSaver

    class State(TypedDict, total=False):
        draft: str
        approved: bool

    builder = StateGraph(State)
    builder.add_node("write", lambda state: {"draft": "Dear Ida"})
    builder.add_node(
        "approve", lambda state: {"approved": interrupt({"question": "Send it?", "draft": state["draft"]})}
    )
    builder.add_edge(START, "write")
    builder.add_edge("write", "approve")
    with HoldfastSaver(url) as saver:
        graph = builder.compile(checkpointer=saver)
        graph.invoke({}, {"configurable": {"thread_id": "thread-1"}})

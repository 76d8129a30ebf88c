"""The demo's agent: a scripted model, tools, a bank that keeps a book, and the workflow that ties them together."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Final

import holdfast

ORDER: Final = "A-17"
RUN_ID: Final = "order-17"
BANK_S: Final = 1.0
"""How long the bank takes to hand out its receipt, after it has paid."""


def app_in(directory: str) -> holdfast.App:
    """The app: what every process of the demo makes anew."""
    app = holdfast.App(f"sqlite:{Path(directory) / 'runs.db'}")
    book = Path(directory) / "bank.jsonl"

    def pay(order: str, amount: float, idempotency_key: str) -> dict[str, Any]:
        """Move money. The bank writes its book at once and is slow with the receipt."""
        line = json.dumps({"order": order, "amount": amount, "reference": idempotency_key[:8]})
        with open(book, "a") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        time.sleep(BANK_S)
        return {"receipt": f"R-{idempotency_key[:8]}"}

    def look_into_the_book(order: str, amount: float) -> Any:
        """What the bank says about a payment nobody got the receipt of."""
        for payment in payments(directory):
            if payment["order"] == order and payment["amount"] == amount:
                return holdfast.Happened({"receipt": f"R-{payment['reference']}"})
        return holdfast.DidNotHappen

    @app.workflow
    def support_agent(run: holdfast.Run, question: str) -> str:
        messages = run.state.setdefault("messages", [{"role": "user", "content": question}])
        for _turn in run.loop():
            messages = run.state["messages"]
            reply = run.step(model, messages)
            messages.append(reply)
            if "tool" not in reply:
                return str(reply["content"])
            if reply["tool"] == "refund":
                order, amount = reply["args"]
                answer = run.ask(
                    f"Refund {amount:.2f} EUR for order {order}?",
                    {"approve": bool, "note": holdfast.field(str, default="", required=False)},
                    show=reply["args"],
                )
                if answer["approve"]:
                    result: Any = run.effect(pay, order, amount, check=look_into_the_book)
                else:
                    result = f"refused: {answer['note']}"
            else:
                result = run.step(TOOLS[reply["tool"]], *reply["args"])
            messages.append({"role": "tool", "content": result})
        raise AssertionError("a loop ends by break or return")

    return app


def payments(directory: str) -> list[dict[str, Any]]:
    """The bank's book."""
    book = Path(directory) / "bank.jsonl"
    return [json.loads(line) for line in book.read_text().splitlines()] if book.exists() else []


# --- the model, and tools that only look ---------------------------------------------------------------------------


def model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """What a language model would say, from a script."""
    time.sleep(0.15)
    results = [message["content"] for message in messages if message["role"] == "tool"]
    if not results:
        return {"role": "assistant", "content": "Let me look at the order.", "tool": "find_order", "args": [ORDER]}
    if len(results) == 1:
        return {"role": "assistant", "content": "Where is the parcel?", "tool": "track", "args": [results[0]["parcel"]]}
    if len(results) == 2:
        amount = results[0]["paid"]
        return {"role": "assistant", "content": "It is lost.", "tool": "refund", "args": [ORDER, amount]}
    if isinstance(results[-1], dict):
        return {"role": "assistant", "content": f"Your money is on its way, receipt {results[-1]['receipt']}."}
    return {"role": "assistant", "content": f"I am sorry, your refund was {results[-1]}."}


def find_order(order: str) -> dict[str, Any]:
    """A look into the shop's database."""
    return {"order": order, "item": "lamp", "paid": 39.90, "parcel": "P-2201"}


def track(parcel: str) -> dict[str, Any]:
    """A call to the carrier."""
    return {"parcel": parcel, "status": "lost between hub and city", "since_days": 12}


TOOLS: Final = {"find_order": find_order, "track": track}

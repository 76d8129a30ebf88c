"""The functions of flow.yaml. Payments and mails are lines in a file; replace them with your own services."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import holdfast

LEDGER = Path("payments.jsonl")


def make(url: str) -> holdfast.App:
    """Create the app for a store."""
    app = holdfast.App(url)
    for function in (price, pay, tell_customer):
        app.function(function)
    app.undo(take_back)
    return app


def price(order: str) -> dict[str, Any]:
    """Return the price of the order. Orders that begin with A are expensive, all others cheap."""
    return {"order": order, "amount": 140 if order.startswith("A") else 20, "currency": "EUR"}


def pay(order: str, amount: int, idempotency_key: str) -> dict[str, Any]:
    """Refund the order. A real service would receive the key, and would not pay twice for the same key."""
    receipt = hashlib.sha256(idempotency_key.encode()).hexdigest()[:8]
    _note({"paid": amount, "order": order, "receipt": receipt})
    return {"id": receipt}


def take_back(receipt: dict[str, Any], order: str, amount: int) -> None:
    """Undo a payment."""
    _note({"taken back": amount, "order": order, "receipt": receipt["id"]})


def tell_customer(order: str, receipt: str) -> None:
    """Write to the customer. Order A-13 has an invalid address."""
    if order == "A-13":
        raise ConnectionRefusedError("the mail server refuses this address")  # proves that nothing was sent
    _note({"told": order, "receipt": receipt})


def _note(line: dict[str, Any]) -> None:
    with LEDGER.open("a") as file:
        file.write(json.dumps(line) + "\n")

"""The functions of flow.yaml. The mail service here fails often: every third account once, every eleventh always."""

from __future__ import annotations

import collections
from typing import Any

import holdfast

_tries: collections.Counter[str] = collections.Counter()


def make(url: str) -> holdfast.App:
    """Create the app for a store."""
    app = holdfast.App(url)
    for function in (due, send_invoice, report):
        app.function(function)
    return app


def due(day: str, count: int) -> list[str]:
    """Return the accounts that get an invoice."""
    return [f"{day}/account-{number}" for number in range(1, count + 1)]


def send_invoice(account: str, day: str, number: int, idempotency_key: str) -> str:
    """Send one invoice. The mail service would be given the key, so that a retry does not send a second mail."""
    _tries[idempotency_key] += 1
    which = number + 1
    if which % 11 == 0:
        raise LookupError(f"no such mailbox: {account}")
    if which % 3 == 0 and _tries[idempotency_key] == 1:
        raise TimeoutError("the mail service is busy")
    return f"{day}-{which:04}"


def report(day: str, sent: list[Any]) -> dict[str, Any]:
    """Return the result of the night."""
    good = [number for number in sent if number is not None]
    return {"day": day, "sent": len(good), "failed": len(sent) - len(good)}

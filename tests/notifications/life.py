"""A process that announces until nothing is left, and kills itself at a point: `python -m tests.notifications.life`.

A point is before and after every commit, and before and after every request.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import holdfast
from holdfast.notifications import Notifications, Webhook, webhook

_points = 0
_kill_at = -1


def around(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call with a point before and after it."""

    def wrapped(*given: Any, **options: Any) -> Any:
        point()
        result = call(*given, **options)
        point()
        return result

    return wrapped


def point() -> None:
    global _points
    if _points == _kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    _points += 1


def live(url: str, hooks: dict[str, str], kill_at: int) -> None:
    """Announce to these targets."""
    global _kill_at
    _kill_at = kill_at
    port = holdfast.open(url).port
    port.commit = around(port.commit)  # type: ignore[method-assign]
    port.claim_ready = around(port.claim_ready)  # type: ignore[method-assign]
    webhook.post = around(webhook.post)
    with holdfast.Store(port) as store, holdfast.App(store) as app:
        targets = [Webhook(name, hook, secret_env="HOOK_SECRET") for name, hook in hooks.items()]
        Notifications(app, targets, base_url="https://page.example", concurrency=1).run(until_idle=True)


if __name__ == "__main__":
    live(**json.loads(sys.argv[1]))

"""`notifications`: test targets and list what was not delivered. Workers and the page announce with `notifying`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from shlex import quote
from typing import TYPE_CHECKING

import click

from holdfast.cli import exit_codes
from holdfast.cli.session import Session
from holdfast.cli.settings import notifications_settings
from holdfast.errors import InvalidInput

if TYPE_CHECKING:
    from holdfast.notifications import Notifications
    from holdfast.runtime.app import App


def configured(app: App) -> Notifications | None:
    """The notifications of pyproject.toml for the store of this app; None if there are none."""
    found = notifications_settings()
    if found is None:
        return None
    from pathlib import Path

    from holdfast.notifications import from_settings

    return from_settings(app, found[0], Path(found[1]))


@contextlib.contextmanager
def notifying(app: App, *, until_idle: bool = False) -> Iterator[None]:
    """Announce gates and failures meanwhile, if notifications are configured; with `until_idle`, once at the end."""
    notifications = configured(app)
    if notifications is None:
        yield
        return
    if until_idle:
        yield
        notifications.run(until_idle=True)
        return
    with notifications:
        yield


def _unavailable() -> dict[str, str]:
    """The targets that a process with this environment cannot send to, with the reason."""
    from holdfast.runtime.app import App

    with App("memory:") as app:
        found = configured(app)
        return {} if found is None else found.unavailable


@click.group("notifications")
def notifications_command() -> None:
    """Test targets of notifications, and list undelivered ones.

    Targets are configured in pyproject.toml, in [tool.holdfast.notifications]. A worker and the page announce open
    gates and failed runs to them.

    \b
    Examples:
      holdfast notifications test ops
      holdfast notifications status
    """


@notifications_command.command("test")
@click.argument("target", metavar="TARGET")
@click.pass_obj
def send_test(session: Session, target: str) -> int:
    """Send a test message to a target, once.

    The exit code is 1 if it was not delivered.

    \b
    Examples:
      holdfast notifications test ops
    """
    from holdfast.runtime.app import App

    with App("memory:") as app:  # a test message is about no run
        notifications = configured(app)
        if notifications is None:
            raise InvalidInput("no notifications are configured; add [tool.holdfast.notifications] to pyproject.toml")
        attempt = notifications.test(target)
    is_delivered = attempt.state == "delivered"
    if session.json:
        session.out.give({"target": target, "delivered": is_delivered, "reason": attempt.reason})
    elif is_delivered:
        session.say(f"{target}: delivered" + (f"; {attempt.reason}" if attempt.reason else ""))
    else:
        session.say(session.out.styled(f"{target}: not delivered: {attempt.reason}", fg="red"))
    return exit_codes.OK if is_delivered else exit_codes.ERROR


@notifications_command.command("status")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="The maximum number.")
@click.pass_obj
def list_undelivered(session: Session, limit: int) -> int:
    """List the notifications that were not delivered, newest first.

    Those with a next attempt are sent again by themselves; a failed one is not. A target whose secret is missing here
    is named, too.

    \b
    Examples:
      holdfast notifications status
      holdfast notifications status --json
    """
    from holdfast.inspect.views import as_data
    from holdfast.notifications.undelivered import read_undelivered

    found = read_undelivered(session.store(), limit)
    missing = _unavailable()
    if session.json:
        problems = [{"target": name, "reason": reason} for name, reason in missing.items()]
        session.out.give({"undelivered": as_data(found), "unavailable": problems})
        return exit_codes.OK
    for reason in missing.values():
        session.out.note(f"not sent by processes with this environment: {reason}")
    if not found:
        session.out.note("every notification was delivered")
        return exit_codes.OK
    time = session.out.time
    rows = [
        (one.notification, one.status, one.event, one.target, one.run_id, one.attempts, time(one.next_at), one.reason)
        for one in found
    ]
    headers = ("NOTIFICATION", "STATUS", "EVENT", "TARGET", "RUN", "ATTEMPTS", "NEXT", "REASON")
    session.out.table(headers, rows, status=1)
    failed = next((one for one in found if one.status == "failed"), None)
    if failed is not None:
        session.out.note(f"try again: holdfast retry {quote(failed.notification)}")
    return exit_codes.OK

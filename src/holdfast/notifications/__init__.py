"""Notifications about gates and failed runs: signed webhooks, Slack and e-mail.

Each notification is itself a run, so it survives crashes, is sent at least once and has the same id in every attempt.
A message contains a link to the page, never an action.
"""

from __future__ import annotations

from holdfast.notifications.configuration import from_settings
from holdfast.notifications.delivery import Attempt, NotDelivered, Target
from holdfast.notifications.message import Message
from holdfast.notifications.notifier import Notifications
from holdfast.notifications.smtp import Email
from holdfast.notifications.undelivered import Undelivered
from holdfast.notifications.webhook import Slack, Webhook, verify_signature

__all__ = [
    "Attempt",
    "Email",
    "Message",
    "NotDelivered",
    "Notifications",
    "Slack",
    "Target",
    "Undelivered",
    "Webhook",
    "from_settings",
    "verify_signature",
]

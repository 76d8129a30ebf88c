"""Secrets are in no file of the store, no log line, no error and no report, whatever goes wrong."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import holdfast
from holdfast.notifications import Email, Slack, Webhook
from holdfast.notifications.webhook import sign
from tests.notifications.flows import register
from tests.notifications.receivers import Action, MailServer, Receiver
from tests.notifications.test_notifications import notifications

SECRETS = {
    "HOOK_SECRET": "hook-secret-0f8e7d6c5b4a",
    "SLACK_PATH": "/services/T0001/slack-secret-9a8b7c",
    "MAIL_PASSWORD": "mail-secret-1a2b3c4d",
}


@pytest.mark.parametrize("scheme", ["sqlite", "dir"])
@pytest.mark.parametrize("action", [204, 302, 404, 500, "drop", "garbage"])
def test_secrets_are_neither_stored_nor_logged(
    tmp_path: Path, scheme: str, action: Action, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with Receiver(*[action] * 8) as receiver, MailServer() as mail:
        slack_url = f"http://127.0.0.1:{receiver.port}{SECRETS['SLACK_PATH']}"
        monkeypatch.setenv("HOOK_SECRET", SECRETS["HOOK_SECRET"])
        monkeypatch.setenv("SLACK_URL", slack_url)
        monkeypatch.setenv("MAIL_PASSWORD", SECRETS["MAIL_PASSWORD"])
        if action != 204:  # a server that repeats what it was sent
            mail.replies = [("AUTH", f"535 wrong password {SECRETS['MAIL_PASSWORD']}")] * 8
        targets = (
            Webhook("hook", receiver.url, secret_env="HOOK_SECRET"),
            Slack("chat", url_env="SLACK_URL"),
            Email(
                "mail", to=("ana@example.org",), sender="h@example.org", host="127.0.0.1", port=mail.port,
                security="none", username="hold", password_env="MAIL_PASSWORD",
            ),
        )  # fmt: skip
        with holdfast.App(f"{scheme}:{tmp_path / 'runs'}") as app:
            register(app)
            one = notifications(app, *targets, retry_s=(0.0,))
            app.start("asks", run_id="r")
            one.run(until_idle=True)
            left = one.undelivered()
            assert len(left) == (0 if action == 204 else 3)
            shown = repr(left) + repr(targets) + repr(one) + "".join(one.test(name).reason for name in one.targets)
            for run in app.runs():
                shown += repr(run) + repr(app.store.journal(run.run_id)) + repr(app.store.effects(run.run_id))
        assert len(receiver.requests) >= 2
    signatures = [request.headers["Holdfast-Signature"] for request in receiver.requests if request.path == "/hook"]
    assert signatures
    assert sign(SECRETS["HOOK_SECRET"], b"") not in signatures
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"notify/" in stored
    for secret in (*SECRETS.values(), *signatures):
        assert secret.encode() not in stored
        assert secret not in shown
        assert secret not in caplog.text

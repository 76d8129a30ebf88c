"""Targets from TOML, which names secrets and never contains them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import InvalidInput
from holdfast.notifications import Email, Slack, Webhook, from_settings

WHOLE = """
base_url = "https://page.example/holdfast/"
events = ["gate_opened", "run_failed"]
expiring_s = 600
workflows = ["refund*"]
mask = ["customer.iban"]
keep_days = 7

[[targets]]
kind = "webhook"
name = "ops"
url = "https://example.org/hook"
secret_file = "secret"
events = ["run_failed"]
workflows = ["*"]
include_show = true
timeout_s = 3

[[targets]]
kind = "slack"
name = "chat"
url_env = "SLACK_URL"

[[targets]]
kind = "email"
name = "mail"
to = ["ana@example.org"]
sender = "holdfast@example.org"
host = "smtp.example.org"
username = "holdfast"
password_env = "MAIL_PASSWORD"
"""


TARGET = 'base_url = "https://x"\n[[targets]]\n'


@pytest.fixture(autouse=True)
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("a secret of some length\n")
    monkeypatch.setenv("SLACK_URL", "https://hooks.slack.com/services/T/B/x")
    monkeypatch.setenv("MAIL_PASSWORD", "password")


def load(text: str, folder: Path) -> Any:
    with holdfast.App("memory:") as app:
        return from_settings(app, tomllib.loads(text), folder)


def test_a_table_describes_everything(tmp_path: Path) -> None:
    found = load(WHOLE, tmp_path)
    ops, chat, mail = found._targets.values()
    assert isinstance(ops, Webhook)
    assert isinstance(chat, Slack)
    assert isinstance(mail, Email)
    assert (ops.secret_file, ops.timeout_s, ops.include_show) == (str(tmp_path / "secret"), 3.0, True)
    assert (ops.events, ops.workflows) == (("run_failed",), ("*",))
    assert mail.to == ("ana@example.org",)
    assert found._events == ("gate_opened", "run_failed")
    assert found._workflows == ("refund*",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "base_url"),
        ('base_url = "https://x"\ncolour = 1', "colour"),
        ('base_url = "https://x"\nexpiring_s = "1 h"', "expiring_s"),
        ('base_url = "https://x"\nevents = ["opened"]', "is not one of gate_opened"),
        ('base_url = "https://x"\ntargets = "ops"', r"\[\[tool.holdfast.notifications.targets\]\]"),
        (TARGET + 'name = "a"', "webhook, slack, email"),
        (TARGET + 'kind = "sms"\nname = "a"', "webhook, slack, email"),
        (TARGET + 'kind = "webhook"\nname = "a"\nurll = "x"', "'urll', which is not a setting"),
        (TARGET + 'kind = "webhook"\nname = "a"\nsecret = "s3cr3t"', "secret_env"),
        (TARGET + 'kind = "email"\nname = "a"\npassword = "s3cr3t"', "password_env"),
        (TARGET + 'kind = "slack"\nname = "a"\nsecret = "s3cr3t"', "url_env"),
        (TARGET + 'kind = "slack"\nname = "a"\nurl = "https://hooks.slack.com/s3cr3t"', "url_env"),
        (TARGET + 'kind = "webhook"\nurl = "https://x"', "name"),
        (TARGET + 'kind = "webhook"\nname = "a"\nurl = "https://x"', "secret_env or secret_file"),
        (TARGET + 'kind = "webhook"\nname = "a"\nurl = 7', "url"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_with_its_place(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=words) as raised:
        load(text, tmp_path)
    assert "s3cr3t" not in str(raised.value)

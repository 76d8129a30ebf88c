"""Webhooks: signed, judged by their status, without redirects, and never waited for without end."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import socket
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import InvalidInput
from holdfast.notifications import Slack, Webhook, verify_signature
from holdfast.notifications.webhook import RETRY_AFTER_S_MAX, retry_after_s
from tests.notifications.receivers import Action, Receiver, tls
from tests.notifications.test_messages import message

SECRET = "a secret of more than sixteen characters"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)


def webhook(url: str, **options: Any) -> Webhook:
    return Webhook("ops", url, **{"secret_env": "HOOK_SECRET"} | options)


def test_a_request_is_signed_and_has_the_id_of_the_message() -> None:
    with Receiver() as receiver:
        assert webhook(receiver.url + "?a=b").send(message()).state == "delivered"
    (request,) = receiver.requests
    assert request.path == "/hook?a=b"
    assert request.headers["Idempotency-Key"] == request.headers["Holdfast-Event-Id"] == message().id
    assert request.headers["Content-Type"] == "application/json"
    assert request.data == message().payload(include_show=False)
    at, signature = (part.split("=")[1] for part in request.headers["Holdfast-Signature"].split(","))
    expected = hmac.new(SECRET.encode(), at.encode() + b"." + request.body, hashlib.sha256).hexdigest()
    assert signature == expected
    assert verify_signature(SECRET, request.headers["Holdfast-Signature"], request.body)


def test_a_signature_is_refused_if_anything_differs_or_it_is_old() -> None:
    with Receiver() as receiver:
        webhook(receiver.url).send(message())
    (request,) = receiver.requests
    header = request.headers["Holdfast-Signature"]
    assert not verify_signature("another secret of some length", header, request.body)
    assert not verify_signature(SECRET, header, request.body + b" ")
    sent_at = int(header.partition("t=")[2].partition(",")[0])
    for seconds in (301, -301):
        assert not verify_signature(SECRET, header, request.body, now=sent_at + seconds)
    for wrong in (
        "",
        "t=,v1=",
        "t=x,v1=y",
        header.replace("v1", "v0"),
        "v1=" + header.partition("v1=")[2],
        "t=1e9,v1=a",
    ):
        assert not verify_signature(SECRET, wrong, request.body)


@pytest.mark.parametrize(
    ("action", "state"),
    [
        (200, "delivered"), (204, "delivered"), (299, "delivered"),
        (301, "refused"), (307, "refused"), (400, "refused"), (401, "refused"), (404, "refused"), (410, "refused"),
        (408, "later"), (409, "later"), (425, "later"), (429, "later"), (500, "later"), (503, "later"), (600, "later"),
        ("drop", "later"), ("drip", "later"), ("garbage", "later"),
    ],
)  # fmt: skip
def test_the_response_decides(action: Action, state: str) -> None:
    with Receiver(action) as receiver:
        attempt = webhook(receiver.url, timeout_s=0.2 if action == "drip" else 10.0).send(message())
        assert attempt.state == state
        assert state == "delivered" or attempt.reason
        assert receiver.url not in attempt.reason


def test_a_redirect_is_not_followed() -> None:
    with Receiver() as other, Receiver((302, {"Location": other.url})) as receiver:
        assert "redirects are not followed" in webhook(receiver.url).send(message()).reason
        assert other.requests == []


def test_a_server_that_does_not_respond_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        attempt = webhook(f"http://127.0.0.1:{silent.getsockname()[1]}/", timeout_s=0.1).send(message())
    assert (attempt.state, attempt.reason) == ("later", "it timed out")


def test_a_server_that_is_not_there_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    assert webhook(f"http://127.0.0.1:{port}/").send(message()).reason == "the connection was refused"
    assert webhook("http://no-such-host.invalid/").send(message()).reason == "the host was not found"


def test_an_address_may_be_of_ipv6() -> None:
    attempt = webhook("http://[::1]/", timeout_s=1.0).send(message())
    assert attempt.state != "delivered"
    assert "ValueError" not in attempt.reason
    assert "InvalidURL" not in attempt.reason


def test_a_certificate_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tls(tmp_path) as (context, certificate), Receiver(context=context) as receiver:
        attempt = webhook(receiver.url).send(message())
        assert attempt.state == "later"
        assert "the certificate is not accepted" in attempt.reason
        assert receiver.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
        assert webhook(receiver.url).send(message()).state == "delivered"


def test_a_delay_that_the_target_asks_for_is_honoured_within_bounds() -> None:
    assert retry_after_s("17") == 17
    assert retry_after_s("99999999999999999999") == RETRY_AFTER_S_MAX
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1000)
    assert 0 < retry_after_s(format_datetime(soon, usegmt=True)) <= 1000
    past = dt.datetime(2001, 1, 1, tzinfo=dt.UTC)
    for text in (None, "", "-5", "soon", "1e9", format_datetime(past, usegmt=True), "Mon, 99 Foo 2001"):
        assert retry_after_s(text) == 0
    with Receiver((429, {"Retry-After": "120"})) as receiver:
        assert webhook(receiver.url).send(message()).after_s == 120


def test_the_address_and_the_secret_may_be_in_files_and_are_read_each_time(tmp_path: Path) -> None:
    secret, address = tmp_path / "secret", tmp_path / "url"
    with Receiver() as receiver:
        secret.write_text(SECRET + "\n")
        address.write_text(receiver.url + "\n")
        target = Webhook("ops", url_file=str(address), secret_file=str(secret))
        target.check()
        assert target.send(message()).state == "delivered"
        secret.write_text("another secret of some length")
        assert target.send(message()).state == "delivered"
        first, second = receiver.requests
        assert verify_signature(SECRET, first.headers["Holdfast-Signature"], first.body)
        assert verify_signature("another secret of some length", second.headers["Holdfast-Signature"], second.body)
        secret.unlink()
        assert target.send(message()).state == "later"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": ""}, "needs one of url, url_env and url_file"),
        ({"url_env": "X"}, "needs one of url, url_env and url_file"),
        ({"url": "ftp://x"}, "not an http or https address"),
        ({"url": "http://x:99999/"}, "not an http or https address"),
        ({"url": "http://x/ y"}, "not an http or https address"),
        ({"url": "http://x/\r\nEvil: 1"}, "not an http or https address"),
        ({"url": "https://user:pass@x/"}, "contains a name or a password"),
        ({"secret_env": "NOT_SET"}, "NOT_SET (secret_env) is not set"),
        ({"secret_env": ""}, "needs either secret_env or secret_file"),
        ({"secret_file": "/x"}, "needs either secret_env or secret_file"),
        ({"secret_env": "", "secret_file": "/no/such/file"}, "cannot be read"),
        ({"secret_env": "SHORT"}, "less than 16 characters"),
        ({"name": ""}, "must not be empty"),
        ({"events": ("opened",)}, "is not one of"),
        ({"timeout_s": 0}, "timeout_s"),
    ],
)
def test_a_wrong_target_is_refused(options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHORT", "s3cr3t")
    given = {"name": "ops", "url": "https://x/", "secret_env": "HOOK_SECRET"} | options
    with pytest.raises(InvalidInput) as raised:
        Webhook(**given).check()
    assert words in str(raised.value)
    assert "s3cr3t" not in str(raised.value)
    assert "pass@" not in str(raised.value)


def test_the_address_of_slack_is_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver(404) as receiver:
        monkeypatch.setenv("SLACK_URL", receiver.url + "/T000/secret-part")
        target = Slack("chat", url_env="SLACK_URL")
        target.check()
        attempt = target.send(message())
        assert attempt.state == "refused"
        assert "secret-part" not in attempt.reason + repr(target)
        assert receiver.requests[0].data["blocks"]
        monkeypatch.setenv("SLACK_URL", "secret-part")
        with pytest.raises(InvalidInput) as raised:
            target.check()
        assert "secret-part" not in str(raised.value)

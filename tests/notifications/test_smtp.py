"""E-mail: encrypted, with a password, and judged by the codes of the server."""

from __future__ import annotations

import email
import email.policy
import socket
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import InvalidInput
from holdfast.notifications import Attempt, Email
from tests.notifications.receivers import MailServer, tls
from tests.notifications.test_messages import message

PASSWORD = "correct horse battery"


def target(port: int = 1, **options: Any) -> Email:
    facts: dict[str, Any] = {
        "to": ("ana@example.org", "ben@example.org"), "sender": "holdfast@example.org", "host": "127.0.0.1",
        "port": port, "security": "none",
    }  # fmt: skip
    return Email("mail", **facts | options)


def test_a_mail_arrives_at_all_recipients_with_an_id_that_stays() -> None:
    with MailServer() as server:
        assert target(server.port).send(message()).state == "delivered"
        assert target(server.port).send(message()).state == "delivered"
    first, second = server.mails
    assert first.recipients == ["ana@example.org", "ben@example.org"]
    ids = [email.message_from_string(mail.text, policy=email.policy.default)["Message-ID"] for mail in (first, second)]
    assert ids == [f"<{message().id}@example.org>"] * 2


def test_starttls_is_used_before_the_password_and_the_certificate_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)
    with tls(tmp_path) as (context, certificate), MailServer(context) as server:
        encrypted = target(server.port, security="starttls", username="hold", password_env="MAIL_PASSWORD")
        attempt = encrypted.send(message())
        assert attempt.state == "later"
        assert "certificate" in attempt.reason
        assert not any(command.startswith("AUTH") for command in server.commands)
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
        assert encrypted.send(message()).state == "delivered"
    (mail,) = server.mails
    assert mail.is_encrypted
    assert mail.user is not None


def test_a_server_without_starttls_gets_neither_password_nor_mail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)
    with MailServer() as server:
        encrypted = target(server.port, security="starttls", username="hold", password_env="MAIL_PASSWORD")
        assert encrypted.send(message()).state == "refused"
    assert server.mails == []
    assert not any(command.startswith("AUTH") for command in server.commands)


def test_tls_from_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tls(tmp_path) as (context, certificate), MailServer() as server:
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
        server._server.socket = context.wrap_socket(server._server.socket, server_side=True)
        assert target(server.port, security="ssl").send(message()).state == "delivered"
    assert len(server.mails) == 1


@pytest.mark.parametrize(
    ("command", "reply", "state"),
    [
        ("MAIL", "451 later", "later"),
        ("MAIL", "550 no", "refused"),
        ("DATA", "451 later", "later"),
        ("DATA", "554 spam", "refused"),
        ("EHLO", "drop", "later"),
        ("MAIL", "drop", "later"),
        ("DATA", "drop", "later"),
        ("QUIT", "500 what", "delivered"),
        ("QUIT", "drop", "delivered"),
    ],
)
def test_the_code_of_the_server_decides(command: str, reply: str, state: str) -> None:
    with MailServer() as server:
        server.replies = [(command, reply)]
        attempt = target(server.port).send(message())
    assert attempt.state == state
    assert "spam" not in attempt.reason
    assert len(server.mails) == (state == "delivered")


def test_recipients_that_were_refused_for_now_get_it_later_and_the_others_once() -> None:
    with MailServer() as server:
        server.replies = [("RCPT TO:<ben@", "450 greylisted")]
        attempt = target(server.port).send(message())
        assert attempt == Attempt(
            state="later", reason="1 of 2 recipients were refused for now", left=("ben@example.org",)
        )
        assert target(server.port).send(message(), attempt.left).state == "delivered"
    assert [mail.recipients for mail in server.mails] == [["ana@example.org"], ["ben@example.org"]]


def test_recipients_that_do_not_exist_do_not_stop_the_others() -> None:
    with MailServer() as server:
        server.replies = [("RCPT TO:<ben@", "550 unknown")]
        attempt = target(server.port).send(message())
        assert (attempt.state, attempt.reason) == ("delivered", "1 of 2 recipients were refused")
        server.replies = [("RCPT", "550 unknown"), ("RCPT", "550 unknown")]
        assert target(server.port).send(message()).state == "refused"
        server.replies = [("RCPT", "550 unknown"), ("RCPT", "450 later")]
        assert target(server.port).send(message()).left == ("ben@example.org",)


def test_a_server_that_is_not_there_or_says_nothing_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert target(port, timeout_s=0.1).send(message()).state == "later"
    assert target(port).send(message()).reason == "the connection was refused"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"to": ()}, "must be a list of addresses"),
        ({"to": "ana@example.org"}, "must be a list of addresses"),
        ({"to": ("ana",)}, "is not an e-mail address"),
        ({"to": ("ana@example.org\r\nBcc: eve@example.org",)}, "is not an e-mail address"),
        ({"sender": "Holdfast <h@example.org>"}, "is not an e-mail address"),
        ({"host": ""}, "name of an SMTP server"),
        ({"host": "a\r\nb"}, "name of an SMTP server"),
        ({"security": "tls"}, "starttls, ssl or none"),
        ({"host": "mail.example.org", "username": "hold", "password_env": "X"}, "without TLS"),
        ({"username": "hold"}, "needs either password_env or password_file"),
    ],
)
def test_a_wrong_target_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        target(**options).check()

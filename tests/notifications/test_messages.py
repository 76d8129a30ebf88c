"""What a message contains: plain text, a link, and nothing that was not meant to leave."""

from __future__ import annotations

import datetime as dt
import email
import email.policy
import json
from email.message import EmailMessage
from typing import Any

import pytest

from holdfast.errors import InvalidInput
from holdfast.notifications.message import Message, check_base_url, line, page_url, plain
from holdfast.notifications.show_mask import MASKED, TOO_LARGE, mask_gate, read_mask
from holdfast.notifications.smtp import compose
from holdfast.notifications.webhook import slack_payload

AT = dt.datetime(2026, 11, 18, 12, 0, tzinfo=dt.UTC)
HOSTILE = (
    'Pay?\r\nBcc: eve@evil.example\r\n\r\n<script>alert("x")</script> <!channel> <https://evil|here> \x1b[2J\u202eabc'
)


def message(**changes: Any) -> Message:
    facts: dict[str, Any] = {
        "id": "a" * 32,
        "event": "gate_opened",
        "run_id": "order/17",
        "workflow": "refund",
        "gate": "loop#1[2]/approve#1",
        "prompt": "Pay?",
        "who": ("ana", "group:finance"),
        "expires_at": AT,
        "url": "https://page.example/runs/order%2F17/gates/x",
        "at": AT,
    }
    return Message(**facts | changes)


def test_the_link_leads_to_the_page_of_the_gate_and_ids_cannot_break_out_of_it() -> None:
    base = check_base_url("https://page.example/holdfast/")
    assert page_url(base, "a/b c", "x#1?y") == "https://page.example/holdfast/runs/a%2Fb%20c/gates/x%231%3Fy"
    assert page_url(base, "..", "g") == "https://page.example/holdfast/runs/~/gates/g?run=.."
    assert page_url(base, "r", None) == "https://page.example/holdfast/runs/r"


@pytest.mark.parametrize(
    "url",
    [
        "", "page.example", "ftp://page.example", "https://", "https://a b", "https://x/?a=1", "https://x/#y",
        "https://a:b@x", 7, "https://x/\nHost: y", "javascript:alert(1)",
    ],
)  # fmt: skip
def test_an_address_of_the_page_that_is_none_is_refused(url: Any) -> None:
    with pytest.raises(InvalidInput, match="base_url"):
        check_base_url(url)


def test_text_is_plain_and_short() -> None:
    text = plain(HOSTILE, 500)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\r" not in text
    assert "\n" not in line(HOSTILE, 500)
    assert plain("x" * 600, 500) == "x" * 499 + "…"


def test_the_payload_of_a_webhook_has_all_its_fields() -> None:
    payload = message().payload(include_show=False)
    assert list(payload) == [
        "id", "event", "run_id", "workflow", "gate", "prompt", "who", "expires_at", "url", "at",
    ]  # fmt: skip
    assert payload["gate"] == "loop#1[2]/approve#1"
    assert payload["expires_at"] == "2026-11-18T12:00:00+00:00"
    assert message(show={"x": 1}).payload(include_show=True)["show"] == {"x": 1}
    assert "show" not in message(show={"x": 1}).payload(include_show=False)


def test_slack_gets_plain_text_that_mentions_no_one_and_a_button_that_is_a_link() -> None:
    payload = slack_payload(message(prompt=plain(HOSTILE, 500), workflow="<!here>"), include_show=False)
    assert "<" not in payload["text"]
    assert "&lt;!channel&gt;" in payload["text"]
    kinds = [block["type"] for block in payload["blocks"]]
    assert kinds == ["header", "section", "section", "actions"]
    assert all(block["text"]["type"] == "plain_text" for block in payload["blocks"][:3])
    (button,) = payload["blocks"][3]["elements"]
    assert button["url"] == message().url
    assert "action_id" not in button
    assert len(payload["blocks"][0]["text"]["text"]) <= 150


def test_ids_are_exact_in_the_payload_of_a_webhook_and_without_direction_marks_in_what_people_read() -> None:
    marks = "\u202e\u2066\u200f"
    given = message(run_id=f"r1{marks}x", workflow=f"refund{marks}", gate=f"g{marks}", who=(f"ana{marks}",))
    payload = given.payload(include_show=False)
    assert [payload[name] for name in ("run_id", "workflow", "gate")] == [f"r1{marks}x", f"refund{marks}", f"g{marks}"]
    sent = mail(given)
    read = [given.title, given.label, given.text(include_show=False), str(given.facts()), sent["Subject"], str(sent)]
    read += [text["text"]["text"] for text in slack_payload(given, include_show=False)["blocks"] if "text" in text]
    assert not [text for text in read if set(marks) & set(text)]


def test_slack_gets_no_button_if_the_link_is_too_long_for_one() -> None:
    payload = slack_payload(message(url="https://x/" + "y" * 3000), include_show=False)
    assert "actions" not in [block["type"] for block in payload["blocks"]]


def mail(given: Message, **options: bool) -> EmailMessage:
    """The mail as its reader gets it."""
    sent = compose(
        given, "holdfast@example.org", ("ana@example.org", "ben@example.org"), **{"include_show": False} | options
    )
    parsed = email.message_from_bytes(sent.as_bytes(), policy=email.policy.default)
    assert isinstance(parsed, EmailMessage)
    return parsed


def test_a_mail_cannot_be_given_headers_by_a_prompt_or_a_name() -> None:
    found = mail(message(prompt=plain(HOSTILE, 500), workflow="refund\r\nBcc: eve@evil.example", gate="x\ny#1"))
    assert found["Bcc"] is None
    assert found["To"] == "ana@example.org, ben@example.org"
    assert found["Subject"] == "[Holdfast] Answer needed: refund Bcc: eve@evil.example x y"
    assert found["Message-ID"] == f"<{'a' * 32}@example.org>"
    assert found["Auto-Submitted"] == "auto-generated"


def test_a_mail_has_plain_text_and_escaped_html_with_the_link() -> None:
    found = mail(message(prompt=plain(HOSTILE, 500), url='https://x/"><b>'))
    plain_part, html = found.get_body(("plain",)), found.get_body(("html",))
    assert plain_part is not None
    assert html is not None
    assert "Open: https://x/" in plain_part.get_content()
    text = html.get_content()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert 'href="https://x/&quot;&gt;&lt;b&gt;"' in text
    assert "<form" not in text


def test_long_and_foreign_text_survives_a_mail() -> None:
    found = mail(message(prompt="ä€😀 " * 100, workflow="Überweisung"))
    part = found.get_body(("plain",))
    assert part is not None
    assert "ä€😀 ä€😀" in part.get_content()
    assert "Überweisung" in found["Subject"]
    assert max(map(len, found.as_bytes().splitlines())) < 998


def test_masked_paths_are_hidden_in_what_is_shown_and_in_the_question() -> None:
    show = {"customer": {"iban": "DE02 1234", "name": "Ana"}, "messages": [{"content": "hello there", "role": "u"}]}
    mask = read_mask(["customer.iban", "messages[*].content"])
    found, prompt = mask_gate(show, "Pay DE02 1234 to Ana?", mask)
    assert found == {"customer": {"iban": MASKED, "name": "Ana"}, "messages": [{"content": MASKED, "role": "u"}]}
    assert prompt == f"Pay {MASKED} to Ana?"


@pytest.mark.parametrize(
    ("path", "show"),
    [
        ("customer.iban", {"iban": "SECRET"}),
        ("customer.iban", [{"customer": [{"iban": "SECRET"}]}]),
        ("*.token", {"a": {"token": "SECRET"}}),
        ("api_*", {"api_key": "SECRET"}),
        ("customer.**.number", {"customer": {"cards": [{"number": "SECRET"}]}}),
        ("customer.**", {"customer": {"x": {"y": "SECRET"}}}),
        ("messages[0]", {"messages": ["SECRET"]}),
        (r"price\.net", {"price.net": "SECRET"}),
        (r"a\*b", {"a*b": "SECRET"}),
        ("customer", {"arguments": ["customer='SECRET'"], "idempotency_key": "k"}),
    ],
)
def test_every_kind_of_masked_path_is_hidden(path: str, show: Any) -> None:
    assert "SECRET" not in json.dumps(mask_gate(show, "", read_mask([path]))[0])
    assert "SECRET" in json.dumps(mask_gate(show, "", read_mask(["other.path"]))[0]) or "arguments" in show


@pytest.mark.parametrize("path", ["", ".", "**", "[0]", 7])
def test_a_mask_that_is_not_a_path_is_refused(path: Any) -> None:
    with pytest.raises(InvalidInput, match="is not a path"):
        read_mask([path])


def test_what_is_too_large_is_not_sent() -> None:
    assert mask_gate("x" * 30_000, "p", ())[0] == TOO_LARGE
    assert mask_gate(None, "p", ()) == (None, "p")
    assert mask_gate({"at": AT, "raw": b"x"}, "p", ())[0] == {
        "at": {"$datetime": AT.isoformat()},
        "raw": {"$bytes": "eA=="},
    }

"""Masking: a value at a masked path is on no page and in no download of its run."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.errors import InvalidInput
from holdfast.forms import field, form_of
from holdfast.model.views import Change
from holdfast.web.mask import MASKED, Masker, is_masked, mask, mask_form
from tests.adapters.langgraph.material import config
from tests.golden.threads import approval
from tests.web.runs_of_all_kinds import TABS, Stage, client_of, run_path

STATE: dict[str, Any] = {
    "customer": {"iban": "DE02", "name": "Ida"},
    "token": "abc",
    "messages": [{"role": "user", "content": "hello"}, {"role": "tool", "content": ["a", {"token": 7}]}],
    "price.net": 12,
    "pair": ("x", {"token": "y"}),
}


@pytest.mark.parametrize(("path", "expected"), [
    ("customer.iban", {"customer": {"iban": MASKED, "name": "Ida"}}),
    ("customer", {"customer": MASKED}),
    ("Customer.iban", {}),
    ("*.token", {"token": MASKED, "pair": ("x", {"token": MASKED}),
                 "messages": [STATE["messages"][0], {"role": "tool", "content": ["a", {"token": MASKED}]}]}),
    ("messages[*].content", {"messages": [{"role": "user", "content": MASKED}, {"role": "tool", "content": MASKED}]}),
    ("messages[1].content", {"messages": [STATE["messages"][0], {"role": "tool", "content": MASKED}]}),
    ("messages.1.content", {"messages": [STATE["messages"][0], {"role": "tool", "content": MASKED}]}),
    ("messages.**.token", {"messages": [STATE["messages"][0], {"role": "tool", "content": ["a", {"token": MASKED}]}]}),
    ("price\\.net", {"price.net": MASKED}),
    ("price.net", {}),
    ("pri*net", {"price.net": MASKED}),
    ("\\*", {}),
])  # fmt: skip
def test_a_path_masks_what_it_names_and_nothing_else(path: str, expected: dict[str, Any]) -> None:
    assert mask(STATE, [path]) == {**STATE, **expected}


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b", "a[x]", "a[1]b", "**"])
def test_a_path_that_cannot_be_read_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput, match="is not a path"):
        mask({}, [path])


def test_a_path_is_found_at_any_depth_and_in_values_that_are_parts_of_others() -> None:
    inner = {"order": [{"customer": {"iban": "DE02"}}]}
    assert mask(inner, ["customer.iban"]) == {"order": [{"customer": {"iban": MASKED}}]}
    assert mask("DE02", ["customer.iban"], ("customer", "iban")) == MASKED
    assert mask({"iban": "DE02"}, ["customer.iban"], ("customer",)) == {"iban": MASKED}
    assert is_masked(("customer", "iban", "country"), ["customer.iban"])
    assert not is_masked(("customer",), ["customer.iban"])


def test_values_of_types_that_json_lacks_are_masked_as_well() -> None:
    assert mask({"$tuple": [{"token": 1}]}, ["token"]) == {"$tuple": [{"token": MASKED}]}
    assert mask({"names": {"ana"}}, ["names[*]"]) == {"names": MASKED}
    delta = {"messages": {"$delta": {"from": [{"content": 1}], "writes": [[{"content": 2}], {"content": 3}]}}}
    shown = {"from": [{"content": MASKED}], "writes": [[{"content": MASKED}], {"content": MASKED}]}
    assert mask(delta, ["messages[*].content"]) == {"messages": {"$delta": shown}}


def test_a_value_nested_too_deep_to_be_searched_is_hidden_as_a_whole() -> None:
    deep: Any = "secret"
    for _ in range(100_000):
        deep = {"a": deep}
    assert mask(deep, ["token"]) == MASKED


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcde"), inner, max_size=4),
    max_leaves=20,
)


@given(
    json_values, st.sampled_from(["secret", "deep.secret", "*.secret", "x[*].secret", "**.secret", "deep.**.secret"])
)
def test_no_part_of_a_value_below_a_masked_path_remains(value: object, path: str) -> None:
    marked = {"secret": "S3CR3T", "more": value}
    whole = {"secret": marked, "deep": {"secret": "S3CR3T", "y": value}, "x": [{"secret": ["S3CR3T"]}], "z": value}
    shown = json.dumps(mask(whole, ["secret", path]))
    assert "S3CR3T" not in shown
    assert mask(mask(whole, ["secret", path]), ["secret", path]) == mask(whole, ["secret", path])
    assert mask(whole, ["elsewhere"]) == whole


def test_changes_inside_a_masked_container_become_one_change_without_values() -> None:
    changes = [
        Change(op="replace", path=("customer", "iban"), old="DE02-old", new="DE02-new"),
        Change(op="add", path=("customer", "phone"), new="0171-555"),
        Change(op="replace", path=("text",), old="call 0171-555", new="call 0171-555 now"),
        Change(op="add", path=("other",), new={"customer": "Ida B."}),
    ]
    shown = Masker(["customer"]).changes(changes)
    assert [(change.op, change.path, change.old, change.new) for change in shown] == [
        ("replace", ("customer",), MASKED, MASKED),
        ("replace", ("text",), f"call {MASKED}", f"call {MASKED} now"),
        ("add", ("other",), None, {"customer": MASKED}),
    ]


def test_arguments_that_a_gate_shows_as_python_text_are_masked() -> None:
    show = {
        "effect": "pay",
        "idempotency_key": "k",
        "arguments": ["{'customer': {'iban': 'DE02'}}", "{'iban': 'DE02'}", "12", "<object at 0x1>", "token='abc'"],
    }
    assert mask(show, ["customer.iban"])["arguments"] == [
        f"{{'customer': {{'iban': '{MASKED}'}}}}", f"{{'iban': '{MASKED}'}}", "12", MASKED, "token='abc'",
    ]  # fmt: skip
    hidden = f"'{MASKED}'"  # a parameter without a name could have the masked one
    assert mask(show, ["token"])["arguments"] == [hidden, hidden, hidden, MASKED, f"token={hidden}"]


def test_arguments_by_position_are_masked_by_the_names_of_their_parameters_or_as_if_they_had_any() -> None:
    call = {"kind": "done", "args": ["DE02", {"iban": "DE02", "n": 1}], "kwargs": {"iban": "DE02", "n": 1}}
    assert mask(call, ["iban"]) == {**call, "args": [MASKED, MASKED], "kwargs": {"iban": MASKED, "n": 1}}
    assert mask(call, ["customer.iban"])["args"] == ["DE02", {"iban": MASKED, "n": 1}]
    assert mask({"args": ["DE02"]}, ["iban"]) == {"args": [MASKED]}
    assert mask({"args": ["DE02"], "other": 1}, ["iban"]) == {"args": ["DE02"], "other": 1}
    masker = Masker(["iban"])
    masker.parameters = ("order", "iban")
    started = {"kind": "started", "args": ["A-17-x", "DE02-x", "more"], "kwargs": {}}
    assert masker.value(started)["args"] == ["A-17-x", MASKED, MASKED]
    assert masker.text("A-17-x DE02-x more") == f"A-17-x {MASKED} more"


def test_defaults_of_masked_fields_are_not_in_the_form_that_is_shown() -> None:
    given = {
        "type": "object",
        "properties": {
            "iban": {"type": "string", "default": "DE02-secret"},
            "customer": {"type": "object", "properties": {"iban": {"type": "string", "examples": ["DE02-secret"]}}},
            "note": {"type": "string", "default": "kept"},
        },
    }
    for spec in (given, {"iban": field(str, default="DE02-secret"), "note": field(str, default="kept")}):
        form = form_of(spec)
        shown = mask_form(form, lambda value, at: bool(mask(value, ["iban"], at) != value))
        assert "DE02-secret" in json.dumps(form.json_schema())
        assert "DE02-secret" not in json.dumps(shown.json_schema()) + str(shown.as_data())
        assert "kept" in json.dumps(shown.json_schema())
        assert [one.required for one in shown.fields] == [one.required for one in form.fields]


def test_a_masked_value_is_replaced_in_texts_that_repeat_it() -> None:
    masker = Masker(["iban"])
    masker.learn({"iban": "DE02 'x'", "pin": 12})
    assert masker.text("no account DE02 'x'") == f"no account {MASKED}"
    assert masker.text(f"changed from {'DE02 ' + chr(39) + 'x' + chr(39)!r}") == f'changed from "{MASKED}"'
    assert masker.value({"error": {"message": "bad DE02 'x'"}}) == {"error": {"message": f"bad {MASKED}"}}


# --- pages -----------------------------------------------------------------------------------------------------------

MASK = ("customer.iban", "messages[*].content", "*.token")
CAUSE = "the bank did not answer"


def pay(order: dict[str, Any], token: str = "", idempotency_key: str = "") -> None:
    raise holdfast.InDoubt(CAUSE)


def book(order: dict[str, Any]) -> dict[str, Any]:
    return {"receipt": 1, **order}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    found = Stage(MASK)
    app = found.app

    @app.workflow
    def child(run: Any, order: dict[str, Any]) -> Any:
        return run.step(lambda: order, name="copy")

    @app.workflow
    def refund(run: Any, order: dict[str, Any], token: str) -> Any:
        run.state["order"] = run.step(lambda: order, name="price")
        run.log("priced", customer=order["customer"])
        run.checkpoint()
        run.state["messages"] = [{"role": "user", "content": order["customer"]["iban"]}]
        run.checkpoint()
        run.ask("Sure?", {"ok": bool}, show=order)
        run.child(child, order)
        run.effect(book, order)
        run.effect(pay, order, token=token)
        return order

    @app.workflow
    def failing(run: Any, order: dict[str, Any]) -> Any:
        def check() -> None:
            raise ValueError(f"bad account {order['customer']['iban']}")

        return run.step(check)

    yield found
    found.close()


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=st.text(min_size=2, max_size=30).filter(lambda text: text.encode("utf-8", "ignore").decode() == text))
def test_a_masked_text_occurs_on_no_page_of_its_run(stage: Stage, text: str) -> None:
    secret = f"S3CR-{text}"
    order = {"customer": {"iban": secret, "name": "Ida"}, "id": "A-17"}
    run_id = f"r-{len(stage.store.runs(limit=1000))}"
    meta = {"customer": {"iban": secret}, "token": secret}
    stage.app.start("refund", order, secret, run_id=run_id, metadata=meta)
    pages = list(texts_of(stage, run_id))
    stage.app.answer(run_id, {"ok": True}, by="ana")
    pages += texts_of(stage, run_id)
    pages += texts_of(stage, f"{run_id}/child:child#1")
    for path, page in pages:
        for spelled in (secret, html.escape(secret), json.dumps(secret)[1:-1], repr(secret)[1:-1]):
            assert spelled not in page, (path, spelled)
    together = "\n".join(page for _, page in pages)
    assert MASKED in together
    assert "Ida" in together


def texts_of(stage: Stage, run_id: str) -> Iterator[tuple[str, str]]:
    """All pages and files of a run."""
    queries = [*TABS, "journal.json", "state.json", "state?checkpoint=1", "state?q=S3CR", "diff?a=1&b=2", "?from=1"]
    for tab in queries:
        path = run_path(run_id, tab) if not tab.startswith("?") else run_path(run_id) + tab
        answer = stage.client.get(path)
        if answer.status_code != 404:
            assert answer.status_code == 200, (path, answer.text[-500:])
            yield path, answer.text
    yield "/runs", stage.client.get("/runs").text
    yield "/runs?q", stage.client.get("/runs?q=S3CR").text


def test_a_message_that_repeats_a_masked_value_does_not_show_it(stage: Stage) -> None:
    order = {"customer": {"iban": "DE-4711-0815"}}
    stage.app.start("failing", order, run_id="failing")
    for tab in ("", "journal", "logs", "state", "journal.json"):
        text = stage.client.get(run_path("failing", tab)).text
        assert "DE-4711-0815" not in text, tab
        assert "bad account" in text or tab in ("logs", "state")


def test_runs_cannot_be_found_by_masked_metadata(stage: Stage) -> None:
    stage.store.save("with-token", {}, metadata={"token": "abc-123-def"})
    assert "masked" in stage.get("/runs?meta=token=abc-123-def", 400).text
    assert "with-token" not in stage.client.get("/runs?q=abc-123").text


def test_the_interrupt_of_a_thread_is_masked_in_its_question_too() -> None:
    with holdfast.open("memory:") as store:
        approval(HoldfastSaver(store)).invoke({"order": "A-17-SECRET"}, config("thread-1"))
        with holdfast.App(store) as app, client_of(app, ("approve", "order", "note")) as client:
            for path in (
                "/runs",
                *(run_path("thread-1", tab) for tab in ("", "state", "state.json", "diff", "journal")),
            ):
                answer = client.get(path)
                assert answer.status_code == 200, path
                assert "A-17-SECRET" not in answer.text, path

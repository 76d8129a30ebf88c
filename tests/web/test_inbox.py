"""The inbox: which gates it lists, for whom, in which order, and what a card shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import DamagedData
from holdfast.model.rows import GateRow, RunRow
from holdfast.model.views import GateInfo
from holdfast.operations.gates import gate_info
from holdfast.web import User, gate_list
from tests.web.html_page import HtmlPage
from tests.web.inbox_world import STORES, InboxWorld, check_page, gate_path, inbox_world, site_of


@pytest.fixture(params=STORES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InboxWorld]:
    with inbox_world(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[InboxWorld]:
    with inbox_world("memory:", tmp_path) as made:
        yield made


def runs(page: HtmlPage) -> list[str]:
    """The runs of the cards, in their order."""
    links = [re.fullmatch(r"/runs/([^/?]+)/gates/[^/]+", link) for link in page.links]
    return list(dict.fromkeys(found[1] for found in links if found))


# --- the list --------------------------------------------------------------------------------------------------------


def test_an_inbox_without_gates_says_so(world: InboxWorld) -> None:
    page = world.page("ana")
    assert "No open gates" in page.text
    assert "0 open gates" in page.text


def test_open_gates_of_all_runs_are_listed_longest_waiting_first(world: InboxWorld) -> None:
    for number in range(3):
        world.ask(f"Question {number}", run_id=f"r{number}")
    world.refund("A-17")
    page = world.page("vera")
    assert runs(page) == ["r0", "r1", "r2", "refund-A-17"]
    assert "4 open gates" in page.text
    assert "/runs/r0" in page.links, "each card leads to its run"
    world.app.answer("r0", {"approve": True}, by="ana")
    assert runs(world.page("vera")) == ["r1", "r2", "refund-A-17"]


def test_the_list_has_pages_without_gaps_or_repetitions(world: InboxWorld) -> None:
    made = [world.refund(str(number)).run_id for number in range(gate_list.PAGE * 2 + 5)]
    for query in ("", "text=refund"):
        path, found, sizes = f"/?{query}", [], []
        while path:
            page = world.page("ana", path)
            found += runs(page)
            sizes.append(len(runs(page)))
            assert f"{len(made)} open gates" in page.text
            path = next((one["href"] or "" for _, one in page.tags if one.get("rel") == "next"), "")
        assert found == made
        assert sizes == [50, 50, 5]


def test_a_cursor_that_was_not_made_here_is_refused(world: InboxWorld) -> None:
    for cursor in ("x", "1/2", "9" * 40 + "/1/x"):
        world.page("ana", f"/?after={cursor}", status=400)


def test_hostile_texts_are_shown_and_never_become_markup(world: InboxWorld) -> None:
    hostile = "<img src=x onerror=alert(1)>\"'><script>alert(1)</script>"
    world.ask(f"{hostile} [x](javascript:alert(1))", show={hostile: hostile, "l": [{hostile: hostile}]}, run_id=hostile)
    world.ask("b", show=f"{hostile}\n# h", who=[hostile])
    page = world.page("ana")
    assert page.text.count(hostile) >= 6
    assert {tag for tag, _ in page.tags} & {"img"} == set()
    assert not any((link or "").startswith("javascript") for link in page.links)
    assert sum(tag == "script" for tag, _ in page.tags) == 3, "only those of the page"


# --- what is shown ---------------------------------------------------------------------------------------------------


def test_the_question_and_shown_text_are_markdown(world: InboxWorld) -> None:
    world.ask("Publish **now**?\n\n- one", show="# Draft\n*Hello*")
    html = world.browser("ana").get("/").text
    assert "<p>Publish <strong>now</strong>?</p>" in html
    assert "<h3>Draft</h3>" in html
    assert "<em>Hello</em>" in html


def test_objects_are_pairs_lists_of_objects_are_tables_and_the_rest_is_json(memory: InboxWorld) -> None:
    memory.ask(show={"order": "A-17", "paid": True, "lines": [{"item": "nut", "n": 2}, {"item": "bolt"}], "none": None})
    memory.ask(show=[[1, 2], {"a": [{"b": 1}]}])
    memory.ask(show={"text": "long " * 200, "deep": {"a": {"b": {"c": {"d": 1}}}}})
    html = memory.browser("ana").get("/").text
    assert "<dt>order</dt>" in html
    assert '<th scope="col">item</th>' in html
    assert "<td>bolt</td><td></td>" in html
    assert "<summary>1,000 characters</summary>" in html
    assert "&#34;c&#34;: {" in html
    check_page(html)


def test_a_card_says_who_may_answer_and_what_happens_with_time(world: InboxWorld) -> None:
    gate = world.ask(
        "Pay?",
        who=["cleo", "group:finance"],
        approvals=2,
        not_by="ana",
        escalate=[(3600, "group:leads")],
        expires=7200,
    )
    text = _words(world.page("vera"))
    assert "For cleo, group:finance, but not ana" in text
    assert "0 of 2 approvals" in text
    assert re.search(r"group:leads is asked in (1 h|\d+ min)", text)
    assert re.search(r"Expires in (2 h|1 h \d+ min)", text)
    world.app.answer(gate.run_id, {"approve": True}, by="cleo")
    text = _words(world.page("vera"))
    assert re.search(r"1 of 2 approvals: cleo (now|.* ago)", text)
    world.clock.advance(3600)
    assert "For cleo, group:finance, group:leads" in _words(world.page("vera"))


def _words(page: HtmlPage) -> str:
    return " ".join(page.text.split())


def test_after_its_time_a_card_says_that_it_expired(world: InboxWorld) -> None:
    world.ask("Pay?", expires=60)
    world.clock.advance(61)
    page = world.page("ana")
    assert "expired" in page.text
    assert "You cannot answer it: it has expired." in page.text
    assert all(control.disabled for control in page.form("/answer").controls if control.type == "radio")


def test_a_damaged_gate_does_not_hide_the_others(memory: InboxWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.ask("Fine?", run_id="fine")
    memory.ask("Broken?", run_id="broken")
    real = gate_info

    def damaged(run: RunRow, row: GateRow, now_us: int) -> Any:
        if run.run_id == "broken":
            raise DamagedData("gate 'ask#1'", "it does not match its checksum")
        return real(run, row, now_us)

    monkeypatch.setattr(gate_list, "gate_info", damaged)
    page = memory.page("ana")
    assert runs(page) == ["fine", "broken"]
    assert "does not match its checksum" in page.text
    memory.page("ana", "/runs/broken/gates/ask%231")
    assert runs(memory.page("ana", "/?text=broken")) == ["broken"]


def test_a_gate_with_its_form_elsewhere_has_a_link_that_does_not_look_like_a_button(memory: InboxWorld) -> None:
    gate = memory.ask("Which?", "labelled")
    page = memory.page("ana")
    assert not any("/answer" in form.action for form in page.forms)
    assert f'<a class="opens" href="{gate_path(gate)}">Open the form' in memory.browser("ana").get("/").text


def test_an_effect_in_doubt_is_answered_in_its_card(memory: InboxWorld) -> None:
    def pay() -> str:
        raise TimeoutError("the bank did not answer")

    @memory.app.workflow
    def shop(run: Any) -> Any:
        return run.effect(pay)

    memory.app.start(shop, run_id="shop")
    form = memory.page("ana").form("/answer")
    form.fill(outcome='"happened"', result='"R-1"')
    memory.submit("ana", form)
    memory.app.resume("shop")
    assert memory.app.handle("shop").result() == "R-1"


def test_very_long_questions_are_cut_in_the_card_and_answered_on_their_page(memory: InboxWorld) -> None:
    gate = memory.ask("Read this. " * 1_000)
    page = memory.page("ana")
    assert "more characters are not shown here" in page.text
    assert "Read all and answer" in page.text
    assert not any("/answer" in form.action for form in page.forms)
    assert "Select" not in page.text, "it cannot be approved unread"
    page = memory.page("ana", gate_path(gate))
    assert page.text.count("Read this.") >= 1_000
    assert page.form("/answer")


# --- answering in the card -------------------------------------------------------------------------------------------


def test_a_yes_or_no_is_answered_in_its_card(world: InboxWorld) -> None:
    gate = world.ask("Go on?", "noted")
    form = world.page("ben", "/?text=go&mine=1").form("/answer")
    form.fill(approve="true", note="fine")
    response = world.submit("ben", form, by="ana")
    assert response.headers["location"] == "/?text=go&mine=1", "back to the same list"
    world.work()
    assert world.app.handle(gate.run_id).result() == {"approve": True, "note": "fine"}
    (answered,) = world.app.gates(gate.run_id, state="answered")
    assert answered.answered_by == "ben", "the user of the session, whatever a field says"
    (entry,) = [entry for entry in world.store.journal(gate.run_id) if entry.kind == "answered"]
    assert (entry["by"], entry["via"]) == ("ben", "web")


def test_the_page_executes_nothing(world: InboxWorld) -> None:
    gate = world.ask("Go on?", "bool")
    form = world.page("ana").form("/answer")
    form.fill(answer="false")
    world.submit("ana", form)
    assert world.app.handle(gate.run_id).status() == "ready"
    world.work()
    assert world.app.handle(gate.run_id).result() is False


def test_larger_forms_open_the_page_of_the_gate(world: InboxWorld) -> None:
    gate = world.ask("How much?", "order")
    page = world.page("ana")
    assert page.links.count(gate_path(gate)) == 2
    assert not any("/answer" in form.action for form in page.forms)


def test_a_user_that_may_not_answer_sees_the_reason_and_disabled_fields(world: InboxWorld) -> None:
    world.ask("Go on?", who="ana")
    for name, words in (
        ("ben", "'ben' may not answer it; it is for ana"),
        ("vera", "answering needs the role approver"),
    ):
        page = world.page(name)
        assert f"You cannot answer it: {words}" in page.text
        form = page.form("/answer")
        assert all(control.disabled for control in form.controls if control.type != "hidden")
        assert world.browser(name).post(form.action, data=form.submit()).status_code == 403
    assert len(world.app.gates()) == 1


# --- filters ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def many(memory: InboxWorld) -> InboxWorld:
    memory.ask("Send the *letter*?", who="ana", run_id="a", show={"to": "Zoe"})
    memory.ask("Pay the invoice?", who="group:finance", run_id="b")
    memory.ask("Anyone?", run_id="c")
    memory.ask("Two?", who=["cleo", "group:finance"], run_id="d")
    memory.refund("A-17", "order/17")
    return memory


@pytest.mark.parametrize(
    ("user", "query", "found"),
    [
        ("ana", "", ["a", "b", "c", "d", "order%2F17"]),
        ("ana", "text=LETTER", ["a"]),
        ("ana", "text=zoe", ["a"]),
        ("ana", "text=the+pay", ["b"]),
        ("ana", "text=order/17", ["order%2F17"]),
        ("ana", "text=refund", ["order%2F17"]),
        ("ana", "text=nothing", []),
        ("ana", "workflow=refund", ["order%2F17"]),
        ("ana", "workflow=refun", []),
        ("ana", "mine=1", ["a", "c", "order%2F17"]),
        ("ben", "mine=1", ["b", "c", "d", "order%2F17"]),
        ("cleo", "mine=1", ["c", "d", "order%2F17"]),
        ("ana", "person=cleo", ["d"]),
        ("ana", "group=finance", ["b", "d"]),
        ("ana", "group=group:finance&person=cleo", ["d"]),
        ("ana", "purpose=ask&text=two", ["d"]),
        ("ana", "purpose=in_doubt", []),
        ("rita", "", ["order%2F17"]),
        ("rita", "workflow=ask", []),
    ],
)
def test_filters_are_in_the_address(many: InboxWorld, user: str, query: str, found: list[str]) -> None:
    page = many.page(user, f"/?{query}")
    assert runs(page) == found
    total = 1 if user == "rita" else 5
    noun = "open gate" if total == 1 else "open gates"
    assert (f"{len(found)} of {total} {noun}" if query else f"{total} {noun}") in page.text
    assert ("No open gates fit" in page.text) == (not found)


def test_a_filter_keeps_what_was_typed(many: InboxWorld) -> None:
    form = many.page("ana", "/?text=a+b&workflow=ask&person=p&group=g&purpose=ask&mine=1").form("/")
    assert form.submit() == {
        "text": ["a b"],
        "workflow": ["ask"],
        "person": ["p"],
        "group": ["g"],
        "purpose": ["ask"],
        "mine": ["1"],
    }


def test_counting_stops_after_enough_matches(many: InboxWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_list, "COUNT_MAX", 1)
    monkeypatch.setattr("holdfast.web.pages.inbox.COUNT_MAX", 1)
    gates = gate_list.GateList(site_of(many))
    page = gates.page(User(name="ana"), gate_list.Filter(workflow="ask"), limit=1)
    assert (len(page.entries), page.fitting, page.total) == (1, 2, 5)
    assert page.next == page.entries[-1].cursor
    assert "more than 1 of 5" in many.page("ana", "/?workflow=ask").text


def test_a_gate_is_decoded_once_until_it_changes(many: InboxWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(run: RunRow, row: GateRow, now_us: int) -> GateInfo:
        calls.append(run.run_id)
        return gate_info(run, row, now_us)

    monkeypatch.setattr(gate_list, "gate_info", counted)
    for _ in range(3):
        many.page("ana", "/?text=letter")
        many.page("ben", "/?mine=1")
    assert sorted(calls) == ["a", "b", "c", "d", "order/17"]
    many.app.reassign("a", "ben")
    many.page("ben", "/?mine=1")
    assert calls[5:] == ["a"]


def test_masked_values_are_not_shown_and_not_found(tmp_path: Path) -> None:
    with inbox_world("memory:", tmp_path, mask=("customer.iban",)) as world:
        gate = world.ask("Pay to DE02120300000000202051?", show={"customer": {"iban": "DE02120300000000202051"}})
        for path in ("/", gate_path(gate)):
            assert "DE0212" not in world.browser("ana").get(path).text
        assert runs(world.page("ana", "/?text=DE02120300000000202051")) == []


# --- other kinds of gates --------------------------------------------------------------------------------------------


def test_interrupts_of_langgraph_say_that_they_are_answered_through_the_graph(tmp_path: Path) -> None:
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import interrupt

    from holdfast.adapters.langgraph import HoldfastSaver

    with inbox_world("sqlite:", tmp_path) as world:
        graph: Any = StateGraph(dict)
        graph.add_node("approve", lambda _: {"ok": interrupt({"question": "Send <it>?"})})
        graph.add_edge(START, "approve")
        graph.add_edge("approve", END)
        saver = HoldfastSaver(world.store)
        graph.compile(checkpointer=saver).invoke({}, {"configurable": {"thread_id": "thread-1"}})
        world.ask("And this?")
        page = world.page("ana")
        assert runs(page) == ["run-1", "thread-1"]
        assert "Send <it>?" in page.text
        assert "It is answered through its graph, not here" in _words(page)
        assert runs(world.page("ana", "/?purpose=interrupt")) == ["thread-1"]
        assert runs(world.page("ana", "/?purpose=ask")) == ["run-1"]
        assert runs(world.page("ana", "/?mine=1")) == ["run-1"]
        assert runs(world.page("rita")) == []
        link = next(link for link in page.links if link.startswith("/runs/thread-1/gates/"))
        page = world.page("ana", link)
        assert "This is an interrupt of a LangGraph thread." in page.text
        assert not any("/answer" in form.action for form in page.forms)
        token = next(c.value for form in world.page("ana").forms for c in form.controls if c.name == "csrf")
        assert world.browser("ana").post(f"{link}/answer", data={"csrf": token}).status_code == 400

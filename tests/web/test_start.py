"""Start: the list of workflows, forms made of their signatures, and starts that are sent twice."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

import pytest
from starlette.testclient import TestClient

import holdfast
from tests.web.acting import STORES, World, send, twins, world
from tests.web.clients import csrf_of
from tests.web.html_page import HtmlForm, HtmlPage


@pytest.fixture(params=STORES)
def w(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with world(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def ana(w: World) -> TestClient:
    return w.served.browser("ana")


def start_form(page: HtmlPage) -> HtmlForm:
    return page.form("/start/")


def started(done: object) -> str:
    location: str = done.headers["location"]  # type: ignore[attr-defined]
    return unquote(location.removeprefix("/runs/"))


def test_the_list_has_what_workers_have_published_and_says_which_have_a_worker(w: World, ana: TestClient) -> None:
    page = w.page(ana, "/start")
    for name in ("order", "convert", "listen", "hello"):
        assert f"/start/{name}" in page.links
    assert "Pay an order, ask, then ship it." in page.text
    assert "no worker" in page.text


def test_the_list_has_the_workflows_of_the_pages_own_app(tmp_path: Path) -> None:
    with holdfast.App("memory:") as app:

        @app.workflow(name="../own & <b>")
        def own(run: holdfast.Run, text: str) -> str:
            return text

        from tests.web.clients import Served

        ana = Served(tmp_path, app).browser("ana")
        page = HtmlPage(ana.get("/start").text)
        [link] = [link for link in page.links if link.startswith("/start/")]
        form = start_form(HtmlPage(ana.get(link).text))
        form.fill(text="hello")
        name = started(send(ana, form))
        assert app.handle(name).status() == "ready"
        app.worker().run(until_idle=True)
        assert app.handle(name).result() == "hello"


def test_without_workflows_the_list_says_how_they_get_there(tmp_path: Path) -> None:
    with holdfast.App("memory:") as app:
        from tests.web.clients import Served

        page = HtmlPage(Served(tmp_path, app).browser("ana").get("/start").text)
        assert "No workflows are known" in page.text


def test_a_run_is_started_with_typed_values_and_executed_by_a_worker(w: World, ana: TestClient) -> None:
    form = start_form(w.page(ana, "/start/order"))
    form.fill(order="A", amount="7", metadata="team=a\nprio=3")
    form.set("run_id", "my-order")
    assert started(send(ana, form)) == "my-order"
    assert "Started; a worker executes it" in HtmlPage(ana.get("/start").text).text
    assert w.did == []
    w.work()
    assert w.did == [("pay", "A")]
    info = w.app.handle("my-order").info()
    assert info.metadata == {"team": "a", "prio": 3}
    assert w.entries("my-order", "started")[0]["kwargs"] == {"order": "A", "amount": 7}


def test_a_declared_workflow_gets_its_input_as_one_object(w: World, ana: TestClient) -> None:
    form = start_form(w.page(ana, "/start/hello"))
    form.fill(name="Ana")
    name = started(send(ana, form))
    w.work()
    assert w.app.handle(name).result() == "hello Ana"


def test_a_declared_workflow_without_declared_input_takes_any_object(w: World, ana: TestClient) -> None:
    stages = [{"type": "end", "id": "end", "result": "{{ input.name }}"}]
    w.app.graph({"id": "free", "stages": stages})
    w.app.publish_workflows()
    form = start_form(w.page(ana, "/start/free"))
    for wrong in ("{", "[1]"):
        form.set("input", wrong)
        page = HtmlPage(send(ana, form, 400).text)
        assert "input-wrong" in page.ids
        assert [control.value for control in start_form(page).controls if control.name == "input"] == [wrong]
    form.set("input", '{"name": "Ben"}')
    name = started(send(ana, form))
    w.work()
    assert w.app.handle(name).result() == "Ben"


def test_values_that_do_not_fit_are_reported_at_their_fields_and_stay_as_typed(w: World, ana: TestClient) -> None:
    form = start_form(w.page(ana, "/start/order"))
    form.fill(order="A", amount="many")
    form.set("metadata", "no equals sign")
    page = HtmlPage(send(ana, form, 400).text)
    again = {control.name.rpartition("/")[2]: control.value for control in start_form(page).controls}
    assert again["amount"] == "many"
    assert again["metadata"] == "no equals sign"
    assert "metadata-wrong" in page.described
    assert any(name.endswith("amount-wrong") for name in page.described)
    assert w.store.runs() == []


def test_an_id_with_other_input_is_reported_at_the_field(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="taken")
    form = start_form(w.page(ana, "/start/order"))
    form.fill(order="B")
    form.set("run_id", "taken")
    page = HtmlPage(send(ana, form, 400).text)
    assert "run_id-wrong" in page.described
    assert "already started with another input" in page.text
    form.set("run_id", "x\x01y")
    assert "run_id-wrong" in HtmlPage(send(ana, form, 400).text).ids


def test_the_same_id_with_the_same_input_leads_to_the_run(w: World, ana: TestClient) -> None:
    form = start_form(w.page(ana, "/start/order"))
    form.fill(order="A", amount="1")
    form.set("run_id", "one")
    send(ana, form)
    w.work()
    assert started(send(ana, form)) == "one"
    assert "was started before with the same input" in HtmlPage(ana.get("/start").text).text
    w.work()
    assert w.did == [("pay", "A")]


def test_a_form_that_is_sent_twice_starts_one_run(w: World, ana: TestClient) -> None:
    form = start_form(w.page(ana, "/start/order"))
    form.fill(order="A")
    with ThreadPoolExecutor(2) as pool:
        names = set(pool.map(lambda browser: started(send(browser, form)), twins(w, ana)))
    assert len(names) == 1
    assert len(w.store.runs()) == 1
    w.work()
    assert w.did == [("pay", "A")]


def test_a_form_that_is_sent_again_with_other_values_starts_another_run_after_a_warning(
    w: World, ana: TestClient
) -> None:
    form = start_form(w.page(ana, "/start/order"))
    form.fill(order="A")
    first = started(send(ana, form))
    form.fill(order="B")
    page = HtmlPage(send(ana, form, 400).text)
    assert "was started from this form" in page.text
    assert f"/runs/{first}" in page.links
    second = started(send(ana, start_form(page)))
    assert second != first
    assert w.entries(second, "started")[0]["kwargs"]["order"] == "B"


def test_a_workflow_that_is_not_known_or_not_visible_does_not_exist(w: World, ana: TestClient) -> None:
    assert ana.get("/start/unknown").status_code == 404
    assert ana.post("/start/unknown", data={"csrf": csrf_of(ana)}).status_code == 404
    rita = w.served.browser("rita")
    assert "/start/order" not in w.page(rita, "/start").links
    assert rita.get("/start/order").status_code == 404
    assert rita.post("/start/order", data={"csrf": csrf_of(rita)}).status_code == 404
    assert w.store.runs() == []


def test_an_id_of_a_run_that_is_not_visible_is_taken_without_more_words(w: World) -> None:
    @w.app.workflow
    def refund(run: holdfast.Run) -> None: ...

    w.app.publish_workflows()
    w.start("order", "secret", run_id="hidden")
    rita = w.served.browser("rita")
    form = start_form(w.page(rita, "/start/refund"))
    form.set("run_id", "hidden")
    page = HtmlPage(send(rita, form, 400).text)
    assert "is taken" in page.text
    assert "order" not in page.text


@pytest.mark.parametrize("name", ["vera", "ben"])
def test_starting_needs_the_role_operator(w: World, name: str) -> None:
    browser = w.served.browser(name)
    assert "Starting a run needs the role operator" in w.page(browser, "/start").text
    assert browser.get("/start/order").status_code == 403
    assert browser.post("/start/order", data={"csrf": csrf_of(browser), "f/order": "A"}).status_code == 403
    assert w.store.runs() == []


class Tone(enum.Enum):
    PLAIN = "plain"
    PROUD = "proud"


def test_parameters_named_like_options_of_start_are_passed(w: World, ana: TestClient) -> None:
    @w.app.workflow
    def odd(run: holdfast.Run, first: int, metadata: str = "none", run_id: str = "", tone: Tone = Tone.PLAIN) -> list:  # type: ignore[type-arg]
        return [first, metadata, run_id, tone.value]

    w.app.publish_workflows()
    form = start_form(w.page(ana, "/start/odd"))
    form.fill(first="1")
    form.set("f/metadata", "text")
    form.set("f/run_id", "mine")
    form.set("f/tone", '"proud"')
    name = started(send(ana, form))
    w.work()
    assert w.app.handle(name).result() == [1, "text", "mine", "proud"]


def test_rows_of_a_list_are_added_without_starting(w: World, ana: TestClient) -> None:
    @w.app.workflow
    def many(run: holdfast.Run, names: list[str]) -> list[str]:
        return names

    w.app.publish_workflows()
    page = w.page(ana, "/start/many")
    form = start_form(page)
    add = next(control.name for control in form.controls if control.name.endswith("~add"))
    done = ana.post(form.action, data=form.submit(add, "1"))
    assert done.status_code == 200
    again = start_form(HtmlPage(done.text))
    again.set("f/names/0", "ana")
    name = started(send(ana, again))
    w.work()
    assert w.app.handle(name).result() == ["ana"]


def test_a_required_text_must_not_be_empty(w: World, ana: TestClient) -> None:
    form = start_form(w.page(ana, "/start/order"))
    for text in ("", "  "):
        form.fill(order=text)
        page = HtmlPage(send(ana, form, 400).text)
        assert "Order: Must not be empty" in " ".join(page.text.split())
    assert w.store.runs() == []


def test_problems_of_the_id_and_the_metadata_are_listed_above_the_form(w: World, ana: TestClient) -> None:
    for path in ("/start/order", "/start/hello"):
        form = start_form(w.page(ana, path))
        form.set("run_id", "x" * 5000)
        form.set("metadata", "no value")
        page = HtmlPage(send(ana, form, 400).text)
        assert "Metadata: Line 1 is not name=value" in " ".join(page.text.split())
        assert {"#run_id", "#metadata"} <= set(page.links)


def test_the_signs_of_markdown_in_a_description_are_not_shown(tmp_path: Path) -> None:
    with holdfast.App("memory:") as app:

        @app.workflow
        def own(run: holdfast.Run) -> None:
            """Pays **once** and <b>then</b> ends."""

        from tests.web.clients import Served

        ana = Served(tmp_path, app).browser("ana")
        for path in ("/start", "/start/own"):
            assert "Pays once and <b>then</b> ends." in HtmlPage(ana.get(path).text).text

"""Acting on runs from the page: pause, resume, cancel, retry, and several at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import holdfast
from holdfast.web.pages.act import BULK_MAX
from tests.web.acting import STORES, World, send, world
from tests.web.clients import csrf_of
from tests.web.html_page import HtmlPage


@pytest.fixture(params=STORES)
def w(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with world(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def ana(w: World) -> TestClient:
    return w.served.browser("ana")


def post(browser: TestClient, path: str, status: int = 303, **fields: object) -> HtmlPage:
    done = browser.post(path, data={"csrf": csrf_of(browser, "/"), **fields})
    assert done.status_code == status, done.text
    return HtmlPage(done.text)


@pytest.mark.parametrize("path", ["/runs/a/pause", "/runs/a/resume"])
def test_the_address_of_an_action_leads_to_the_run(w: World, ana: TestClient, path: str) -> None:
    w.start("order", "A", run_id="a")
    done = ana.get(path)
    assert (done.status_code, done.headers["location"]) == (303, "/runs/a")


def test_a_run_that_no_worker_can_take_says_so(w: World, ana: TestClient) -> None:
    w.app.start("order", "A", run_id="a", enqueue=True)
    text = " ".join(w.page(ana, "/runs/a").text.split())
    assert "Ready: it will run when a worker takes it. No running worker knows 'order'" in text


def test_the_status_of_a_run_has_no_signs_of_markdown(w: World, ana: TestClient) -> None:
    @w.app.workflow
    def approve(run: holdfast.Run) -> None:
        run.ask("Approve **E-0**?", {"ok": bool})

    w.start("approve", run_id="a")
    assert "Waiting for an answer to 'Approve E-0?'" in w.page(ana, "/runs/a").text


def test_the_address_of_an_action_on_many_runs_leads_to_the_list(ana: TestClient) -> None:
    done = ana.get("/runs/bulk")
    assert (done.status_code, done.headers["location"]) == (303, "/runs")


def test_a_run_that_is_called_like_the_address_of_a_form_has_its_page(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="bulk")
    assert "Ship A?" in w.page(ana, "/runs/bulk").text


def test_a_run_is_paused_before_its_next_call_and_the_notice_says_so(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    done = ana.post("/runs/a/pause", data={"csrf": csrf_of(ana)})
    assert done.status_code == 303
    assert done.headers["location"] == "/runs/a"
    assert w.status("a") != "paused"
    notice = HtmlPage(ana.get("/start").text).text
    assert "Asked to pause; a worker stops it before its next call" in notice
    assert "No running worker knows 'order'" in notice
    w.work()
    assert w.status("a") == "paused"
    assert w.entries("a", "paused")[0]["by"] == "ana"
    assert w.entries("a", "paused")[0]["via"] == "web"


def test_a_paused_run_is_resumed_by_a_worker_and_not_by_the_page(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    w.app.pause("a", by="ben")
    assert w.status("a") == "paused"
    post(ana, "/runs/a/resume")
    assert w.status("a") == "ready"
    w.work()
    assert w.status("a") == "waiting"


def test_a_cancel_is_confirmed_first_and_carried_out_by_a_worker(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    page = w.page(ana, "/runs/a/cancel")
    assert "Its open gate is closed." in page.text
    assert "Only a rollback can continue a cancelled run." in page.text
    assert w.status("a") == "waiting"
    send(ana, page.form("/cancel"))
    w.work()
    assert w.status("a") == "cancelled"
    assert w.entries("a", "cancelled")[0]["by"] == "ana"


def test_a_failed_run_is_retried_by_a_worker_and_finished_work_is_kept(w: World, ana: TestClient) -> None:
    w.start("convert", 2, run_id="c")
    assert w.status("c") == "failed"
    w.rates["eur"] = 3
    page = w.page(ana, "/runs/c/retry")
    assert "KeyError" in page.text
    send(ana, page.form("/retry"))
    assert w.status("c") != "completed"
    w.work()
    assert w.app.handle("c").result() == 6
    assert w.did == ["convert"]


def test_the_page_executes_nothing_even_if_its_app_has_the_workflows(tmp_path: Path) -> None:
    with world("memory:", tmp_path, page_knows=True) as w:
        ana = w.served.browser("ana")
        w.start("convert", 2, run_id="c")
        w.start("order", "A", run_id="a")
        w.rates["eur"] = 3
        send(ana, w.page(ana, "/runs/c/retry").form("/retry"))
        assert w.status("c") != "completed"
        page = w.page(ana, "/runs/a/rollback?to=pay")
        send(ana, [form for form in page.forms if form.method == "post" and "rollback" in form.action][-1])
        assert w.status("a") == "ready"
        assert w.did == ["convert", ("pay", "A")]
        w.work()
        assert w.did == ["convert", ("pay", "A"), ("take back", "A"), ("pay", "A")]
        assert w.app.handle("c").result() == 6


@pytest.mark.parametrize("action", ["pause", "resume", "cancel", "retry"])
def test_an_action_that_the_state_does_not_allow_is_refused_with_the_state_now(
    w: World, ana: TestClient, action: str
) -> None:
    w.rates["eur"] = 1
    w.start("convert", 2, run_id="c")
    page = post(ana, f"/runs/c/{action}", 409)
    assert "State now" in page.text
    assert "completed" in page.text
    assert w.status("c") == "completed"


def test_a_confirmation_for_a_run_that_cannot_be_changed_has_no_button(w: World, ana: TestClient) -> None:
    w.rates["eur"] = 1
    w.start("convert", 2, run_id="c")
    for action in ("cancel", "retry"):
        page = w.page(ana, f"/runs/c/{action}")
        assert "Not possible now" in page.text
        assert not [form for form in page.forms if action in form.action]


def test_a_run_that_is_executed_cannot_be_resumed(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    claim = w.store.claim("a", owner="worker-3", lease=600)
    assert claim is not None
    page = post(ana, "/runs/a/resume", 409)
    assert "worker-3" in page.text
    claim.release("waiting")


def test_a_run_that_was_deleted_and_created_again_is_not_changed(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    page = w.page(ana, "/runs/a/cancel")
    w.store.delete("a")
    w.start("order", "B", run_id="a")
    done = send(ana, page.form("/cancel"), 409)
    assert "deleted and created again" in done.text
    w.work()
    assert w.status("a") == "waiting"


@pytest.mark.parametrize("name", ["vera", "ben"])
@pytest.mark.parametrize("action", ["pause", "resume", "cancel", "retry", "rollback", "fork"])
def test_acting_needs_the_role_operator(w: World, name: str, action: str) -> None:
    w.start("order", "A", run_id="a")
    browser = w.served.browser(name)
    assert browser.post(f"/runs/a/{action}", data={"csrf": csrf_of(browser)}).status_code == 403
    assert w.status("a") == "waiting"


def test_a_run_that_the_user_may_not_see_does_not_exist(w: World) -> None:
    w.start("order", "A", run_id="a")
    rita = w.served.browser("rita")
    for action in ("cancel", "retry", "rollback", "fork"):
        assert rita.get(f"/runs/a/{action}").status_code == 404
        assert rita.post(f"/runs/a/{action}", data={"csrf": csrf_of(rita)}).status_code == 404
    assert post(rita, "/runs/bulk", 200, action="cancel", run="a").text.count("No runs were chosen") == 1
    w.work()
    assert w.status("a") == "waiting"


@pytest.mark.parametrize("run_id", ["a/b", "..", "~", "ä ö", "<b>x</b>", "a%2Fb", "x?y#z"])
def test_every_id_can_be_acted_on(w: World, ana: TestClient, run_id: str) -> None:
    w.start("order", "A", run_id=run_id)
    from holdfast.web.site import Context

    address = Context.run_url(_Rootless(), run_id, "cancel")  # type: ignore[arg-type]
    page = w.page(ana, address)
    assert run_id in page.text
    send(ana, page.form("/cancel"))
    w.work()
    assert w.status(run_id) == "cancelled"


class _Rootless:
    root = ""

    def url(self, path: str, /, **query: object) -> str:
        from holdfast.web.site import Context

        return Context.url(self, path, **query)  # type: ignore[arg-type]


def test_two_operators_that_cancel_at_once_cancel_once(w: World) -> None:
    w.start("order", "A", run_id="a")
    browsers = [w.served.browser("ana") for _ in range(2)]
    forms = [w.page(browser, "/runs/a/cancel").form("/cancel") for browser in browsers]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda pair: send(*pair), zip(browsers, forms, strict=True)))
    w.work()
    assert w.status("a") == "cancelled"
    assert len(w.entries("a", "cancelled")) == 1


# --- several runs ----------------------------------------------------------------------------------------------------


def test_several_runs_are_listed_before_they_are_changed_and_reported_one_by_one(w: World, ana: TestClient) -> None:
    w.rates["eur"] = 1
    w.start("order", "A", run_id="a")
    w.start("order", "B", run_id="b")
    w.start("convert", 2, run_id="c")
    page = post(ana, "/runs/bulk", 200, action="cancel", run=["a", "b", "c", "unknown"])
    assert "Cancel 3 runs?" in page.text
    assert "1 of 3 will be refused" in page.text
    assert w.status("a") == "waiting"
    results = HtmlPage(send(ana, page.form("/bulk"), 200).text)
    assert "Cancel: 2 done, 1 refused" in results.text
    assert "has ended (completed)" in results.text
    w.work()
    assert [w.status(run_id) for run_id in "abc"] == ["cancelled", "cancelled", "completed"]


def test_a_confirmed_selection_leaves_out_what_was_created_again(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    w.start("order", "B", run_id="b")
    page = post(ana, "/runs/bulk", 200, action="cancel", run=["a", "b"])
    w.store.delete("a")
    w.start("order", "C", run_id="a")
    results = HtmlPage(send(ana, page.form("/bulk"), 200).text)
    assert "1 done, 1 refused" in results.text
    assert "deleted and created again" in results.text
    w.work()
    assert [w.status(run_id) for run_id in "ab"] == ["waiting", "cancelled"]


def test_a_confirmed_selection_reports_runs_that_are_gone(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    page = post(ana, "/runs/bulk", 200, action="pause", run=["a"])
    w.store.delete("a")
    assert "0 done, 1 refused" in send(ana, page.form("/bulk"), 200).text


def test_a_selection_without_incarnations_is_refused(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    post(ana, "/runs/bulk", 400, action="cancel", confirm="1", run=["a"])
    post(ana, "/runs/bulk", 200, action="cancel", confirm="1", run=["a"], incarnation=[""])
    w.work()
    assert w.status("a") == "waiting"


@pytest.mark.parametrize("action", ["delete", "", "rollback"])
def test_an_unknown_action_on_several_runs_is_refused(w: World, ana: TestClient, action: str) -> None:
    post(ana, "/runs/bulk", 400, action=action, run=["a"])


def test_more_runs_than_one_request_may_change_are_refused(w: World, ana: TestClient) -> None:
    post(ana, "/runs/bulk", 400, action="cancel", run=[f"r{number}" for number in range(BULK_MAX + 1)])


def test_a_get_changes_nothing(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    before = w.store.port.run("a")
    for action in ("pause", "resume", "cancel", "retry", "rollback?to=pay", "fork?at=pay"):
        ana.get(f"/runs/a/{action}")
    ana.get("/runs/bulk")
    assert w.store.port.run("a") == before


def test_all_runs_that_fit_the_filter_of_the_list_are_chosen(w: World, ana: TestClient) -> None:
    w.rates["eur"] = 1
    for name in ("a", "b"):
        w.start("order", name, run_id=name)
    w.start("convert", 2, run_id="c")
    page = post(ana, "/runs/bulk", 200, action="cancel", all="1", workflow="order", run="c")
    assert "Cancel 2 runs?" in page.text
    send(ana, page.form("/bulk"), 200)
    w.work()
    assert [w.status(name) for name in "abc"] == ["cancelled", "cancelled", "completed"]


def test_a_filter_that_cannot_be_read_is_refused_and_does_not_mean_all_runs(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    post(ana, "/runs/bulk", 400, action="cancel", all="1", since="yesterday")


def test_the_list_of_runs_leads_to_the_confirmation(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    form = w.page(ana, "/runs").form("/runs/bulk")
    form.set("run", "a")
    done = ana.post(form.action, data=form.submit("action", "pause"))
    assert done.status_code == 200
    assert "Pause 1 run?" in HtmlPage(done.text).text

"""The page of a run: its header and its timeline, of runs of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

import holdfast
from holdfast import formats
from tests.formats.sample_files import SAMPLES
from tests.golden.threads import write_threads
from tests.web.runs_of_all_kinds import HOSTILE, TABS, Page, Stage, client_of, fill, links_with, run_path, say


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    found = Stage()
    fill(found)
    yield found
    found.close()


@pytest.fixture
def fresh() -> Iterator[Stage]:
    found = Stage()
    yield found
    found.close()


def test_every_page_of_every_kind_of_run_is_valid_and_escapes_what_users_stored(stage: Stage) -> None:
    declared = {"declared", "declared-failed"}
    for run in stage.store.runs(limit=100):
        for tab in TABS:
            page = stage.run(run.run_id, tab, status=404 if tab == "graph" and run.run_id not in declared else 200)
            assert "<script>alert" not in page.source, (run.run_id, tab)
            assert "<b>flow" not in page.source
            assert "None" not in page.text or "None" in run.run_id, (run.run_id, tab, page.text)


def test_links_of_a_run_lead_to_pages(stage: Stage) -> None:
    for run_id in ("rolled-back", "agent", "parent", "declared", "a/fork", "by-hand", f"steps {HOSTILE}"):
        pages = [stage.run(run_id, tab) for tab in ("", "state", "ledger", "family")]
        for link in sorted({link for page in pages for link in page.links if link.startswith("/runs/")}):
            assert stage.client.get(link).status_code == 200, (run_id, link)


# --- the header -------------------------------------------------------------------------------------------------------


def test_the_header_says_what_the_run_waits_for_with_a_link(stage: Stage) -> None:
    page = stage.run("gates")
    assert "Waiting for an answer to 'Sure" in page.text
    assert "Gate ask since" in page.text
    assert "expires in" in page.text
    assert links_with(page, "/runs/gates/gates/ask%231")
    parent = stage.run("parent")
    assert links_with(parent, run_path("parent/child:child#1"))
    assert "Event shipped" in stage.run("waiting").text
    assert "Timer sleep" in stage.run("sleeping").text
    assert "Waiting for its start" in stage.run("later").text
    assert "Start of the run begins in " in stage.run("later").text
    assert "Cancel requested by ben" in stage.run("queued").text
    steps = stage.run(f"steps {HOSTILE}")
    assert f"team {HOSTILE} n 1" in steps.text


@pytest.mark.parametrize(("run_id", "expected"), [
    ("gates", ["Pause", "Roll back…", "Fork…", "Cancel…"]),
    ("paused", ["Resume", "Roll back…", "Fork…", "Cancel…"]),
    ("failing", ["Retry…", "Roll back…", "Fork…"]),
    ("answered", ["Roll back…", "Fork…"]),
    ("by-hand", []),
])  # fmt: skip
def test_actions_fit_the_status_and_the_role(stage: Stage, run_id: str, expected: list[str]) -> None:
    head = stage.run(run_id).text.partition("Timeline")[0]
    buttons = ("Pause", "Resume", "Retry…", "Roll back…", "Fork…", "Cancel…")
    assert [name for name in buttons if f" {name} " in head] == expected
    with client_of(stage.app, role="approver") as client:
        seen = Page(client.get(run_path(run_id)).text)
        assert not any(f" {name} " in seen.text for name in buttons if name != "Pause")
        assert seen.forms == []
        assert not links_with(seen, "/rollback") + links_with(seen, "/fork?")


def test_another_user_gets_no_page_of_a_workflow_that_is_not_visible(stage: Stage) -> None:
    with client_of(stage.app, workflows=("refund",)) as client:
        for tab in (*TABS, "live", "journal.json", "state.json"):
            assert client.get(run_path("gates", tab)).status_code == 404, tab
        assert client.get(run_path("forked")).status_code == 200
        assert client.get(run_path("forked", "diff") + "?a=1@by-hand").status_code == 404
    with client_of(stage.app, workflows=("parent",)) as client:
        page = Page(client.get(run_path("parent", "family")).text)
        assert "It has no child runs." in page.text
        assert not links_with(Page(client.get(run_path("parent")).text), "child%3Achild")


def test_a_run_that_was_deleted_is_not_found(fresh: Stage) -> None:
    fresh.store.save("gone", {"a": 1})
    assert fresh.run("gone")
    fresh.store.delete("gone")
    for tab in TABS:
        assert "gone" in fresh.run("gone", tab, status=404).text


def test_a_run_that_is_deleted_while_its_page_is_made_is_not_found(
    fresh: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, tab in enumerate(TABS):
        run_id = f"gone-{number}"
        fresh.store.save(run_id, {"a": 1})
        run = fresh.store.port.run
        seen: list[str] = []

        def read(name: str, run_id: str = run_id, run: Any = run, seen: list[str] = seen) -> Any:
            seen.append(name)
            if len(seen) == 3:
                fresh.store.delete(run_id)
            return run(name)

        monkeypatch.setattr(fresh.store.port, "run", read)
        answer = fresh.client.get(run_path(run_id, tab))
        monkeypatch.undo()
        assert answer.status_code in (200, 404), (tab, answer.text)


def test_the_mark_of_a_run_changes_with_every_commit(fresh: Stage) -> None:
    @fresh.app.workflow
    def work(run: Any) -> object:
        return run.ask("Sure?", bool)

    def mark() -> str:
        link = next(part for part in fresh.run("r").source.split('"') if part.startswith("/runs/r/live?"))
        return parse_qs(urlsplit(link).query)["mark"][0]

    fresh.app.start(work, run_id="r")
    before = mark()
    assert mark() == before
    fresh.app.answer("r", True, by="ben", enqueue=True)
    assert mark() != before, "the answer is in the inbox only"
    assert fresh.client.head("/runs/r/live").status_code == 200


# --- the timeline -----------------------------------------------------------------------------------------------------


def test_the_timeline_shows_attempts_answers_effects_and_errors(stage: Stage) -> None:
    failing = stage.run("failing")
    assert "step fail" in failing.text
    assert "2 attempts" in failing.text
    assert "Traceback (most recent call last)" in failing.text
    answered = stage.run("answered")
    assert "by ben" in answered.text
    assert "waited for an answer (ask)" in answered.text
    assert "3 d" in answered.text
    rolled = stage.run("rolled-back")
    assert "taken back" in rolled.text
    assert "rollback to position" in rolled.text
    assert "by carl" in rolled.text
    assert "idempotency key" in rolled.text
    parallel = stage.run("parallel")
    assert "map 2 branches" in parallel.text
    assert 'class="call d1"' in parallel.source


def test_bars_share_one_scale_on_which_waiting_is_striped_and_folded(stage: Stage) -> None:
    page = stage.run("answered")
    assert page.source.count('id="stripes"') == 1
    assert 'fill="url(#stripes)"' in page.source
    assert page.source.count('<svg class="bar"') >= 4


def test_an_answer_says_where_it_came_from(fresh: Stage) -> None:
    @fresh.app.workflow
    def work(run: Any) -> object:
        return run.ask("Sure?", bool)

    fresh.app.start(work, run_id="r")
    fresh.app.answer("r", True, by="ben", via="web")
    assert "by ben via web" in fresh.run("r").text


def test_a_loop_is_one_row_that_can_be_opened_page_by_page(fresh: Stage) -> None:
    @fresh.app.workflow
    def agent(run: Any, turns: int) -> object:
        for turn in run.loop():
            run.state["turn"] = run.step(say, f"thought {turn}")
            if turn == turns:
                return run.ask("Enough?", bool)
        return None

    fresh.app.start(agent, 300, run_id="long")
    page = fresh.run("long")
    assert "turns 1 to 299" in page.text
    assert "loop 300 turns" in page.text
    assert page.source.count("<tr id=") < 12
    assert "thought 12 " not in page.text
    names, found = list(range(1, 300)), list[int]()
    link = links_with(page, "from=3")[0]
    for _ in range(10):
        window = fresh.get(link)
        found += [name for name in names if f">turn {name}</span>" in window.source]
        if "Later rows" not in window.text or found[-1] == 299:
            break
        link = links_with(window, "/runs/long?from=")[-1]
    assert found == names


def test_a_long_run_is_shown_from_its_end_and_every_call_is_on_one_page(fresh: Stage) -> None:
    @fresh.app.workflow
    def work(run: Any) -> object:
        for number in range(450):
            run.step(say, f"word {number}", name=f"say-{number:03}")
        return run.ask("Enough?", bool)

    fresh.app.start(work, run_id="long")
    pages = [fresh.run("long")]
    while links_with(pages[-1], "/runs/long?to=") and len(pages) < 10:
        pages.append(fresh.get(links_with(pages[-1], "/runs/long?to=")[0]))
    assert len(pages) == 3
    assert "Waiting for an answer to 'Enough?'" in pages[-1].text, "the header is about the run, not about the page"
    for number in range(450):
        assert sum(page.text.count(f"step say-{number:03}") for page in pages) == 1, number
    assert "step say-449" in pages[0].text
    assert len(pages[0].source) < 400_000


def test_positions_that_are_not_in_the_journal_are_refused(stage: Stage) -> None:
    stage.run("gates", query="from=x", status=400)
    stage.run("gates", query="from=0", status=400)
    assert stage.run("gates", query="from=99999999")
    assert stage.run("by-hand", query="from=1", status=400)


def test_a_run_without_a_workflow_shows_its_entries_checkpoints_and_effects(stage: Stage) -> None:
    page = stage.run("by-hand")
    for text in ("entry note", "checkpoint step 2", "effect", "in doubt"):
        assert text in page.text, text
    assert "no workflow" in page.text


# --- other runs -------------------------------------------------------------------------------------------------------


def test_threads_of_langgraph_have_pages() -> None:
    with holdfast.open("memory:") as store, holdfast.App(store) as app, client_of(app) as client:
        write_threads(store)
        for run in store.runs(limit=100):
            for tab in TABS:
                answer = client.get(run_path(run.run_id, tab))
                assert answer.status_code == (404 if tab == "graph" else 200), (run.run_id, tab, answer.text[-400:])
                Page(answer.text)
        page = Page(client.get(run_path("interrupted")).text)
        assert "Interrupt" in page.text
        assert "A-17" in page.text
        assert not links_with(page, "/gates/")
        assert "has no journal" in Page(client.get(run_path("interrupted", "journal")).text).text


@pytest.mark.parametrize(("system", "folder"), [
    ("car", "seed0-car"), ("simple_agents", "seed1-simple-agents"), ("brainwires", "seed2-brainwires"),
    ("clawdia", "seed4-agent-sdk"),
])  # fmt: skip
def test_imported_runs_have_pages(system: str, folder: str) -> None:
    with holdfast.open("memory:") as store, holdfast.App(store) as app, client_of(app) as client:
        formats.import_dir(system, SAMPLES / folder, store)
        for run in store.runs():
            for tab in TABS:
                answer = client.get(run_path(run.run_id, tab))
                assert answer.status_code in ((200, 404) if tab == "graph" else (200,)), (run.run_id, tab)
                Page(answer.text)


def test_ids_with_any_sign_have_pages(fresh: Stage) -> None:
    for run_id in (".", "..", "~", "a/b", "a%2Fb", "a?b#c", "ü é", "%", "journal", "bulk", "x" * 500):
        fresh.store.save(run_id, {"id": run_id})
        page = fresh.get(f"/runs?prefix={quote(run_id, safe='')}")
        link = next(one for one in page.links if one.startswith("/runs/") and "start" not in one)
        seen = fresh.get(link)
        assert run_id in seen.text
        for tab in links_with(seen, "/state") + links_with(seen, "/journal") + links_with(seen, "/family"):
            assert fresh.get(tab), (run_id, tab)

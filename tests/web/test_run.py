"""The pages of a run: what they show of runs of every kind, page by page, whatever the run contains."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import msgspec
import pytest

import holdfast
from holdfast import formats
from holdfast.model.rows import CheckpointRow, EffectRow, EntryRow
from tests.formats.sample_files import SAMPLES
from tests.golden.threads import write_threads
from tests.web.runs_of_all_kinds import HOSTILE, TABS, Page, Stage, client_of, fill, run_path, say


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


def links_with(page: Page, *parts: str) -> list[str]:
    return [link for link in page.links if all(part in link for part in parts)]


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
        page = stage.run(run_id)
        for link in sorted({link for link in page.links if link.startswith("/runs/")}):
            assert stage.client.get(link).status_code == 200, (run_id, link)


# --- the header ------------------------------------------------------------------------------------------------------


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


# --- the timeline ----------------------------------------------------------------------------------------------------


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
        found += [name for name in names if f"turn {name} done" in window.text]
        if "Later rows" not in window.text or "turn 300" in window.text:
            break
        link = links_with(window, "from=")[-1]
    assert found == names


def test_a_long_run_is_shown_from_its_end_and_every_call_is_on_one_page(fresh: Stage) -> None:
    @fresh.app.workflow
    def work(run: Any) -> object:
        for number in range(450):
            run.step(say, f"word {number}", name=f"say-{number:03}")
        return run.ask("Enough?", bool)

    fresh.app.start(work, run_id="long")
    pages = [fresh.run("long")]
    while links_with(pages[-1], "to=") and len(pages) < 10:
        pages.append(fresh.get(links_with(pages[-1], "to=")[0]))
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


# --- journal and logs ------------------------------------------------------------------------------------------------


def test_the_journal_is_listed_from_either_end_and_by_kind(fresh: Stage) -> None:
    fresh.store.append("r", [{"kind": "even" if number % 2 else "odd", "n": number} for number in range(1, 251)])
    newest = fresh.run("r", "journal")
    assert newest.text.index('{"n": 250}') < newest.text.index('{"n": 249}')
    second = fresh.get(links_with(newest, "journal", "at=")[0])
    assert '{"n": 150}' in second.text or " 150 " in second.text
    oldest = fresh.run("r", "journal", "order=oldest")
    assert oldest.source.count('id="entry-') == 200, "an entry and its data"
    assert 'id="entry-100"' in oldest.source
    assert 'id="entry-101"' not in oldest.source
    odd = fresh.run("r", "journal", "kind=odd")
    assert 'id="entry-249"' in odd.source
    assert 'id="entry-250"' not in odd.source
    assert "No entries of this kind" in fresh.run("r", "journal", "kind=missing").text
    fresh.run("r", "journal", "at=x", status=400)


def test_the_journal_can_be_downloaded_as_json(stage: Stage, fresh: Stage) -> None:
    answer = stage.client.get(run_path(f"steps {HOSTILE}", "journal.json"))
    assert answer.headers["content-type"] == "application/json"
    assert "attachment" in answer.headers["content-disposition"]
    entries = answer.json()
    assert [entry["kind"] for entry in entries][:3] == ["started", "log", "step"]
    assert entries[0]["data"]["args"] == [HOSTILE]
    fresh.store.append("r", [{"kind": "n", "n": number} for number in range(230)])
    assert [entry["data"]["n"] for entry in fresh.client.get("/runs/r/journal.json").json()] == list(range(230))
    fresh.store.save("empty", {})
    assert fresh.client.get("/runs/empty/journal.json").json() == []


def test_pruned_entries_are_one_line(fresh: Stage) -> None:
    @fresh.app.workflow
    def agent(run: Any) -> object:
        for turn in run.loop():
            run.state["turn"] = run.step(say, str(turn))
            if turn == 120:
                return run.ask("Enough?", bool)
        return None

    fresh.app.start(agent, run_id="r")
    fresh.store.prune("r", holdfast.Keep(last=1, journal=True))
    for query in ("", "order=oldest", "kind=pruned"):
        assert "\N{EN DASH}" in fresh.run("r", "journal", query).text
    assert fresh.run("r")
    assert fresh.run("r", query="from=1")
    assert fresh.run("r", query="from=50")
    assert any(entry["kind"] == "pruned" for entry in fresh.client.get("/runs/r/journal.json").json())


def test_log_lines_are_found_by_text_and_level(stage: Stage, fresh: Stage) -> None:
    page = stage.run(f"steps {HOSTILE}", "logs")
    assert f"warning hello {HOSTILE}" in page.text
    assert "No log lines" in stage.run("gates", "logs").text

    @fresh.app.workflow
    def talk(run: Any) -> None:
        for number in range(150):
            run.log(f"line {number}", level="error" if number == 7 else "info", number=number)

    fresh.app.start(talk, run_id="r")
    first = fresh.run("r", "logs")
    assert first.source.count('<li id="log-') == 100
    assert "line 149" in first.text
    second = fresh.get(links_with(first, "logs", "at=")[0])
    assert second.source.count('<li id="log-') == 50
    assert fresh.run("r", "logs", "q=LINE+77").source.count('<li id="log-') == 1
    assert "line 7" in fresh.run("r", "logs", "level=error").text
    assert "No matching log lines" in fresh.run("r", "logs", "q=nothing").text


# --- state and changes -----------------------------------------------------------------------------------------------


def test_the_state_is_a_tree_with_search(fresh: Stage) -> None:
    state = {"order": {"id": "A-17", "notes": ["first", "Second"]}, "a/b~c": {"x": 1}, "n": None, "tuple": (1, 2)}
    fresh.store.save("r", state)
    page = fresh.run("r", "state")
    assert "order 2 keys id: A-17 notes 2 items [0]: first [1]: Second" in page.text
    found = fresh.run("r", "state", "q=SECOND")
    assert "1 place" in found.text
    assert "[1]: Second" in found.text
    assert "A-17" not in found.text.partition("Checkpoints")[0].partition("1 place")[2]
    assert "0 places" in fresh.run("r", "state", "q=zzz").text
    part = fresh.run("r", "state", "path=/a~1b~0c")
    assert "x: 1" in part.text
    assert "A-17" not in part.text
    fresh.run("r", "state", "path=/missing", status=404)
    fresh.run("r", "state", "path=order", status=404)
    assert json.loads(fresh.client.get("/runs/r/state.json").text)["order"] == state["order"]


def test_large_states_are_shown_in_parts(fresh: Stage) -> None:
    words = [f"word {number}" for number in range(1_000)]
    deep: Any = "bottom"
    for _ in range(100):
        deep = {"in": deep}
    fresh.store.save(
        "r", {"words": words, "text": "0123456789" * 5_000, "deep": deep, "many": [{"n": n} for n in words]}
    )
    page = fresh.run("r", "state")
    assert len(page.source) < 150_000
    assert "950 more" in page.text
    assert "48,000 more characters" in page.text
    more = fresh.get(links_with(page, "path=%2Fwords", "at=50")[0])
    assert "[50]: word 50" in more.text
    text = fresh.get(links_with(page, "path=%2Ftext")[0])
    assert "30,000 more characters" in text.text
    rest = fresh.get(links_with(text, "path=%2Ftext", "at=20000")[0])
    assert "10,000 more characters" in rest.text
    assert "word 999" in fresh.run("r", "state", "q=word+999").text
    assert "bottom" in fresh.run("r", "state", "path=/deep" + "/in" * 90).text


def test_any_checkpoint_can_be_chosen(fresh: Stage) -> None:
    for number in range(60):
        fresh.store.save("r", {"n": number}, next_node=f"node-{number}")
    first = fresh.run("r", "state")
    assert "n: 59" in first.text
    assert "node-59" in first.text
    older = fresh.get(links_with(first, "older=")[0])
    assert "node-0" in older.text
    assert "n: 3 " in fresh.run("r", "state", "checkpoint=4").text
    by_id = next(iter(fresh.store.history("r"))).checkpoint_id
    assert "n: 0 " in fresh.run("r", "state", f"checkpoint={by_id}").text
    fresh.run("r", "state", "checkpoint=missing", status=404)
    fresh.store.save("r", {"in": "lane"}, lane="drafts")
    assert "lane drafts" in fresh.run("r", "state").text
    assert "in: lane" in fresh.run("r", "state", "checkpoint=61").text
    assert (
        "No checkpoint yet." in fresh.run("empty", "state").text if fresh.store.append("empty", [{"kind": "n"}]) else 1
    )


def test_any_two_checkpoints_can_be_compared(fresh: Stage) -> None:
    long = "\n".join(f"line {number}" for number in range(50))
    fresh.store.save("r", {"a": 1, "b": [1, 2], "text": long, "word": "x" * 100 + "old" + "y" * 100})
    fresh.store.save("r", {"a": 1, "b": [1, 2, 3], "text": long.replace("line 7\n", "line seven\n"), "new": {"k": "v"}})
    fresh.store.save("r", {"a": 2, "b": [], "text": "short", "word": "x" * 100 + "new" + "y" * 100})
    page = fresh.run("r", "diff", "a=1&b=2")
    assert "added b[2] 3" in page.text
    assert "removed word" in page.text
    assert "- line 7" in page.text
    assert "+ line seven" in page.text
    assert "line 40" not in page.text, "only the lines that differ, and some around them"
    swapped = fresh.run("r", "diff", "a=2&b=1")
    assert "removed b[2] 3" in swapped.text
    newest = fresh.run("r", "diff")
    assert "changed a 1 2" in newest.text
    whole = fresh.run("r", "diff", "a=1&b=3")
    assert "oldyyy" in whole.text
    assert "newyyy" in whole.text
    assert "No changes." in fresh.run("r", "diff", "a=2&b=2").text
    fresh.run("r", "diff", "a=1&b=77", status=404)
    assert "It is the first checkpoint" in fresh.run("r", "diff", "b=1").text


def test_checkpoints_of_forks_can_be_compared_too(stage: Stage) -> None:
    last = list(stage.store.history("a/fork"))[-1].number
    page = stage.run("a/fork", "diff", f"a=1@forked&b={last}")
    assert 'changed order "A-18" "B"' in page.text
    assert '<option value="1@forked" selected>' in page.source
    assert 'added order "A-18"' not in page.text


def test_many_changes_are_shown_in_pages(fresh: Stage) -> None:
    fresh.store.save("r", {str(number): 0 for number in range(250)})
    fresh.store.save("r", {str(number): 1 for number in range(250)})
    page = fresh.run("r", "diff")
    assert "250 changes, showing 1 to 100." in page.text
    last = fresh.get(links_with(fresh.get(links_with(page, "at=100")[0]), "at=200")[0])
    assert "showing 201 to 250." in last.text


# --- the ledger, the family and the graph ----------------------------------------------------------------------------


def test_the_ledger_shows_doubt_with_its_gate_and_what_was_undone(stage: Stage) -> None:
    page = stage.run("doubt", "ledger")
    assert "in doubt" in page.text
    assert "it is unknown whether it happened" in page.text
    assert links_with(page, "/runs/doubt/gates/")
    assert "1250" in page.text
    undone = stage.run("rolled-back", "ledger")
    assert "It happened and was undone." in undone.text
    assert "take_back" in undone.text
    assert "idempotency key" in undone.text
    assert "No effects." in stage.run("gates", "ledger").text


def test_a_long_ledger_has_pages(fresh: Stage) -> None:
    fresh.store.save("r", {})
    for number in range(120):
        fresh.store.mark_done("r", f"effect-{number:03}", tool="mail")
    pages = [fresh.run("r", "ledger")]
    while links_with(pages[-1], "ledger?at="):
        pages.append(fresh.get(links_with(pages[-1], "ledger?at=")[0]))
    assert len(pages) == 3
    for number in range(120):
        assert sum(f">effect-{number:03}</h3>" in page.source for page in pages) == 1


def test_the_family_links_parents_children_and_forks(stage: Stage) -> None:
    parent = stage.run("parent", "family")
    assert links_with(parent, run_path("parent/child:child#1"))
    child = stage.run("parent/child:child#1", "family")
    assert "/runs/parent" in child.links
    fork = stage.run("a/fork", "family")
    assert "/runs/forked" in fork.links
    assert "forked at journal.3" in fork.text
    assert "this run" in fork.text
    assert "It has no forks and is not one." in stage.run("gates", "family").text


def test_the_graph_shows_what_is_done_and_where_the_run_is(stage: Stage) -> None:
    page = stage.run("declared", "graph")
    assert "✓ quote" in page.text
    assert "▶ approve" in page.text
    assert "approve ask , current leads to paid if a.ok = True" in page.text
    assert "the run is at approve" in page.source
    failed = stage.run("declared-failed", "graph")
    assert "✗ denied" in failed.text
    assert "Graph" in stage.run("declared").text
    assert " Graph " not in stage.run("gates").text


# --- other runs ------------------------------------------------------------------------------------------------------


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


def damage(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, kind: type[Any], number: int, *, missing: bool = False
) -> None:
    """Let the store return a damaged row, or leave one out."""
    port = stage.store.port
    rows, found = port.rows, port.find_checkpoints

    def altered(row: Any) -> list[Any]:
        if getattr(row, row.__struct_fields__[0]) != number or type(row) is not kind:
            return [row]
        return [] if missing else [msgspec.structs.replace(row, seal=row.seal ^ 1)]

    def damaged_rows(wanted: type[Any], *args: Any, **kwargs: Any) -> list[Any]:
        return [part for row in rows(wanted, *args, **kwargs) for part in altered(row)]

    def damaged_checkpoints(query: Any) -> list[Any]:
        return [(run, part) for run, row in found(query) for part in altered(row)]

    monkeypatch.setattr(port, "rows", damaged_rows)
    monkeypatch.setattr(port, "find_checkpoints", damaged_checkpoints)


@pytest.mark.parametrize("missing", [False, True])
def test_a_damaged_entry_is_reported_and_the_rest_is_shown(
    fresh: Stage, monkeypatch: pytest.MonkeyPatch, missing: bool
) -> None:
    @fresh.app.workflow
    def work(run: Any) -> object:
        for word in "abcdef":
            run.step(say, word, name=f"say-{word}")
        run.state["x"] = 1
        run.checkpoint()
        run.effect(say, "x")
        return run.ask("Sure?", bool)

    fresh.app.start(work, run_id="r")
    damage(fresh, monkeypatch, EntryRow, 3, missing=missing)
    for tab in TABS[:-2]:
        if tab != "graph":
            page = fresh.run("r", tab)
            if not missing:
                assert "cannot be read" in page.text, tab
                assert "entry 3" in page.text
    journal = fresh.run("r", "journal", "order=oldest")
    assert "say-a#1" in journal.text
    assert "say-b#1" not in journal.text
    assert "say-c#1" in journal.text
    assert "missing" in journal.text if missing else "entry 3" in journal.text
    assert "error" in fresh.client.get("/runs/r/journal.json").json()[-1]
    assert "x: 1" in fresh.run("r", "state").text
    assert "say" in fresh.run("r", "ledger").text


def test_a_damaged_checkpoint_or_effect_does_not_hide_the_others(fresh: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        fresh.store.save("r", {"n": number})
        fresh.store.mark_done("r", f"effect-{number}", tool="mail")
    damage(fresh, monkeypatch, CheckpointRow, 2)
    page = fresh.run("r", "state")
    assert "n: 2" in page.text
    assert "number 2" in page.text
    assert "This state cannot be read" in fresh.run("r", "state", "checkpoint=2").text
    assert "cannot be compared" in fresh.run("r", "diff", "a=1&b=2").text
    monkeypatch.undo()
    damage(fresh, monkeypatch, EffectRow, 2)
    ledger = fresh.run("r", "ledger")
    assert "effect-0" in ledger.text
    assert "effect 'effect-1' of run 'r'" in ledger.text
    assert "cannot be read" in fresh.run("r").text


def test_ids_with_any_sign_have_pages(fresh: Stage) -> None:
    for run_id in (".", "..", "~", "a/b", "a%2Fb", "a?b#c", "ü é", "%", "journal", "bulk", "x" * 500):
        fresh.store.save(run_id, {"id": run_id})
        page = fresh.get(f"/runs?prefix={quote(run_id, safe='')}")
        link = next(one for one in page.links if one.startswith("/runs/") and "start" not in one)
        seen = fresh.get(link)
        assert run_id in seen.text
        for tab in links_with(seen, "/state") + links_with(seen, "/journal") + links_with(seen, "/family"):
            assert fresh.get(tab), (run_id, tab)

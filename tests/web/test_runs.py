"""The list of runs: filters in the address, counts, pages, what each run waits for, and what a user may see."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import pytest

import holdfast
from holdfast.errors import InvalidInput
from holdfast.inspect import run_list
from holdfast.model.rows import RunRow
from holdfast.store.port import RunCounts
from holdfast.web import User
from holdfast.web.run_filter import filter_text, matching_runs
from holdfast.web.site import Context
from tests.web.runs_of_all_kinds import HOSTILE, Page, Stage, client_of, fill


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    found = Stage()
    fill(found)
    yield found
    found.close()


@pytest.fixture
def many() -> Iterator[Stage]:
    """Runs run-000 to run-129, saved by hand, one every minute."""
    found = Stage()
    for number in range(130):
        workflow, team = f"w{number % 3}", "ab"[number % 2]
        found.store.save(f"run-{number:03}", {}, workflow=workflow, metadata={"team": team, "n": number})
        found.clock.advance(60)
    yield found
    found.close()


def runs_in(page: Page) -> list[str]:
    """The runs that a page lists, in order."""
    found = []
    for link in page.links:
        path = urlsplit(link).path
        if path.startswith("/runs/") and path.count("/") == 2:
            found.append(path.removeprefix("/runs/"))
    return found


def link_to(page: Page, **query: str) -> str:
    """The link of a page whose query has these values."""
    for link in page.links:
        given = {name: values[-1] for name, values in parse_qs(urlsplit(link).query).items()}
        if query.items() <= given.items():
            return link
    raise AssertionError(f"no link with {query}")


def test_each_run_is_listed_with_its_workflow_status_and_what_it_waits_for(stage: Stage) -> None:
    page = stage.get("/runs")
    for text in (
        "Sure",
        "child run parent/child:child#1",
        "the event shipped",
        "the timer sleep",
        "StepFailed: step 'fail#1' failed after 2 attempts: ValueError: no",
        "by carl",
        "waits for a worker",
        "Did doubtful happen?",
    ):
        assert text in page.text, text
    assert "<script>alert" not in page.source
    assert HOSTILE in page.text
    assert runs_in(page)[0] == "by-hand"


def test_statuses_are_chips_with_counts_that_can_be_combined(stage: Stage) -> None:
    page = stage.get("/runs")
    counts = stage.store.counts().runs
    for status, count in counts.items():
        assert f"{status.replace('_', ' ')} {count}" in page.text
    failed = stage.get(link_to(page, status="failed"))
    assert sorted(runs_in(failed)) == ["declared-failed", "failing"]
    both = stage.get("/runs?" + urlencode({"status": ["failed", "paused"]}, doseq=True))
    assert sorted(runs_in(both)) == ["declared-failed", "failing", "paused"]
    assert stage.get("/runs?status=nonsense").text.count("completed") > 0


def test_an_estimated_count_is_shown_as_one(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = RunCounts({"completed": 987_654, "failed": 1_234}, frozenset({"completed"}))
    monkeypatch.setattr(stage.store.port, "count_runs", lambda: counts)
    text = stage.get("/runs").text
    assert "completed about 990,000" in text
    assert "failed 1,234" in text


def test_quick_filters_find_runs_that_wait_for_a_person(stage: Stage) -> None:
    page = stage.get(link_to(stage.get("/runs"), waits="person"))
    found = set(runs_in(page))
    assert {"gates", "doubt", "declared", "agent", "parallel"} <= found
    assert not {"sleeping", "waiting", "parent", "failing"} & found


@pytest.mark.parametrize(("query", "expected"), [
    ({"workflow": "w1", "prefix": "run-00"}, ["run-007", "run-004", "run-001"]),
    ({"meta": ["team=a", "n=4"]}, ["run-004"]),
    ({"meta": 'team="b"', "prefix": "run-12"}, ["run-129", "run-127", "run-125", "run-123", "run-121"]),
    ({"q": "N-12", "meta": "team=a"}, ["run-128", "run-126", "run-124", "run-122", "run-120"]),
    ({"q": "n=77"}, ["run-077"]),
    ({"workflow": "none"}, []),
])  # fmt: skip
def test_filters_by_workflow_metadata_prefix_and_text(many: Stage, query: dict[str, Any], expected: list[str]) -> None:
    page = many.get("/runs?" + urlencode(query, doseq=True))
    assert runs_in(page) == expected


def test_filters_by_time(many: Stage) -> None:
    created = {run.run_id: run.created_at for run in many.store.runs(limit=200)}
    since, until = created["run-040"], created["run-043"]
    query = urlencode({"since": f"{since:%Y-%m-%d %H:%M:%S.%f}", "until": until.isoformat()})
    assert runs_in(many.get(f"/runs?{query}")) == ["run-043", "run-042", "run-041", "run-040"]
    now = dt.datetime.now(dt.UTC)
    assert len(runs_in(many.get("/runs?created=hour"))) == 50, "the clock of these runs is ahead"
    assert runs_in(many.get("/runs?" + urlencode({"until": (now - dt.timedelta(days=1)).isoformat()}))) == []


def test_a_wrong_filter_is_explained_at_its_field(many: Stage) -> None:
    for query, text in (
        ("since=yesterday", "Write a time such as"),
        ("meta=team", "'team' has no value; write key=value"),
        ("prefix=%00", "control character"),
    ):
        page = many.get(f"/runs?{query}", 400)
        assert text in page.text
        assert 'aria-invalid="true"' in page.source
        assert runs_in(page) == []


def test_pages_lead_to_older_runs_and_back(many: Stage) -> None:
    first = many.get("/runs")
    second = many.get(next(link for link in first.links if "before=" in link))
    third = many.get(next(link for link in second.links if "before=" in link and "trail=0." in link))
    assert runs_in(first) + runs_in(second) + runs_in(third) == [f"run-{number:03}" for number in range(129, -1, -1)]
    newer = next(link for link in third.links if link.startswith("/runs?before="))
    assert runs_in(many.get(newer)) == runs_in(second)
    assert runs_in(many.get(next(link for link in second.links if link == "/runs"))) == runs_in(first)


def test_a_search_that_stops_early_says_so_and_can_be_continued(many: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_list, "SCANNED_MAX", 100)
    page = many.get("/runs?q=run-02")
    assert "Searched back to" in page.text
    assert "Ids that begin with “run-02”" in page.text, "old ids are found by their beginning"
    older = many.get(next(link for link in page.links if "before=" in link))
    assert runs_in(older) == [f"run-{number:03}" for number in range(29, 19, -1)]


@pytest.mark.parametrize("workflows", [("w1",), ("w1", "other"), ("w1*",), ("?1",)])
def test_runs_that_a_user_may_not_see_are_not_listed_nor_counted(many: Stage, workflows: tuple[str, ...]) -> None:
    with client_of(many.app, workflows=workflows) as client:
        page = Page(client.get("/runs").text)
        assert runs_in(page) == [f"run-{number:03}" for number in range(129, -1, -1) if number % 3 == 1]
        assert "130" not in page.text
        assert runs_in(Page(client.get("/runs?workflow=w2").text)) == []
        assert runs_in(Page(client.get("/runs?q=run-002").text)) == []
        assert client.get("/runs/run-002").status_code == 404
        assert client.get("/runs/run-001").status_code == 200


def test_the_runs_of_the_library_are_listed_and_counted_only_on_request(
    many: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        many.store.save(f"notify/{number}", {}, workflow="holdfast.notify")
    page = many.get("/runs")
    assert runs_in(page) == [f"run-{number:03}" for number in range(129, 79, -1)]
    assert "ready 130" in " ".join(page.text.split())
    assert "Also Holdfast's own runs" in page.text
    shown = many.get(link_to(page, own="1"))
    assert runs_in(shown)[0] == "notify%2F59"
    assert "ready 190" in " ".join(shown.text.split())
    assert len(runs_in(many.get("/runs?workflow=holdfast.notify"))) == 50
    monkeypatch.setattr("holdfast.web.pages.runs.OWN_COUNTED_MAX", 59)
    assert "ready 1" not in " ".join(many.get("/runs").text.split())


def test_a_change_behind_many_runs_of_the_library_is_noticed(many: Stage) -> None:
    for number in range(60):
        many.store.save(f"notify/{number}", {}, workflow="holdfast.notify")
    wanted = run_list.RunFilter(hidden=("holdfast.notify",))
    before = run_list.read_marks(many.store, wanted)
    assert len(before) == run_list.PAGE
    many.store.save("run-129", {"changed": True})
    assert run_list.read_marks(many.store, wanted) != before


def test_only_operators_get_the_form_that_acts_on_many_runs(many: Stage) -> None:
    page = many.get("/runs?status=ready")
    assert page.forms == ["/runs/bulk"]
    assert page.source.count('name="run"') == 50
    for action in ("pause", "resume", "retry", "cancel"):
        assert f'name="action" value="{action}"' in page.source
    with client_of(many.app, role="approver") as client:
        seen = Page(client.get("/runs").text)
        assert seen.forms == []
        assert 'name="run"' not in seen.source


def test_the_runs_of_a_filter_can_be_taken_together(many: Stage) -> None:
    context = context_of(many)
    found, more = matching_runs(context, {"workflow": ["w1"], "meta": ["team=a"]}, 500)
    assert found == [f"run-{number:03}" for number in range(129, -1, -1) if number % 6 == 4]
    assert not more
    assert matching_runs(context, {}, 70) == ([f"run-{number:03}" for number in range(129, 59, -1)], True)
    with pytest.raises(InvalidInput, match="has no value"):
        matching_runs(context, {"meta": ["x"]}, 70)


def context_of(stage: Stage) -> Context:
    """A context as a request has it."""

    class OfSite:
        app, store, mask = stage.app, stage.store, ()

    context = object.__new__(Context)
    context.site = OfSite()  # type: ignore[assignment]
    context.user = User(name="ana", role="operator")
    return context


def test_the_mark_changes_with_the_listed_runs_and_the_counts(many: Stage) -> None:
    def mark(path: str) -> str:
        link = next(part for part in many.get(path).source.split('"') if part.startswith("/live/runs?"))
        return parse_qs(urlsplit(link.replace("&amp;", "&")).query)["mark"][0]

    before, older = mark("/runs"), mark("/runs?before=20")
    assert mark("/runs") == before
    many.store.save("run-129", {"n": 1})
    assert mark("/runs") != before
    assert mark("/runs?before=20") == older
    many.store.save("new", {})
    assert mark("/runs?before=20") != older, "the counts have changed"


def test_a_damaged_run_does_not_hide_the_others(many: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    port = many.store.port
    runs = port.runs

    def damaged(query: Any) -> list[RunRow]:
        rows = runs(query)
        return [msgspec.structs.replace(row, step=row.step + 1) if row.run_id == "run-128" else row for row in rows]

    monkeypatch.setattr(port, "runs", damaged)
    page = many.get("/runs")
    assert runs_in(page)[:3] == ["run-129", "run-128", "run-127"]
    assert "damaged" in page.text


def test_an_empty_store_says_that_there_are_no_runs() -> None:
    stage = Stage()
    assert "No runs yet." in stage.get("/runs").text
    assert "No matching runs." in stage.get("/runs?status=failed").text
    stage.close()


def test_a_filter_is_read_from_forms_and_addresses_alike() -> None:
    text = filter_text(
        {"status": ["failed", "failed", "x"], "q": ["", " a "], "meta": ["k=1", ""], "created": ["never"]}
    )
    assert text.query() == {"status": ["failed"], "q": "a", "meta": ["k=1"]}
    assert filter_text({}).is_empty


def test_a_store_in_a_file_has_the_same_list(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:{tmp_path}/runs.db") as store, holdfast.App(store) as app, client_of(app) as client:
        for number in range(60):
            store.save(f"run-{number:03}", {}, workflow="w")
        page = Page(client.get("/runs?workflow=w").text)
        assert runs_in(page) == [f"run-{number:03}" for number in range(59, 9, -1)]
        answer = client.get("/runs?" + urlencode({"until": "2020-01-01"}))
        assert runs_in(Page(answer.text)) == []

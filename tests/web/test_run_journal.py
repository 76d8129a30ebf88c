"""The journal, the log lines and the ledger of a run, page by page, also if a part is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.model.rows import CheckpointRow, EffectRow, EntryRow
from tests.web.runs_of_all_kinds import HOSTILE, TABS, Stage, fill, links_with, run_path, say


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


def test_the_journal_is_listed_from_either_end_and_by_kind(fresh: Stage) -> None:
    fresh.store.append("r", [{"kind": "odd" if number % 2 else "even", "n": number} for number in range(1, 251)])
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


# --- the ledger -------------------------------------------------------------------------------------------------------


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


# --- damage -----------------------------------------------------------------------------------------------------------


def damage(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, kind: type[Any], number: int, *, missing: bool = False
) -> None:
    """Let the store return a damaged row, or leave one out."""
    port = stage.store.port
    rows, found, checkpoint = port.rows, port.find_checkpoints, port.checkpoint

    def altered(row: Any) -> list[Any]:
        if getattr(row, row.__struct_fields__[0]) != number or type(row) is not kind:
            return [row]
        return [] if missing else [msgspec.structs.replace(row, seal=row.seal ^ 1)]

    def damaged_rows(wanted: type[Any], *args: Any, **kwargs: Any) -> list[Any]:
        return [part for row in rows(wanted, *args, **kwargs) for part in altered(row)]

    def damaged_checkpoints(query: Any) -> list[Any]:
        return [(run, part) for run, row in found(query) for part in altered(row)]

    def damaged_checkpoint(*args: Any, **kwargs: Any) -> Any:
        chosen = checkpoint(*args, **kwargs)
        parts = [] if chosen is None or chosen.checkpoint is None else altered(chosen.checkpoint)
        return chosen._replace(checkpoint=parts[0]) if chosen is not None and parts else chosen

    monkeypatch.setattr(port, "checkpoint", damaged_checkpoint)
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

"""The document of the benchmarks is written by the program that measures, not by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench import documents, targets
from bench.__main__ import COUNTED
from bench.documents import Document
from bench.plan import Plan, entry, per_operation
from bench.plans import PLANS
from bench.results import Result
from bench.table import workload_body

DOCUMENT: Final = Path(__file__).parents[2] / "docs/benchmarks.md"


def a_result(**rounds: list[dict[str, float]]) -> Result:
    entries = (entry("floor apsw", "floors:RawInsert"), entry("holdfast", "with_holdfast:Save"))
    plan = Plan("save", "save", entries, {"": 1}, 1, per_operation)
    return Result(plan, {name.replace("_", " "): found for name, found in rounds.items()})


def test_every_table_and_every_section_of_targets_has_its_place_in_the_document() -> None:
    expected = {"facts", *PLANS, *COUNTED, *(f"targets {section}" for section in targets.SECTIONS)}
    places = Document(DOCUMENT).places()
    assert sorted(set(places)) == sorted(places), "a place is there twice"
    assert expected - set(places) == set()


def test_targets_are_set_for_workloads_that_exist() -> None:
    assert {one.workload for rows in targets.SECTIONS.values() for one in rows} <= set(PLANS)


def test_only_marked_places_change() -> None:
    text = "before\n<!-- bench save -->\nold\n<!-- end -->\nbetween\n<!-- bench load -->\nkept\n<!-- end -->\nafter\n"
    assert documents.filled(text, {"save": "new"}) == text.replace("old", "new")


def test_a_run_changes_the_targets_of_the_workloads_it_measured_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "document.md"
    rows = "| load: latest, times the floor | <= 4 | 2.91 [2.78..4.41] | met |"
    path.write_text(f"<!-- bench targets sqlite -->\n{rows}\n<!-- end -->\n", "utf-8")
    results = {"save": a_result(floor_apsw=[{"us": 9.0}], holdfast=[{"us": 10.0}])}
    Document(path).put_targets(targets.judged(results, {"save"}))
    text = path.read_text("utf-8")
    assert "| save: of the floor's speed | >= 0.8 | 0.900 [0.900..0.900] | met |" in text
    assert rows in text
    assert "| load: halfway, times the floor | <= 4 | - | not measured |" in text


def test_a_target_that_was_changed_loses_what_was_found_for_the_old_one() -> None:
    rows = targets.judged({}, {"save"})["sqlite"]
    old = "| load: latest, times the floor | <= 5 | 4.91 [4.78..5.41] | met |"
    merged = {row[0]: row for row in documents.merged(old, rows)}
    assert merged["load: latest, times the floor"][1:] == ("<= 4", "-", "not measured")


def test_a_workload_that_failed_leaves_targets_that_were_not_measured() -> None:
    rows = targets.judged({}, {"save"})["sqlite"]
    old = "| save: of the floor's speed | >= 0.8 | 0.900 [0.900..0.900] | met |"
    merged = {row[0]: row for row in documents.merged(old, rows)}
    assert merged["save: of the floor's speed"][2:] == ("-", "not measured")


def test_a_peer_that_failed_has_a_row_that_says_why() -> None:
    result = a_result(floor_apsw=[{"us": 9.0, "per_s": 111_111.0}])
    result.failures["holdfast"] = "KeyError: 'run-000001'"
    [row] = [line for line in workload_body(result).splitlines() if "holdfast" in line]
    assert [cell.strip() for cell in row.strip("| ").split("|")][1:] == ["failed: KeyError: 'run-000001'", "-", "-"]

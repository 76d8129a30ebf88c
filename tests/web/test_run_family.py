"""The family of a run and the graph of a declared one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.web.runs_of_all_kinds import Stage, fill, links_with, run_path


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    found = Stage()
    fill(found)
    yield found
    found.close()


def test_the_family_links_parents_children_and_forks(stage: Stage) -> None:
    parent = stage.run("parent", "family")
    assert links_with(parent, run_path("parent/child:child#1"))
    child = stage.run("parent/child:child#1", "family")
    assert "/runs/parent" in child.links
    fork = stage.run("a/fork", "family")
    assert "/runs/forked" in fork.links
    assert "forked at journal.3" in fork.text
    assert "this run" in fork.text
    assert '>forked</a> <span class="status' in fork.source
    assert '</span> <span class="quiet">' in fork.source
    alone = stage.run("gates", "family").text
    assert "It has no forks and is not one." in alone
    assert "this run" not in alone


def test_the_graph_shows_what_is_done_and_where_the_run_is(stage: Stage) -> None:
    page = stage.run("declared", "graph")
    assert "✓ quote" in page.text
    assert "▶ approve" in page.text
    assert "approve ask, current leads to paid if a.ok = True, again otherwise" in page.text
    assert "the run is at approve" in page.source
    failed = stage.run("declared-failed", "graph")
    assert "✗ denied" in failed.text
    assert "Graph" in stage.run("declared").text
    assert " Graph " not in stage.run("gates").text

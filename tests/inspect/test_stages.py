"""Timelines of declared workflows: their stages, and what only they have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast.inspect.calls import fold_stages, has_stages
from holdfast.inspect.timeline import timeline
from holdfast.inspect.views import Row
from tests.cli.processes import command

ASK = {"id": "ask", "type": "ask", "prompt": "Well?", "fields": {"ok": "bool"}, "output_key": "a"}


@pytest.fixture
def app(tmp_path: Any) -> Iterator[holdfast.App]:
    with holdfast.App(f"sqlite:{tmp_path / 'holdfast.db'}") as app:
        app.function(name="work")(lambda n=0: n + 1)
        app.undo(name="back")(lambda result, **_: None)

        @app.function
        def fail() -> None:
            raise ValueError("no")

        yield app


def shown(app: holdfast.App, **more: Any) -> list[tuple[str, str, str, int]]:
    rows: tuple[Row, ...] = timeline(app.store, "r").rows
    assert has_stages(rows)
    return [
        (row.kind, row.call.rpartition("/")[2] or row.name, row.state, row.depth) for row in fold_stages(rows, **more)
    ]


def test_stages_stand_without_the_loop_that_goes_through_them(app: holdfast.App) -> None:
    each = {"id": "each", "type": "for_each", "items_from": "input.n", "body": {"type": "call", "function": "work"}}
    app.graph({"id": "g", "stages": [{"id": "one", "type": "call", "function": "work"}, each, ASK]})
    app.start("g", {"n": [1, 2]}, run_id="r")
    assert shown(app) == [
        ("started", "g", "done", 0), ("step", "one#1", "done", 0), ("gather", "gather#1", "done", 0),
        ("step", "each#1", "done", 1), ("step", "each#1", "done", 1), ("ask", "ask#1", "waiting", 0),
    ]  # fmt: skip


def test_of_very_many_stages_the_older_ones_are_one_row(app: holdfast.App) -> None:
    app.graph({
        "id": "g", "variables": {"n": 0}, "max_iterations": None,
        "stages": [{"id": "w", "type": "call", "function": "work", "with": {"n": "{{ n }}"}, "output_key": "n"}, ASK,
                   {"id": "end", "type": "end"}],
        "edges": [{"from": "w", "to": "w", "conditions": [{"key": "n", "operator": "lt", "value": 30}]},
                  {"from": "w", "to": "ask", "default": True}, {"from": "ask", "to": "end"}],
    })  # fmt: skip
    app.start("g", {}, run_id="r")
    found = shown(app, most=5)
    assert (found[1][0], found[1][3]) == ("stages", 0)
    assert "stages 1 to 25" in [row.name for row in fold_stages(timeline(app.store, "r").rows, 5)]
    assert [row[1] for row in found[2:]] == ["w#1"] * 5 + ["ask#1"]
    assert len(shown(app, most=None)) == 32


def test_breakpoints_compensations_and_migrations_have_rows(app: holdfast.App) -> None:
    book = {"id": "book", "type": "effect", "function": "work", "compensation": "back"}
    stages = [
        book,
        {**ASK, "breakpoint": "look"},
        {"id": "f", "type": "call", "function": "fail", "on_failure": "compensate"},
    ]
    app.graph({"id": "g", "stages": stages})
    app.start("g", {}, run_id="r")
    assert shown(app)[-1] == ("breakpoint", "breakpoint#1", "waiting", 0)
    assert timeline(app.store, "r").standing.sentence == "paused at a breakpoint: look"
    app.resume("r")
    app.graph({"id": "g", "stages": stages, "max_iterations": 50})
    app.migrate("r", by="ben")
    app.answer("r", {"ok": True})
    seen = timeline(app.store, "r")
    kinds = [row.kind for row in fold_stages(seen.rows)]
    assert kinds == ["started", "effect", "stage", "breakpoint", "ask", "definition", "step", "compensate", "ended"]
    rows = {row.kind: row for row in seen.rows}
    assert (rows["definition"].name, rows["definition"].by) == ("migrated", "ben")
    assert rows["effect"].state == "undone"
    assert (rows["compensate"].state, len(rows["compensate"].result["undone"])) == ("done", 1)
    assert seen.standing.next_node is None


def test_the_command_shows_stages_and_takes_their_names_for_places(app: holdfast.App, tmp_path: Any) -> None:
    stages = [{"id": name, "type": "effect", "function": "work", "compensation": "back"} for name in ("one", "two")]
    app.graph({"id": "g", "stages": [*stages, ASK]})
    app.start("g", {}, run_id="r")
    done = command("show", "r", cwd=tmp_path)
    timed = [line for line in done.out.splitlines() if line[:6].strip().isdigit()]
    assert len(timed) == 4
    assert not any("turn" in line[:30] for line in timed)
    assert "effect two " in done.out
    plan = command("rollback", "r", "--to", "two", "--dry-run", "--json", cwd=tmp_path).data["plan"]
    assert [effect["key"].partition("/")[2].partition(":")[0] for effect in plan["undo"]] == ["two"]
    assert "ask#1" in plan["calls"][-1]

"""Of many gates, the open ones are found by their index."""

from __future__ import annotations

import re
from pathlib import Path

import apsw

import holdfast
from holdfast.store.sql.statements import statements


def fill(path: Path) -> None:
    """Store 10,000 open gates among 100,000 answered ones."""
    connection = apsw.Connection(str(path))
    connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 110000) "
        "INSERT INTO gates SELECT 1, 'g' || i, CASE WHEN i % 11 = 0 THEN 'open' ELSE 'answered' END, i / 5, NULL, "
        "NULL, NULL, 0, x'' FROM n"
    )
    connection.execute("ANALYZE")
    connection.close()


def test_a_page_of_open_gates_and_their_count_use_the_index(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with holdfast.open(f"sqlite:{path}") as store:
        store.save("run", 1)
        fill(path)
        assert store.counts().open_gates == 10_000
        page = store.port.gates("open", 100)
        (run, last) = page[-1]
        following = store.port.gates("open", 100, (last.opened_us, run.run, last.gate))
        assert len({gate.gate for _, gate in page + following}) == 200
        assert store.port.gates("open", 101)[-1][1] == following[0][1]
        connection = apsw.Connection(str(path))
        for name, bindings in (("gates_open", (5_000, 1, "g9", 100)), ("count_open_gates", ())):
            plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {statements()[name]}", bindings)]
            assert any(re.search(r"gates_open|gates_expiring", step) for step in plan), (name, plan)
            assert not any(re.match(r"SCAN g(ates)?$", step) for step in plan), (name, plan)
        searched = [
            str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {statements()['gates_open']}", (0,) * 4)
        ]
        assert any("SEARCH g USING INDEX gates_open (" in step for step in searched), searched
        connection.close()

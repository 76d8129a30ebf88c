"""Definitions that do not have the shape of one: what is wrong is said with what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Graph
from holdfast.errors import InvalidGraph
from tests.graphs.test_load import written

_STAGE = {"id": "a", "type": "call", "function": "f"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"stages": [{**_STAGE, "type": "cal"}]}, "stages[0].type: there is no stage of type 'cal'; use one of call, "
         "effect, ask, loop_until, for_each, sub_workflow, wait, sleep, set, end (did you mean 'call'?)"),
        ({"stages": [{"id": "a"}]}, "stages[0]: a stage needs a `type`; use one of call, effect"),
        ({"stages": [{**_STAGE, "type": ["x"]}]}, "stages[0].type: there is no stage of type a list; use one of call"),
        ({"stages": ["a"]}, "stages[0]: 'a' is not allowed; use a stage, as an object"),
        ({"stages": {"a": _STAGE}}, "stages: an object is not allowed; use a list"),
        ({"stages": [{**_STAGE, "functon": "x"}]}, "functon: 'functon' is not a field of `call`; use one of type, "
         "id, name, description, on_failure, breakpoint, function, with, output_key, retry, timeout_s "
         "(did you mean 'function'?)"),
        ({"stages": [{"id": "a", "type": "call"}]}, "stages[0]: `call` needs the field `function`"),
        ({"stages": [{**_STAGE, "on_failure": "explode"}]},
         "stages[0].on_failure: 'explode' is not allowed; use one of abort, compensate, retry, skip"),
        ({"stages": [{**_STAGE, "on_failure": {}}]}, "on_failure: an object is not allowed; use one of abort"),
        ({"stages": [{**_STAGE, "retry": "often"}]}, "stages[0].retry: 'often' is not allowed; use a whole number or "
         "an object with attempts, first_s, factor, longest_s, jitter or null"),
        ({"stages": [{**_STAGE, "retry": {"attempts": "3"}}]},
         "stages[0].retry.attempts: '3' is not allowed; use a whole number"),
        ({"stages": [{**_STAGE, "with": [1]}]}, "stages[0].with: a list is not allowed; use an object"),
        ({"stages": [{**_STAGE, "timeout_s": True}]}, "timeout_s: true is not allowed; use a number or null"),
        ({"stages": [_STAGE], "edges": [{"from": "a", "to": "b", "conditions": [{"key": "x", "operator": "greater"}]}]},
         "edges[0].conditions[0].operator: 'greater' is not allowed; use one of contains, eq, exists, gt"),
        ({"stages": [_STAGE], "edges": [{"from": "a"}]}, "edges[0]: `edge` needs the field `to`"),
        ({"stages": [_STAGE], "edges": [{"from": "a", "to": "a", "conditions": [{}]}]},
         "edges[0].conditions[0]: a condition needs exactly one of `key`, `all` and `any`"),
        ({"stages": [{"id": "a", "type": "loop_until", "body": {"type": "dance"}}]},
         "stages[0].body.type: there is no stage of type 'dance'; use one of call"),
        ({"stages": [_STAGE], "max_iterations": 1.5}, "max_iterations: 1.5 is not allowed; use a whole number"),
        ({"stages": [_STAGE], "colour": 1}, "colour: 'colour' is not a field of `graph`; use one of id, stages, name"),
        ({"id": 7, "stages": [_STAGE]}, "id: 7 is not allowed; use text"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said_with_what_is_allowed(data: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidGraph) as refused:
        Graph.from_data({"id": "g", **data})
    assert any(problem.startswith(said) or said in problem for problem in refused.value.problems), (
        refused.value.problems
    )
    assert not any(leaked in str(refused.value) for leaked in ("Expected `", "Object ", "- at `", "$.", "Invalid "))


def test_all_that_does_not_fit_is_said_at_once_with_lines(tmp_path: Path) -> None:
    text = "id: g\nstages:\n  - {id: a, type: dance}\n  - {id: b, type: call, function: 7}\nedges: 3\n"
    with pytest.raises(InvalidGraph) as refused:
        Graph.load(written(tmp_path, text))
    assert [problem.partition(":")[0] for problem in refused.value.problems] == ["line 3", "line 4", "line 5"]

"""Every type of stage, and what the state has afterwards."""

from __future__ import annotations

import dataclasses
import datetime as dt
import threading
from typing import Any

import pytest

import holdfast
from holdfast import Graph, InvalidInput, RunFailed
from holdfast.errors import InvalidGraph
from tests.graphs.conftest import GraphStage

END = {"id": "end", "type": "end"}


def test_a_call_gets_what_the_state_has_and_its_result_is_in_the_state(everywhere: GraphStage) -> None:
    @everywhere.function
    def price(order: str, note: str, name: int, key: str) -> dict[str, Any]:
        return {"order": order, "amount": 40, "said": [note, name, key]}

    given = {
        "order": "{{ input.order }}",
        "note": "for {{ input.order }}, {{ n }} times",
        "name": "{{ n }}",
        "key": "k",
    }
    everywhere.graph(
        [{"id": "price", "type": "call", "function": "price", "with": given, "output_key": "quote"}, END],
        variables={"n": 3},
        goal="a price",
    )
    result = everywhere.go(order="A-17").result()
    assert result["quote"] == {"order": "A-17", "amount": 40, "said": ["for A-17, 3 times", 3, "k"]}
    assert result["stage"]["price"] == {
        "status": "succeeded", "succeeded": True, "iteration": 1, "answer": result["quote"],
    }  # fmt: skip
    assert (result["n"], result["goal"], result["input"]) == (3, "a price", {"order": "A-17"})


def test_what_a_function_changes_in_its_arguments_does_not_change_the_state(stage: GraphStage) -> None:
    @stage.function
    def spoil(state: dict[str, Any], items: list[Any]) -> dict[str, Any]:
        state["input"]["x"] = "spoiled"
        items.append("spoiled")
        return {"items": items}

    call = {"type": "call", "function": "spoil", "with": {"state": "{{ state }}", "items": "{{ input.items }}"}}
    stage.graph([{**call, "id": "one", "output_key": "out"}, {"id": "set", "type": "set", "values": {"out.x": 7}}, END])
    result = stage.go(items=[1]).result()
    assert result["input"] == {"items": [1]}
    assert result["out"] == {"items": [1, "spoiled"], "x": 7}
    assert result["stage"]["one"]["answer"] == {"items": [1, "spoiled"]}, "what is set later does not change the record"


def test_typed_results_are_plain_in_the_state_whether_live_or_resumed(stage: GraphStage) -> None:
    @dataclasses.dataclass
    class Quote:
        amount: int

    def quote() -> Quote:
        return Quote(4)

    quote.__annotations__["return"] = Quote
    stage.function(quote)
    stage.graph([{"id": "q", "type": "call", "function": "quote", "output_key": "quote"}, END])
    assert stage.go().result()["quote"] == {"amount": 4}


def test_an_effect_is_in_the_ledger_with_its_key_and_its_undo(everywhere: GraphStage) -> None:
    @everywhere.function
    def pay(order: str, idempotency_key: str) -> str:
        everywhere.calls.append(idempotency_key)
        return f"paid {order}"

    everywhere.undo(take_back)
    effect = {"id": "pay", "type": "effect", "function": "pay", "with": {"order": "{{ input.order }}"}}
    everywhere.graph(
        [{**effect, "compensation": "take_back", "key": "refund {{ input.order }}", "output_key": "paid"}, END]
    )
    assert everywhere.go(order="A").result()["paid"] == "paid A"
    (line,) = everywhere.onlooker.effects(everywhere.run_id)
    assert (line.key, line.state, line.tool, line.reversible) == ("refund A", "done", "pay", True)
    assert len(everywhere.calls) == 1


def take_back(result: Any, order: str) -> None:
    """For effects that need an undo's name only."""


def test_a_question_waits_for_its_answer_in_any_process(everywhere: GraphStage) -> None:
    everywhere.graph(
        [{"id": "ask", "type": "ask", "prompt": "Refund {{ input.order }}?", "show": {"order": "{{ input.order }}"},
          "fields": {"ok": "bool", "level": {"choices": ["low", "high"], "default": "low"}}, "output_key": "approval"},
         {"id": "yes", "type": "end", "result": "yes, {{ approval.level }}"},
         {"id": "no", "type": "end", "result": "no"}],
        [("ask", "yes", ("approval.ok", "eq", True)), ("ask", "no", None)],
    )  # fmt: skip
    handle = everywhere.go(order="A-17")
    (gate,) = handle.gates()
    assert (gate.prompt, gate.show, handle.status()) == ("Refund A-17?", {"order": "A-17"}, "waiting")
    assert gate.gate == "loop#1[1]/ask#1"
    everywhere.restart()
    with pytest.raises(holdfast.InvalidAnswer):
        everywhere.app.answer(everywhere.run_id, {"ok": "perhaps"})
    assert everywhere.app.answer(everywhere.run_id, {"ok": True}, by="ana").result() == "yes, low"
    assert everywhere.state["stage"]["ask"]["answer"] == {"ok": True, "level": "low"}


def test_a_question_that_expires_is_denied_or_fails_as_declared(stage: GraphStage) -> None:
    ask = {"id": "ask", "type": "ask", "prompt": "Well?", "fields": {"ok": "bool"}, "output_key": "a", "expires_s": 60}
    stage.graph([ask, {"id": "late", "type": "ask", "prompt": "Now?", "fields": {"ok": "bool"}, "output_key": "b",
                       "expires_s": 60, "expired": "fail", "on_failure": "skip"}, END])  # fmt: skip
    stage.go()
    stage.clock.advance(61)
    stage.app.resume(stage.run_id)
    stage.clock.advance(61)
    result = stage.app.resume(stage.run_id).result()
    assert result["a"] == {"ok": False}
    assert (result["stage"]["late"]["status"], result["stage"]["late"]["error"]["type"]) == ("skipped", "GateExpired")


def test_an_ask_needs_several_people_excludes_some_and_escalates(everywhere: GraphStage) -> None:
    ask = {
        "id": "ask", "type": "ask", "prompt": "Pay?", "fields": {"ok": "bool"}, "output_key": "a", "approvals": 2,
        "who": ["{{ input.team }}"], "not_by": ["{{ input.buyer }}"],
        "escalate": [{"after_s": 7200, "who": ["cfo"]}, {"after_s": 3600, "who": ["{{ input.chief }}"]}],
    }  # fmt: skip
    everywhere.graph([ask, END])
    everywhere.go(team="group:finance", buyer="zoe", chief="cho")
    (gate,) = everywhere.app.gates(everywhere.run_id)
    assert (gate.who, gate.not_by, gate.approvals) == (("group:finance",), ("zoe",), 2)
    assert [(level.at - gate.opened_at, level.who) for level in gate.escalations] == [
        (dt.timedelta(hours=1), ("cho",)),
        (dt.timedelta(hours=2), ("cfo",)),
    ]
    with pytest.raises(holdfast.InvalidAnswer, match="'zoe' may not answer it"):
        everywhere.app.answer(everywhere.run_id, {"ok": True}, by="zoe", groups=["finance"])
    everywhere.app.answer(everywhere.run_id, {"ok": True}, by="ana", groups=["finance"])
    handle = everywhere.app.answer(everywhere.run_id, {"ok": True}, by="ben", groups=["finance"])
    assert handle.result()["a"] == {"ok": True}


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"approvals": 0}, "approvals must be 1 to"),
        ({"approvals": 2, "fields": {"note": "text"}}, "approvals=2 needs a yes/no field"),
        ({"not_by": [""]}, "not_by must be a name"),
        ({"escalate": [{"after_s": 60, "who": ["cfo"]}]}, "escalate needs who"),
        ({"who": ["ana"], "escalate": [{"after_s": 0, "who": ["cfo"]}]}, "the time in escalate"),
        ({"who": ["ana"], "escalate": [{"after_s": 60, "who": []}]}, "escalate must be a list"),
    ],
)
def test_rules_of_an_ask_that_cannot_work_are_refused(rules: dict[str, Any], said: str) -> None:
    ask = {"id": "ask", "type": "ask", "prompt": "Pay?", "fields": {"ok": "bool"}, "output_key": "a", **rules}
    with pytest.raises(InvalidGraph, match=said):
        Graph.from_data({"id": "g", "stages": [ask]})


def test_a_loop_goes_on_until_its_conditions_hold_and_each_iteration_is_a_checkpoint(everywhere: GraphStage) -> None:
    @everywhere.function
    def improve(draft: str) -> dict[str, Any]:
        everywhere.calls.append(draft)
        return {"text": draft + "!", "score": len(draft)}

    body = {"type": "call", "function": "improve", "with": {"draft": "{{ draft.text }}"}, "output_key": "draft"}
    until = [{"key": "draft.score", "operator": "gte", "value": 3}]
    everywhere.graph(
        [{"id": "better", "type": "loop_until", "body": body, "until": until, "max_iterations": 10}, END],
        variables={"draft": {"text": "a", "score": 0}},
    )
    result = everywhere.go().result()
    assert everywhere.calls == ["a", "a!", "a!!"]
    assert result["stage"]["better"]["iteration"] == 3
    assert result["stage"]["better"]["satisfied"] is True
    assert len(everywhere.journal("turn")) == 3


def test_a_loop_ends_with_its_bound_and_says_so_and_can_be_entered_again(stage: GraphStage) -> None:
    @stage.function
    def count(n: int) -> int:
        return n + 1

    body = {"type": "call", "function": "count", "with": {"n": "{{ n }}"}, "output_key": "n"}
    stage.graph(
        [{"id": "loop", "type": "loop_until", "body": body, "max_iterations": 3}, END],
        [("loop", "loop", ("n", "lt", 6)), ("loop", "end", None)],
        variables={"n": 0},
    )
    result = stage.go().result()
    assert result["n"] == 6
    assert result["stage"]["loop"] == {
        "status": "succeeded", "succeeded": True, "iteration": 3, "answer": 6, "satisfied": False,
    }  # fmt: skip


def test_for_each_does_all_items_side_by_side_up_to_its_limit_and_keeps_their_order(everywhere: GraphStage) -> None:
    lock, now, most = threading.Lock(), [0], [0]

    @everywhere.function
    def double(n: int, at: int) -> int:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        threading.Event().wait(0.02)
        with lock:
            now[0] -= 1
        return n * 2 + at

    body = {"type": "call", "function": "double", "with": {"n": "{{ item.n }}", "at": "{{ index }}"}}
    each = {"id": "each", "type": "for_each", "items_from": "input.items", "body": body, "max_concurrent": 3}
    everywhere.graph([{**each, "output_key": "doubled"}, END])
    result = everywhere.go(items=[{"n": n} for n in range(8)]).result()
    assert result["doubled"] == [n * 3 for n in range(8)]
    assert (result["stage"]["each"]["count"], result["stage"]["each"]["failed"]) == (8, 0)
    assert 1 < most[0] <= 3


def test_items_that_fail_are_skipped_and_told_if_the_body_says_so(stage: GraphStage) -> None:
    @stage.function
    def check(n: int) -> int:
        if n == 1:
            raise ValueError("one is wrong")
        return n

    body = {"type": "call", "function": "check", "with": {"n": "{{ item }}"}, "on_failure": "skip"}
    stage.graph([{"id": "each", "type": "for_each", "items_from": "input.n", "body": body, "output_key": "out"}, END])
    result = stage.go(n=[0, 1, 2]).result()
    assert result["out"] == [0, None, 2]
    assert result["stage"]["each"]["errors"] == [{"index": 1, "type": "ValueError", "message": "one is wrong"}]


def test_for_each_may_ask_about_every_item_and_nest(stage: GraphStage) -> None:
    ask = {"type": "ask", "prompt": "Take {{ item }}?", "fields": {"ok": "bool"}, "output_key": "a"}
    stage.graph(
        [{"id": "each", "type": "for_each", "items_from": "input.rows", "output_key": "out",
          "body": {"type": "for_each", "items_from": "item", "body": ask}}, END],
    )  # fmt: skip
    handle = stage.go(rows=[["a", "b"], ["c"]])
    gates = {gate.prompt: gate.gate for gate in handle.gates()}
    assert set(gates) == {"Take a?", "Take b?", "Take c?"}
    for prompt, gate in gates.items():
        stage.app.answer(stage.run_id, {"ok": prompt != "Take b?"}, gate=gate)
    assert handle.result()["out"] == [[{"ok": True}, {"ok": False}], [{"ok": True}]]


@pytest.mark.parametrize(("given", "said"), [({}, "nothing at 'input.items'"), ({"items": 7}, "needs a list")])
def test_for_each_over_no_list_fails_and_says_why(stage: GraphStage, given: Any, said: str) -> None:
    body = {"type": "sleep", "seconds": 0}
    stage.graph([{"id": "each", "type": "for_each", "items_from": "input.items", "body": body}, END])
    with pytest.raises(RunFailed, match=said):
        stage.go(**given).result()


def test_a_graph_inside_is_a_run_of_its_own_that_may_wait(everywhere: GraphStage) -> None:
    inner = {
        "id": "inner", "input": {"name": "str"},
        "stages": [{"id": "ask", "type": "ask", "prompt": "Greet {{ input.name }}?", "fields": {"ok": "bool"},
                    "output_key": "a"}, {"id": "end", "type": "end", "result": {"ok": "{{ a.ok }}"}}],
    }  # fmt: skip
    everywhere.graph(
        [{"id": "sub", "type": "sub_workflow", "graph": inner, "with": {"name": "{{ input.who }}"},
          "output_key": "out"},
         END]
    )  # fmt: skip
    everywhere.go(who="ana")
    (gate,) = [gate for gate in everywhere.app.gates() if gate.run_id.startswith(everywhere.run_id)]
    assert (gate.workflow, gate.prompt) == ("flow/sub", "Greet ana?")
    everywhere.restart()
    everywhere.app.answer(gate.run_id, {"ok": True})
    assert everywhere.app.handle(everywhere.run_id).result()["out"] == {"ok": True}


def test_a_workflow_of_code_or_another_graph_can_be_a_stage(stage: GraphStage) -> None:
    @stage.app.workflow
    def greet(run: Any, name: str) -> str:
        return str(run.step(str.upper, name))

    stage.app.graph({"id": "other", "stages": [{"id": "end", "type": "end", "result": "hello {{ input.name }}"}]})
    stage.graph(
        [{"id": "a", "type": "sub_workflow", "workflow": "greet", "with": {"name": "ana"}, "output_key": "a"},
         {"id": "b", "type": "sub_workflow", "workflow": "other", "with": {"name": "{{ a }}"}, "output_key": "b"}, END]
    )  # fmt: skip
    result = stage.go().result()
    assert (result["a"], result["b"]) == ("ANA", "hello ANA")


def test_a_wait_gets_its_event_or_its_default(everywhere: GraphStage) -> None:
    wait = {"type": "wait", "event": "shipped {{ input.order }}"}
    everywhere.graph(
        [{**wait, "id": "first", "output_key": "first"},
         {**wait, "id": "second", "timeout_s": 60, "default": "none for {{ input.order }}",
          "output_key": "second"}, END]
    )  # fmt: skip
    handle = everywhere.go(order="A")
    everywhere.app.send(everywhere.run_id, "shipped A", {"parcel": 3})
    everywhere.clock.advance(61)
    everywhere.app.resume(everywhere.run_id)
    result = handle.result()
    assert (result["first"], result["second"]) == ({"parcel": 3}, "none for A")
    assert (result["stage"]["first"]["timed_out"], result["stage"]["second"]["timed_out"]) == (False, True)


def test_a_sleep_holds_nothing_and_goes_on_when_its_time_has_come(stage: GraphStage) -> None:
    tomorrow = (dt.datetime.now(dt.UTC) + dt.timedelta(days=1)).isoformat()
    stage.graph(
        [{"id": "nap", "type": "sleep", "seconds": "{{ input.seconds }}"},
         {"id": "night", "type": "sleep", "until": "{{ input.until }}"}, END]
    )  # fmt: skip
    handle = stage.go(seconds=3600, until=tomorrow)
    assert handle.status() == "waiting"
    stage.clock.advance(3601)
    assert stage.app.resume(stage.run_id).status() == "waiting"
    stage.clock.advance(86400)
    stage.restart()
    assert stage.app.resume(stage.run_id).status() == "completed"


@pytest.mark.parametrize(("field", "value"), [("seconds", "soon"), ("until", "2026-11-16T09:00:00"), ("until", "noon")])
def test_a_sleep_until_nonsense_fails_and_says_so(stage: GraphStage, field: str, value: Any) -> None:
    stage.graph([{"id": "nap", "type": "sleep", field: "{{ input.when }}"}, END])
    with pytest.raises(RunFailed, match="'nap' failed: InvalidInput"):
        stage.go(when=value).result()


def test_set_puts_values_at_paths_and_an_end_can_fail(stage: GraphStage) -> None:
    stage.graph(
        [{"id": "set", "type": "set", "values": {"a.b": "{{ input.x }}", "a.c": ["{{ input.x }}", 2],
                                                 "t": "x={{ input.x }}"}},
         {"id": "end", "type": "end", "failed": "no good: {{ a.c }}"}]
    )  # fmt: skip
    with pytest.raises(RunFailed, match=r"stage 'end' failed: Ended: no good: \[1, 2\]"):
        stage.go(x=1).result()
    assert (stage.state["a"], stage.state["t"]) == ({"b": 1, "c": [1, 2]}, "x=1")


def test_input_that_does_not_fit_is_refused_before_anything_is_written(stage: GraphStage) -> None:
    stage.graph([END], input={"order": "str", "count": {"type": "int", "minimum": 1, "default": 1}})
    with pytest.raises(InvalidInput, match="order"):
        stage.go()
    with pytest.raises(InvalidInput, match="count"):
        stage.go(order="A", count=0)
    with pytest.raises(InvalidInput, match="is a dict"):
        stage.app.start("flow", "A", run_id=stage.run_id)
    with pytest.raises(holdfast.errors.RunNotFound):
        stage.status()
    assert stage.go(order="A").result()["input"] == {"order": "A", "count": 1}
    assert stage.go(order="A", count=1).status() == "completed", "the same input, so the same run"


def test_metadata_of_the_graph_is_metadata_of_its_runs(stage: GraphStage) -> None:
    stage.graph([END], metadata={"team": "support", "area": "a"})
    stage.app.start("flow", {}, run_id=stage.run_id, metadata={"area": "b"})
    assert stage.app.handle(stage.run_id).info().metadata == {"team": "support", "area": "b"}

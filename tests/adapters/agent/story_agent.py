"""The story with the agent of `examples/agent`, which needs no framework."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import holdfast
from tests.adapters import bank
from tests.adapters.story import policy_of

_PLACE = Path(__file__).parents[3] / "examples" / "agent" / "agent.py"
_spec = importlib.util.spec_from_file_location("agent_example", _PLACE)
assert _spec is not None
assert _spec.loader is not None
example: Any = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = example
_spec.loader.exec_module(example)
_fake_model = example.fake_model


def _model(messages: list[dict[str, Any]], shape: str) -> Any:
    bank.model_called(str(len(messages)))
    return _fake_model(messages, shape)


def _look(order: str) -> str:
    return f"{order} costs {bank.look(order)}"


def _pay(order: str, amount: int, idempotency_key: str | None = None) -> str:
    return bank.pay(order, amount, idempotency_key)


example.TOOLS.update(look=_look, pay=_pay)
example.fake_model = _model


async def pay_orders(run: holdfast.AsyncRun, policy: str) -> str:
    async def execute(run: holdfast.AsyncRun, call_id: str, name: str, arguments: dict[str, Any]) -> str:
        if name in example.NEEDS_APPROVAL:
            fields = {"approve": bool, "note": holdfast.field(str, required=False)}
            answer = await run.ask(f"Allow {name}?", fields, show=arguments, key=f"approve {call_id}")
            if not answer["approve"]:
                return f"refused: {answer['note']}"
        options = policy_of(policy) if name == "pay" else {}
        if "check" in options:
            check = options["check"]
            options = {"check": lambda order, amount: check({"order": order, "amount": amount})}
        return str(await run.effect(example.TOOLS[name], **arguments, name=name, key=call_id, **options))

    example.execute = execute
    reply = await example.agent(run, "Please pay my orders.")
    return str(reply["content"])


async def without_run() -> str:
    messages = [{"role": "user", "content": "Please pay my orders."}]
    while True:
        reply = _model(messages, "openai")
        messages.append(reply)
        calls = example.openai(reply)
        if not calls:
            return str(reply["content"])
        results = [(call_id, example.TOOLS[name](**arguments)) for call_id, name, arguments in calls]
        messages += example.openai_results(results)

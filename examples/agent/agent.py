"""An agent without a framework: model calls are steps, tool calls are effects, approvals are gates.

    python agent.py start                 # looks up two orders and asks before it pays; this process ends
    holdfast gates --store sqlite:agent.db
    python agent.py answer yes            # or: holdfast answer …, or the page; any process continues

`openai` and `anthropic` are the two shapes of messages. Replace `fake_model` with a call of your client; its result
must be plain data, as `response.model_dump()` returns it. A killed process repeats neither a finished model call nor a
payment.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import holdfast

Message = dict[str, Any]
PRICES = {"A-17": 40, "B-20": 25}


def look(order: str) -> str:
    return f"{order} costs {PRICES[order]}"


def pay(order: str, amount: int, idempotency_key: str) -> str:
    print(f"  … paying {amount} for {order}")  # pass the key to the payment service: retries have the same one
    return f"paid {amount} for {order}"


TOOLS: dict[str, Callable[..., str]] = {"look": look, "pay": pay}
NEEDS_APPROVAL = {"pay"}


def openai(reply: Message) -> list[tuple[str, str, dict[str, Any]]]:
    """The id, name and arguments of the tool calls in a message of OpenAI's shape."""
    calls = reply.get("tool_calls") or []
    return [(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]


def openai_results(results: list[tuple[str, str]]) -> list[Message]:
    return [{"role": "tool", "tool_call_id": call_id, "content": text} for call_id, text in results]


def anthropic(reply: Message) -> list[tuple[str, str, dict[str, Any]]]:
    """The same of a message of Anthropic's shape."""
    return [(part["id"], part["name"], part["input"]) for part in reply["content"] if part["type"] == "tool_use"]


def anthropic_results(results: list[tuple[str, str]]) -> list[Message]:
    parts = [{"type": "tool_result", "tool_use_id": call_id, "content": text} for call_id, text in results]
    return [{"role": "user", "content": parts}]


SHAPES = {"openai": (openai, openai_results), "anthropic": (anthropic, anthropic_results)}


async def agent(run: holdfast.AsyncRun, question: str, shape: str = "openai") -> Message:
    """The loop. What it needs for its next turn is in `run.state`, so a resume replays only the current turn."""
    calls_of, results_of = SHAPES[shape]
    run.state.setdefault("messages", [{"role": "user", "content": question}])
    async for _ in run.loop():
        messages = run.state["messages"]
        reply = await run.step(fake_model, messages, shape)
        messages.append(reply)
        calls = calls_of(reply)
        if not calls:
            return reply
        # Every call is a branch: all gates of a turn are open at once, and a call runs as soon as it is approved.
        texts = await run.gather(*[lambda branch, call=call: execute(branch, *call) for call in calls])
        messages += results_of([(call[0], text) for call, text in zip(calls, texts, strict=True)])
    raise AssertionError("the loop ends with a return")


async def execute(run: holdfast.AsyncRun, call_id: str, name: str, arguments: dict[str, Any]) -> str:
    """One tool call. Its key is the id from the recorded reply, so every resume finds its record."""
    if name in NEEDS_APPROVAL:
        fields = {"approve": bool, "note": holdfast.field(str, required=False)}
        answer = await run.ask(f"Allow {name}?", fields, show=arguments, key=f"approve {call_id}")
        if not answer["approve"]:
            return f"refused: {answer['note'] or 'no reason was given'}"
    return await run.effect(TOOLS[name], **arguments, name=name, key=call_id)


# --- a model that works offline ---------------------------------------------------------------------------------------


def fake_model(messages: list[Message], shape: str) -> Message:
    """Look both orders up, then pay both, then report: a function of the conversation."""
    turn = sum(message["role"] == "assistant" for message in messages)
    if turn == 0:
        return _reply(shape, [(f"look-{order}", "look", {"order": order}) for order in PRICES])
    if turn == 1:
        pays = [(f"pay-{order}", "pay", {"order": order, "amount": price}) for order, price in PRICES.items()]
        return _reply(shape, pays)
    results = messages[-2:] if shape == "openai" else messages[-1]["content"]
    return _reply(shape, [], "; ".join(result["content"] for result in results))


def _reply(shape: str, calls: list[tuple[str, str, dict[str, Any]]], text: str = "") -> Message:
    if shape == "anthropic":
        parts = [{"type": "tool_use", "id": call_id, "name": name, "input": given} for call_id, name, given in calls]
        return {"role": "assistant", "content": [*([{"type": "text", "text": text}] if text else []), *parts]}
    made = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for call_id, name, given in calls
    ]
    return {"role": "assistant", "content": text, "tool_calls": made}


def main(verb: str, answer: str = "yes", shape: str = "openai") -> None:
    with holdfast.App("sqlite:agent.db") as app:
        app.workflow(agent)
        if verb == "start":
            app.start(agent, "Please pay my orders.", shape, run_id="orders")
        else:
            for gate in app.gates("orders"):
                app.answer("orders", {"approve": answer == "yes"}, gate=gate.gate)
        handle = app.handle("orders")
        print(f"orders is {handle.status()}")
        for gate in app.gates("orders"):
            print(f"  waits for an answer: {gate.prompt} {gate.show}")
        if handle.status() == "completed":
            print(f"  {handle.result()['content']}")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The story that every adapter tells, each verb in a process of its own.

An agent looks up two orders in parallel, then pays both in parallel; `pay` needs an approval in the framework's own
way. A module `tests.adapters.<adapter>.story_agent` has

    async def pay_orders(run, policy) -> str      the workflow; returns the model's last message
    async def without_run() -> str                the same agent without a run, if it can be called so

with the tools of `tests.adapters.bank` and a model that calls `bank.model_called`. `policy` is "ask", "retry", "fail"
or "check": how a payment in doubt is decided, see `policy_of`. The final message must contain what the tools returned,
`paid 40 for A-17`, and the note of the person who refuses.

    python -m tests.adapters.story ADAPTER start POLICY | answer GATE ANSWER BY | resume | result | without_run
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import holdfast
from tests.adapters import bank

ADAPTERS: Final = (
    "agent",
    "adk",
    "ag2",
    "agent_framework",
    "llama_index",
    "openai_agents",
    "pydantic_ai",
    "strands",
)
"""The adapters that tell the whole story. Burr and CrewAI only store states."""
RUN_ID: Final = "story"
ORDERS: Final = ("A-17", "B-20")


def bank_check(arguments: Mapping[str, Any]) -> object:
    """What the bank says of a payment: the lines of its file."""
    for line in bank.lines(Path(os.environ[bank.LOG]), "pay"):
        if line["order"] == arguments["order"]:
            return holdfast.Happened(f"paid {line['amount']} for {line['order']}")
    return holdfast.DidNotHappen


def policy_of(policy: str) -> dict[str, Any]:
    """The options of the tool `pay`."""
    return {"check": bank_check} if policy == "check" else {"in_doubt": policy}


def make_app(adapter: str) -> holdfast.App:
    app = holdfast.App(os.environ["STORY_STORE"])
    agent = importlib.import_module(f"tests.adapters.{adapter}.story_agent")
    app.workflow(name="pay_orders")(agent.pay_orders)
    return app


def main(adapter: str, verb: str, *rest: str) -> int:
    """Carry out one verb; prints one line of JSON."""
    if verb == "without_run":
        agent = importlib.import_module(f"tests.adapters.{adapter}.story_agent")
        print(json.dumps({"result": asyncio.run(agent.without_run())}))
        return 0
    with make_app(adapter) as app:
        found: dict[str, Any] = {}
        try:
            if verb == "start":
                app.start("pay_orders", rest[0], run_id=RUN_ID)
            elif verb == "answer":
                app.answer(RUN_ID, json.loads(rest[1]), gate=rest[0], by=rest[2])
            elif verb == "resume":
                app.resume(RUN_ID)
            handle = app.handle(RUN_ID)
            found = {"status": handle.status(), "gates": [[gate.gate, gate.prompt] for gate in app.gates(RUN_ID)]}
            if found["status"] == "completed":
                found["result"] = handle.result()
            elif found["status"] == "failed":
                found["error"] = _error_of(handle)
        except holdfast.HoldfastError as error:
            found = {"refused": type(error).__name__, "text": str(error)}
    print(json.dumps(found))
    return 0


def _error_of(handle: holdfast.Handle[Any]) -> str:
    try:
        handle.result()
    except holdfast.RunFailed as error:
        return str(error.failure)
    return ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

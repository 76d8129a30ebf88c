"""A process that executes a CrewAI flow: it looks a price up, waits for feedback, then pays.

    python -m tests.adapters.crewai.payer URL start | claim | aclaim | plain | workflow | again

`start` begins the flow. The others resume it: `claim` and `aclaim` hold the claim meanwhile, `workflow` pays by an
effect of a Holdfast workflow, `again` begins it again from its state. The outside world is that of
`tests.adapters.bank`. A payment waits until the file `PAYER_GO` exists, if it is named. The last line of the output is
how it went.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from crewai.flow import Flow, listen, persist, start
from crewai.flow.async_feedback.types import HumanFeedbackPending, PendingFeedbackContext
from crewai.flow.flow import FlowState
from crewai.flow.human_feedback import human_feedback

import holdfast
from holdfast.adapters.crewai import HoldfastFlowPersistence
from tests.adapters import bank
from tests.adapters.story import bank_check

FLOW_ID: Final = "order-17"
GO: Final = "PAYER_GO"


class Order(FlowState):
    """What is paid."""

    amount: int = 0
    receipt: str = ""


class Later:
    """Feedback comes from another process."""

    def request_feedback(self, context: PendingFeedbackContext, flow: Any) -> str:
        raise HumanFeedbackPending(context=context)


def pay_order(run: holdfast.Run, order: str, amount: int) -> str:
    """A workflow with one effect."""

    def pay(order: str, amount: int, idempotency_key: str) -> str:
        return bank.pay(order, amount, idempotency_key)

    def check(order: str, amount: int) -> object:
        return bank_check({"order": order, "amount": amount})

    return run.effect(pay, order, amount, check=check)


def _pay(order: str, amount: int, url: str) -> str:
    if url:
        with holdfast.App(url) as app:
            app.workflow(pay_order)
            return str(app.start("pay_order", order, amount, run_id=f"pay {order}").result())
    receipt = bank.pay(order, amount, None)
    while os.environ.get(GO) and not Path(os.environ[GO]).exists():
        time.sleep(0.01)
    return receipt


def flow_class(persistence: HoldfastFlowPersistence, workflow_url: str = "") -> Any:
    """The flow, whose class names its persistence."""

    @persist(persistence)
    class PayOrder(Flow[Order]):
        @start()
        @human_feedback(message="Pay?", provider=Later())
        def quote(self) -> str:
            self.state.amount = self.state.amount or bank.look("A-17")
            return f"pay {self.state.amount}"

        @listen(quote)
        def pay(self, _: Any) -> str:
            self.state.receipt = _pay("A-17", self.state.amount, workflow_url)
            return str(self.state.receipt)

    return PayOrder


def main(url: str, how: str) -> None:
    with HoldfastFlowPersistence(url) as persistence:
        kind = flow_class(persistence, url if how == "workflow" else "")
        if how in ("start", "again"):
            with persistence.claim(FLOW_ID):
                kind(persistence=persistence).kickoff(inputs={"id": FLOW_ID})
        elif how == "plain":
            kind.from_pending(FLOW_ID, persistence).resume("yes")
        elif how == "aclaim":
            asyncio.run(_awaiting(persistence, kind))
        else:
            with persistence.claim(FLOW_ID):
                kind.from_pending(FLOW_ID, persistence).resume("yes")


async def _awaiting(persistence: HoldfastFlowPersistence, kind: Any) -> None:
    async with persistence.claim(FLOW_ID):
        await kind.from_pending(FLOW_ID, persistence).resume_async("yes")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
        print("ok")
    except (holdfast.HoldfastError, ValueError, RuntimeError) as error:
        print(type(error).__name__, type(error.__cause__).__name__ if error.__cause__ else "")

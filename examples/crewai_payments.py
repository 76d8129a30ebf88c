"""A CrewAI flow that waits for feedback before it pays, on Holdfast.

    pip install "holdfast[crewai]"
    python crewai_payments.py start A-17          # looks the price up and pauses; this process ends
    python crewai_payments.py answer A-17 yes     # another process answers and continues

The flow is plain CrewAI. Holdfast's are the persistence, the claim around each run, and the payment, which is an
effect: a process that is killed while it pays does not pay again when the flow is resumed.
"""

from __future__ import annotations

import os
import sys

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}

from crewai.flow import Flow, listen, persist, start
from crewai.flow.async_feedback.types import HumanFeedbackPending, PendingFeedbackContext
from crewai.flow.flow import FlowState
from crewai.flow.human_feedback import human_feedback

import holdfast
from holdfast.adapters.crewai import HoldfastFlowPersistence
from holdfast.errors import RunClaimed

STORE = "sqlite:crewai_payments.db"
PRICES = {"A-17": 40, "B-20": 25}
persistence = HoldfastFlowPersistence(STORE)


class Order(FlowState):
    amount: int = 0
    receipt: str = ""


class Later:
    """Feedback comes from another process; a real provider would notify a person."""

    def request_feedback(self, context: PendingFeedbackContext, flow: Flow) -> str:
        raise HumanFeedbackPending(context=context)


@persist(persistence)
class PayOrder(Flow[Order]):
    @start()
    @human_feedback(message="Pay this order?", provider=Later())
    def look(self) -> str:
        self.state.amount = PRICES[self.state.id]  # where a crew would work
        return f"{self.state.id} costs {self.state.amount}"

    @listen(look)
    def pay(self, _: object) -> str:
        if self.last_human_feedback.feedback != "yes":
            self.state.receipt = "not paid"
        else:
            with holdfast.App(STORE) as app:
                app.workflow(pay_order)
                payment = app.start(pay_order, self.state.id, self.state.amount, run_id=f"pay {self.state.id}")
                self.state.receipt = payment.result()
        return self.state.receipt


def pay_order(run: holdfast.Run, order: str, amount: int) -> str:
    """One effect. Its run is found again by its id, so it is performed once for an order."""
    return run.effect(send_money, order, amount, in_doubt="retry")


def send_money(order: str, amount: int, idempotency_key: str) -> str:
    print(f"  … paying {amount} for {order}")  # pass the key to the payment service: retries have the same one
    return f"paid {amount} for {order}"


def main(command: str, order: str, answer: str = "yes") -> int:
    try:
        with persistence.claim(order):
            if command == "start":
                flow = PayOrder(persistence=persistence, suppress_flow_events=True)
                pending = flow.kickoff(inputs={"id": order})
                print(f"{order} waits: {pending.context.message} {pending.context.method_output}")
            elif persistence.load_pending_feedback(order) is None:
                print(f"{order} has been answered already: {persistence.load_state(order)}")
            else:
                flow = PayOrder.from_pending(order, persistence, suppress_flow_events=True)
                print(f"{order}: {flow.resume(answer)}")
    except RunClaimed as busy:
        print(f"another process continues {order}: {busy}")
        return 1
    finally:
        persistence.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

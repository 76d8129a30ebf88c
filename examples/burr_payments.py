"""A Burr application that asks before it pays, on Holdfast.

    pip install "holdfast[burr]"
    python burr_payments.py start A-17          # looks the price up and stops; this process ends
    python burr_payments.py answer A-17 yes     # another process answers and continues
    python burr_payments.py history A-17

The application is plain Burr. Holdfast's are the persister, the claim around each run, and the payment, which is an
effect: a process that is killed while it pays does not pay again when the application is continued.
"""

from __future__ import annotations

import sys

from burr.core import Application, ApplicationBuilder, State, action, when

import holdfast
from holdfast.adapters.burr import HoldfastPersister
from holdfast.errors import RunClaimed

STORE = "sqlite:burr_payments.db"
PRICES = {"A-17": 40, "B-20": 25}


@action(reads=["order"], writes=["amount"])
def look(state: State) -> State:
    """Where a model or a service would be called."""
    return state.update(amount=PRICES[state["order"]])


@action(reads=["order", "amount"], writes=["approved"])
def ask(state: State, answer: str) -> State:
    return state.update(approved=answer == "yes")


@action(reads=["order", "amount"], writes=["receipt"])
def pay(state: State) -> State:
    with holdfast.App(STORE) as app:
        app.workflow(pay_order)
        payment = app.start(pay_order, state["order"], state["amount"], run_id=f"pay {state['order']}")
        return state.update(receipt=payment.result())


@action(reads=[], writes=["receipt"])
def refuse(state: State) -> State:
    return state.update(receipt="not paid")


def pay_order(run: holdfast.Run, order: str, amount: int) -> str:
    """One effect. Its run is found again by its id, so it is performed once for an order."""
    return run.effect(send_money, order, amount, in_doubt="retry")


def send_money(order: str, amount: int, idempotency_key: str) -> str:
    print(f"  … paying {amount} for {order}")  # pass the key to the payment service: retries have the same one
    return f"paid {amount} for {order}"


def build(persister: HoldfastPersister, order: str) -> Application:
    return (
        ApplicationBuilder()
        .with_actions(look, ask, pay, refuse)
        .with_transitions(("look", "ask"), ("ask", "pay", when(approved=True)), ("ask", "refuse"))
        .initialize_from(
            persister, resume_at_next_action=True, default_state={"order": order}, default_entrypoint="look"
        )
        .with_state_persister(persister)
        .with_identifiers(app_id=order)
        .build()
    )


def main(command: str, order: str, answer: str = "yes") -> int:
    with HoldfastPersister(STORE) as persister:
        if command == "history":
            for saved in persister.store.history(order):
                print(f"  {saved.step:>2}  {saved.metadata['position']:<6} {saved.metadata['outcome']}")
            return 0
        try:
            with persister.claim(order):
                application = build(persister, order)  # inside the claim, so that it loads the newest state
                if command == "start":
                    _, _, state = application.run(halt_before=["ask"])
                    print(f"{order} waits: pay {state['amount']}?")
                elif application.get_next_action() is None:
                    print(f"{order} has been answered already: {application.state['receipt']}")
                else:
                    _, _, state = application.run(halt_after=["pay", "refuse"], inputs={"answer": answer})
                    print(f"{order}: {state['receipt']}")
        except RunClaimed as busy:
            print(f"another process continues {order}: {busy}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""A process that continues an application of Burr: it quotes a price, then pays.

    python -m tests.adapters.burr.payer URL claim | aclaim | plain | workflow

`claim` and `aclaim` hold the claim meanwhile; `workflow` pays by an effect of a Holdfast workflow. The outside world is
that of `tests.adapters.bank`. A payment waits until the file `PAYER_GO` exists, if it is named. The last line of the
output is how it went.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any, Final, cast

from burr.core import ApplicationBuilder, State, action

import holdfast
from holdfast.adapters.burr import AsyncHoldfastPersister, HoldfastPersister
from tests.adapters import bank
from tests.adapters.story import bank_check

APP_ID: Final = "order-17"
GO: Final = "PAYER_GO"


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
            handle = app.start("pay_order", order, amount, run_id=f"pay {order}")
            return str(handle.result())
    receipt = bank.pay(order, amount, None)
    while os.environ.get(GO) and not Path(os.environ[GO]).exists():
        time.sleep(0.01)
    return receipt


def builder() -> Any:
    """A builder, whose methods are only annotated in part."""
    return cast("Any", ApplicationBuilder)()


def build(persister: Any, workflow_url: str = "") -> Any:
    """A builder of the application. In an async application the actions must be coroutines."""

    @action(reads=[], writes=["amount"])
    def quote(state: State[Any]) -> State[Any]:
        return state.update(amount=bank.look("A-17"))

    @action(reads=["amount"], writes=["receipt"])
    def pay(state: State[Any]) -> State[Any]:
        return state.update(receipt=_pay("A-17", state["amount"], workflow_url))

    @action(reads=[], writes=["amount"])
    async def aquote(state: State[Any]) -> State[Any]:
        return state.update(amount=bank.look("A-17"))

    @action(reads=["amount"], writes=["receipt"])
    async def apay(state: State[Any]) -> State[Any]:
        return state.update(receipt=_pay("A-17", state["amount"], workflow_url))

    actions = {"quote": aquote, "pay": apay} if persister.is_async() else {"quote": quote, "pay": pay}
    return (
        builder()
        .with_actions(**actions)
        .with_transitions(("quote", "pay"))
        .initialize_from(persister, resume_at_next_action=True, default_state={}, default_entrypoint="quote")
        .with_state_persister(persister)
        .with_identifiers(app_id=APP_ID)
    )


def main(url: str, how: str) -> None:
    if how == "aclaim":
        asyncio.run(_awaiting(url))
        return
    with HoldfastPersister(url) as persister:
        if how == "plain":
            build(persister).build().run(halt_after=["pay"])
            return
        with persister.claim(APP_ID):
            build(persister, url if how == "workflow" else "").build().run(halt_after=["pay"])


async def _awaiting(url: str) -> None:
    async with AsyncHoldfastPersister(url) as persister, persister.claim(APP_ID):
        application = await build(persister).abuild()
        await application.arun(halt_after=["pay"])


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
        print("ok")
    except holdfast.HoldfastError as error:
        print(type(error).__name__)

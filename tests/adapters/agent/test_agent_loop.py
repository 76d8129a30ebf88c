"""The agent of `examples/agent`: what the common story does not cover."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import Diverged

_PLACE = Path(__file__).parents[3] / "examples" / "agent" / "agent.py"


@pytest.mark.parametrize("shape", ["openai", "anthropic"])
def test_a_payment_that_was_refused_is_not_made_even_if_its_approval_was_removed(shape: str) -> None:
    example: dict[str, Any] = runpy.run_path(str(_PLACE))
    paid: list[str] = []

    def pay(order: str, amount: int) -> str:
        paid.append(order)
        return f"paid {amount} for {order}"

    example["TOOLS"]["pay"] = pay
    with holdfast.App("memory:") as app:
        app.workflow(example["agent"])
        handle = app.start("agent", "Please pay my orders.", shape, run_id="r")
        first, second = app.gates("r")
        example["NEEDS_APPROVAL"].clear()
        with pytest.raises(Diverged):
            app.answer("r", {"approve": False}, gate=first.gate)
        assert paid == []
        example["NEEDS_APPROVAL"].add("pay")
        app.resume("r")
        app.answer("r", {"approve": True}, gate=second.gate)
        assert "refused: no reason was given; paid 25 for B-20" in str(handle.result())
    assert paid == ["B-20"]

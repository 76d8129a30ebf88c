"""Idempotency keys are handed to functions that have a parameter for one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def takes_token(fn: Callable[..., Any]) -> bool:
    """Whether the function has a parameter named idempotency_key."""
    try:
        return "idempotency_key" in inspect.signature(fn).parameters
    except (TypeError, ValueError):  # a builtin may have no signature to look at
        return False

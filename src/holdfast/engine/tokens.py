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


def with_token(fn: Callable[..., Any], kwargs: dict[str, Any], token: str) -> dict[str, Any]:
    """The keyword arguments of a call, with the idempotency key if the function takes one and none was given."""
    return {**kwargs, "idempotency_key": token} if takes_token(fn) and "idempotency_key" not in kwargs else kwargs

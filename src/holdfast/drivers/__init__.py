"""Plans, and the blocking and async drivers that execute them.

A plan is a generator that decides and never acts. It yields a `Commit`, a function without arguments that reads, or a
command for which its driver has a handler. The driver sends back the result or throws the error. The engine's plans
yield commands of the engine; `runtime.interpreter` translates these first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

R = TypeVar("R")

Plan = Generator[object, Any, R]
Handler = Callable[[Any], R]
"""Executes the commands of one type."""

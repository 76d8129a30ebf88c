"""Durable agent workflows: finished work is never lost, and no effect is performed twice.

Example:
    app = holdfast.App("sqlite:runs.db")

    @app.workflow
    def refund(run, order):
        if run.ask("Refund this order?", {"approve": bool})["approve"]:
            return run.effect(print, f"paid back {order}")

    app.start(refund, "A-17", run_id="order-17")        # waits at the gate; the process may end
    app.answer("order-17", {"approve": True}, by="ana")  # from any process
"""

from __future__ import annotations

import sys

from holdfast import fork_safety

TYPE_CHECKING = False  # importing typing would slow down `holdfast --version`
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Final

    from holdfast import errors as errors
    from holdfast.engine.effect_outcome import DidNotHappen, Happened
    from holdfast.engine.retry import Retry
    from holdfast.errors import (
        AlreadyAnswered,
        Conflict,
        DamagedData,
        EffectFailed,
        EffectInDoubt,
        HoldfastError,
        InDoubt,
        InvalidAnswer,
        InvalidInput,
        NotFinished,
        NotFound,
        RunCancelled,
        RunClaimed,
        RunFailed,
        StepFailed,
        StorageError,
    )
    from holdfast.forms import Form, field
    from holdfast.graphs.definition import Graph
    from holdfast.model.views import Checkpoint, Effect, Entry, GateInfo, Keep, RunInfo
    from holdfast.open_store import open  # noqa: A004 - the public name is holdfast.open
    from holdfast.operations.store import Claim, Store
    from holdfast.runtime.app import App
    from holdfast.runtime.async_run import AsyncRun
    from holdfast.runtime.handle import Handle
    from holdfast.runtime.registry import Workflow
    from holdfast.runtime.run import Run
    from holdfast.runtime.run_base import current_run
    from holdfast.runtime.worker import Worker

__version__ = "0.1.0"

_HOMES: Final = {
    "App": "holdfast.runtime.app",
    "AsyncRun": "holdfast.runtime.async_run",
    "Checkpoint": "holdfast.model.views",
    "Claim": "holdfast.operations.store",
    "DidNotHappen": "holdfast.engine.effect_outcome",
    "Effect": "holdfast.model.views",
    "Entry": "holdfast.model.views",
    "Form": "holdfast.forms",
    "GateInfo": "holdfast.model.views",
    "Graph": "holdfast.graphs.definition",
    "Handle": "holdfast.runtime.handle",
    "Happened": "holdfast.engine.effect_outcome",
    "Keep": "holdfast.model.views",
    "Retry": "holdfast.engine.retry",
    "Run": "holdfast.runtime.run",
    "RunInfo": "holdfast.model.views",
    "Store": "holdfast.operations.store",
    "Worker": "holdfast.runtime.worker",
    "Workflow": "holdfast.runtime.registry",
    "current_run": "holdfast.runtime.run_base",
    "field": "holdfast.forms",
    "open": "holdfast.open_store",
}
"""The module of each name, imported on first use: a program that uses only a store does not load the engine, and the
command prints its help without loading either. The other names are errors.
"""

_PARTS: Final = ("clock", "errors", "ids", "limits", "model", "open_store", "operations", "state", "store")
"""Modules that can be used after `import holdfast` alone."""


if not TYPE_CHECKING:  # a type checker must report a name that does not exist

    def __getattr__(name: str) -> object:
        if name in _PARTS:  # so that `from holdfast import errors` works
            return _module(f"holdfast.{name}")
        if name not in __all__:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        with fork_safety.loading:
            value = globals()[name] = getattr(_module(_HOMES.get(name, "holdfast.errors")), name)
        return value

    def _module(name: str) -> ModuleType:
        __import__(name)  # not importlib: a fork does not wait for the import of importlib itself
        return sys.modules[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PARTS})


__all__ = [
    "AlreadyAnswered",
    "App",
    "AsyncRun",
    "Checkpoint",
    "Claim",
    "Conflict",
    "DamagedData",
    "DidNotHappen",
    "Effect",
    "EffectFailed",
    "EffectInDoubt",
    "Entry",
    "Form",
    "GateInfo",
    "Graph",
    "Handle",
    "Happened",
    "HoldfastError",
    "InDoubt",
    "InvalidAnswer",
    "InvalidInput",
    "Keep",
    "NotFinished",
    "NotFound",
    "Retry",
    "Run",
    "RunCancelled",
    "RunClaimed",
    "RunFailed",
    "RunInfo",
    "StepFailed",
    "StorageError",
    "Store",
    "Worker",
    "Workflow",
    "current_run",
    "errors",
    "field",
    "open",
]

"""Holdfast keeps agent workflows alive: nothing done is lost, nothing is done twice.

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

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from holdfast import forking
from holdfast.errors import *  # noqa: F403 - the whole tree is public
from holdfast.errors import __all__ as _errors
from holdfast.model.views import (
    Change,
    Checkpoint,
    CheckpointInfo,
    Effect,
    Entry,
    Keep,
    Problem,
    Pruned,
    Report,
    RunInfo,
    RunList,
    Saved,
    Stats,
)
from holdfast.opening import open  # noqa: A004 - holdfast.open is what it is called
from holdfast.verbs.store import Claim, Store

if TYPE_CHECKING:
    from holdfast.engine.effects import DidNotHappen, Happened
    from holdfast.engine.forms import Form, field
    from holdfast.engine.retry import Retry
    from holdfast.graphs.definition import Graph
    from holdfast.model.gates import GateInfo
    from holdfast.model.plans import EffectPlan, RollbackPlan
    from holdfast.runtime.app import App
    from holdfast.runtime.async_run import AsyncRun
    from holdfast.runtime.handle import Handle
    from holdfast.runtime.registry import Workflow
    from holdfast.runtime.run import Run
    from holdfast.runtime.worker import Worker

__version__ = "0.1.0"

_LATE: Final = {
    "App": "holdfast.runtime.app",
    "AsyncRun": "holdfast.runtime.async_run",
    "DidNotHappen": "holdfast.engine.effects",
    "EffectPlan": "holdfast.model.plans",
    "Form": "holdfast.engine.forms",
    "GateInfo": "holdfast.model.gates",
    "Graph": "holdfast.graphs.definition",
    "Handle": "holdfast.runtime.handle",
    "Happened": "holdfast.engine.effects",
    "Retry": "holdfast.engine.retry",
    "RollbackPlan": "holdfast.model.plans",
    "Run": "holdfast.runtime.run",
    "Worker": "holdfast.runtime.worker",
    "Workflow": "holdfast.runtime.registry",
    "field": "holdfast.engine.forms",
}
"""Where the engine's names come from, for those who use it: a store alone does not load it."""


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    with forking.loading:
        value = globals()[name] = getattr(import_module(_LATE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE})


__all__ = [  # noqa: PLE0604 - the errors list themselves
    "App",
    "AsyncRun",
    "Change",
    "Checkpoint",
    "CheckpointInfo",
    "Claim",
    "DidNotHappen",
    "Effect",
    "EffectPlan",
    "Entry",
    "Form",
    "GateInfo",
    "Graph",
    "Handle",
    "Happened",
    "Keep",
    "Problem",
    "Pruned",
    "Report",
    "Retry",
    "RollbackPlan",
    "Run",
    "RunInfo",
    "RunList",
    "Saved",
    "Stats",
    "Store",
    "Worker",
    "Workflow",
    "field",
    "open",
    *_errors,
]

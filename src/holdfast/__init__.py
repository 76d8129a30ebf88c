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

import sys

from holdfast import forking

TYPE_CHECKING = False  # as in typing, which a command that only prints its version need not load
if TYPE_CHECKING:
    from typing import Any, Final

    from holdfast.engine.forms import Form, field
    from holdfast.engine.outcome import DidNotHappen, Happened
    from holdfast.engine.retry import Retry
    from holdfast.errors import (
        AlreadyAnswered,
        AmbiguousId,
        AttachmentConflict,
        BlockingCall,
        Cancelled,
        CheckpointConflict,
        CheckpointNotFound,
        ChildFailed,
        ClaimLost,
        Conflict,
        DamagedData,
        DamagedFile,
        DefinitionChanged,
        Diverged,
        EffectFailed,
        EffectInDoubt,
        GateClosed,
        GateExpired,
        Halted,
        HoldfastError,
        InDoubt,
        InputConflict,
        Interrupt,
        InvalidAnswer,
        InvalidCursor,
        InvalidGraph,
        InvalidId,
        InvalidInput,
        KeyReused,
        LeaseLost,
        LimitExceeded,
        MissingAwait,
        NameTaken,
        NotFinished,
        NotFound,
        ParentRemoved,
        PositionConflict,
        ResultLost,
        RollbackFailed,
        RollbackRefused,
        RunCancelled,
        RunClaimed,
        RunEnded,
        RunError,
        RunExists,
        RunFailed,
        RunNotFound,
        StageFailed,
        StepFailed,
        StorageBusy,
        StorageError,
        StorageFailed,
        StorageFull,
        StoreClosed,
        Suspended,
        UnknownWorkflow,
        Unstorable,
        UnsupportedFormat,
        WorkflowConflict,
    )
    from holdfast.graphs.definition import Graph
    from holdfast.model.gates import GateInfo
    from holdfast.model.plans import EffectPlan, RollbackPlan
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
    from holdfast.runtime.app import App
    from holdfast.runtime.async_run import AsyncRun
    from holdfast.runtime.current_run import current_run
    from holdfast.runtime.handle import Handle
    from holdfast.runtime.registry import Workflow
    from holdfast.runtime.run import Run
    from holdfast.runtime.worker import Worker
    from holdfast.verbs.store import Claim, Store

__version__ = "0.1.0"

_LATE: Final = {
    "App": "holdfast.runtime.app",
    "AsyncRun": "holdfast.runtime.async_run",
    "Change": "holdfast.model.views",
    "Checkpoint": "holdfast.model.views",
    "CheckpointInfo": "holdfast.model.views",
    "Claim": "holdfast.verbs.store",
    "DidNotHappen": "holdfast.engine.outcome",
    "Effect": "holdfast.model.views",
    "EffectPlan": "holdfast.model.plans",
    "Entry": "holdfast.model.views",
    "Form": "holdfast.engine.forms",
    "GateInfo": "holdfast.model.gates",
    "Graph": "holdfast.graphs.definition",
    "Handle": "holdfast.runtime.handle",
    "Happened": "holdfast.engine.outcome",
    "Keep": "holdfast.model.views",
    "Problem": "holdfast.model.views",
    "Pruned": "holdfast.model.views",
    "Report": "holdfast.model.views",
    "Retry": "holdfast.engine.retry",
    "RollbackPlan": "holdfast.model.plans",
    "Run": "holdfast.runtime.run",
    "RunInfo": "holdfast.model.views",
    "RunList": "holdfast.model.views",
    "Saved": "holdfast.model.views",
    "Stats": "holdfast.model.views",
    "Store": "holdfast.verbs.store",
    "Worker": "holdfast.runtime.worker",
    "Workflow": "holdfast.runtime.registry",
    "current_run": "holdfast.runtime.current_run",
    "field": "holdfast.engine.forms",
    "open": "holdfast.opening",
}
"""Where each name comes from. It is loaded when it is first asked for: who uses a store does not load the engine, and
the command prints its help without loading either. The other names are errors.
"""

_PARTS: Final = ("clock", "errors", "ids", "limits", "model", "opening", "state", "store", "verbs")
"""Modules that can be used after `import holdfast` alone."""


if not TYPE_CHECKING:  # to a type checker, a name that is not there is a mistake

    def __getattr__(name: str) -> Any:
        if name in _PARTS:  # as an import statement would: modules of ours say `from holdfast import errors`
            return _module(f"holdfast.{name}")
        if name not in __all__:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        with forking.loading:
            value = globals()[name] = getattr(_module(_LATE.get(name, "holdfast.errors")), name)
        return value

    def _module(name: str) -> Any:
        __import__(name)  # importlib itself would have to be imported first, and a fork would not wait for that
        return sys.modules[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PARTS})


__all__ = [
    "AlreadyAnswered",
    "AmbiguousId",
    "App",
    "AsyncRun",
    "AttachmentConflict",
    "BlockingCall",
    "Cancelled",
    "Change",
    "Checkpoint",
    "CheckpointConflict",
    "CheckpointInfo",
    "CheckpointNotFound",
    "ChildFailed",
    "Claim",
    "ClaimLost",
    "Conflict",
    "DamagedData",
    "DamagedFile",
    "DefinitionChanged",
    "DidNotHappen",
    "Diverged",
    "Effect",
    "EffectFailed",
    "EffectInDoubt",
    "EffectPlan",
    "Entry",
    "Form",
    "GateClosed",
    "GateExpired",
    "GateInfo",
    "Graph",
    "Halted",
    "Handle",
    "Happened",
    "HoldfastError",
    "InDoubt",
    "InputConflict",
    "Interrupt",
    "InvalidAnswer",
    "InvalidCursor",
    "InvalidGraph",
    "InvalidId",
    "InvalidInput",
    "Keep",
    "KeyReused",
    "LeaseLost",
    "LimitExceeded",
    "MissingAwait",
    "NameTaken",
    "NotFinished",
    "NotFound",
    "ParentRemoved",
    "PositionConflict",
    "Problem",
    "Pruned",
    "Report",
    "ResultLost",
    "Retry",
    "RollbackFailed",
    "RollbackPlan",
    "RollbackRefused",
    "Run",
    "RunCancelled",
    "RunClaimed",
    "RunEnded",
    "RunError",
    "RunExists",
    "RunFailed",
    "RunInfo",
    "RunList",
    "RunNotFound",
    "Saved",
    "StageFailed",
    "Stats",
    "StepFailed",
    "StorageBusy",
    "StorageError",
    "StorageFailed",
    "StorageFull",
    "Store",
    "StoreClosed",
    "Suspended",
    "UnknownWorkflow",
    "Unstorable",
    "UnsupportedFormat",
    "Worker",
    "Workflow",
    "WorkflowConflict",
    "current_run",
    "field",
    "open",
]

"""Holdfast keeps agent workflows alive: nothing done is lost, nothing is done twice.

Example:
    store = holdfast.open("sqlite:runs.db")
    store.save("run-1", {"messages": []}, workflow="triage")
    store.load("run-1").state
"""

from __future__ import annotations

from holdfast.engine.effects import DidNotHappen, Happened
from holdfast.engine.forms import Form, field
from holdfast.engine.retry import Retry
from holdfast.errors import *  # noqa: F403 - the whole tree is public
from holdfast.errors import __all__ as _errors
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
from holdfast.runtime.handle import Handle
from holdfast.runtime.registry import Workflow
from holdfast.runtime.run import Run
from holdfast.runtime.worker import Worker
from holdfast.verbs.store import Claim, Store

__version__ = "0.1.0"

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

"""Definitions: what the run of a declared workflow goes by. It travels with the run.

It stands in the run's first entry, or, if whoever started the run did not have it, in an entry of its own that is
written with the first thing the run does. A later entry of the kind "definition" replaces it: the run was migrated.
"""

from __future__ import annotations

from typing import Any

from holdfast.engine.execution import Execution
from holdfast.engine.scope import Scope
from holdfast.errors import RunError


def definition_of(exe: Execution, scope: Scope, registered: Any) -> Any:
    """The run's definition; `registered`, which is then recorded, if it has none yet."""
    if exe.record.definition is None:
        if registered is None:
            raise refused(exe, RunError(f"run {exe.run_id!r} has no definition, and this process has none for it"))
        exe.record.definition = registered
        scope.pending.append({"kind": "definition", "definition": registered})
    return exe.record.definition


def refused(exe: Execution, error: RunError) -> RunError:
    """The run cannot go on here as things are: it is paused and nothing is lost."""
    exe.record.diverged = error
    exe.alarm = True
    return error

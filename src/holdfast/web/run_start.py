"""Start of runs from the page and the API. A worker executes them."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.errors import Conflict, InvalidInput
from holdfast.forms import Problem
from holdfast.ids import check_id
from holdfast.limits import ID_BYTES_MAX
from holdfast.model.views import WorkflowInfo
from holdfast.web.workflow_catalog import find_known

if TYPE_CHECKING:
    from holdfast.web.site import Context

_OPTIONS: Final = frozenset({"run_id", "metadata", "enqueue", "at", "after"})
"""Parameters of `app.start`, which hide parameters of a workflow with the same name."""


class Started(NamedTuple):
    """A run that was started, or that a start with the same id and input had started before."""

    run_id: str
    is_new: bool


class InputRefused(InvalidInput):
    """The input does not fit the workflow. `problems` lists everything wrong with it, `fields` by field."""

    def __init__(self, workflow: str, fields: list[Problem]) -> None:
        self.problems = [str(problem) for problem in fields]
        super().__init__(f"the input does not fit workflow {workflow!r}: {'; '.join(self.problems)}")
        self.fields = fields


def start(
    c: Context,
    workflow: str,
    values: dict[str, Any],
    *,
    run_id: str | None = None,
    metadata: dict[str, Any],
    begin: dict[str, Any] | None = None,
) -> Started:
    """Start a run of a workflow that is known, or find the one that was started with this id and input.

    `begin` is the `at` or `after` of `app.start`.
    """
    info = find_known(c, workflow)
    if info.form.fields or not (info.declared or c.app.knows(workflow)):
        checked = info.form.check(values)
        if checked.problems:
            raise InputRefused(workflow, checked.problems)
    run_id = new_run_id(workflow) if run_id is None else check_id("run_id", run_id)
    existing = c.store.port.run(run_id)
    if existing is not None and not c.user.can_see(existing.workflow):
        raise Conflict(f"the run id {run_id!r} is taken; use another")
    args, kwargs = _arguments(info, values)
    c.app.start(workflow, *args, run_id=run_id, metadata=metadata or None, enqueue=True, **(begin or {}), **kwargs)
    return Started(run_id, existing is None)


def new_run_id(workflow: str) -> str:
    """An id for a new run."""
    name = workflow.encode()[: ID_BYTES_MAX - 20].decode(errors="ignore")
    return f"{name}-{secrets.token_hex(6)}"


def _arguments(info: WorkflowInfo, values: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call. A declared workflow takes its input as one dict.

    Parameters that `app.start` has itself can only be given by position, with all before them.
    """
    if info.declared:
        return (values,), {}
    hidden = [at for at, field in enumerate(info.form.fields) if field.name in _OPTIONS and field.name in values]
    args: list[Any] = []
    for field in info.form.fields[: max(hidden) + 1 if hidden else 0]:
        if field.name not in values and not field.has_default:
            raise InputRefused(info.name, [Problem(field.name, "is needed, because a later argument is given")])
        args.append(values.get(field.name, field.default))
    given = {field.name for field in info.form.fields[: len(args)]}
    return tuple(args), {name: value for name, value in values.items() if name not in given}

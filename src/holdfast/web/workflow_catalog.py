"""The workflows that a user can start: those that workers have published, and those of the page's own app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.errors import HoldfastError, NotFound
from holdfast.errors.store import close_matches, did_you_mean
from holdfast.model.rows import RunRow
from holdfast.model.views import WorkflowInfo
from holdfast.operations.views import moment
from holdfast.runtime.publication import describe
from holdfast.runtime.replay_input import first_entry

if TYPE_CHECKING:
    from holdfast.web.site import Context

NEVER: Final = moment(0)
"""When a workflow was published that only the page's own app has."""


def list_known(c: Context) -> list[WorkflowInfo]:
    """The workflows that the user may see, by name. What the page's own app has registered comes first."""
    own = {name: _own(c, name) for name in c.app.registry.own_names()}
    known = {one.name: one for one in c.store.workflows()} | own
    return [known[name] for name in sorted(known) if c.user.can_see(name)]


def find_known(c: Context, name: str) -> WorkflowInfo:
    """A workflow that the user may see; NotFound if there is none of that name."""
    known = list_known(c)
    for one in known:
        if one.name == name:
            return one
    names = did_you_mean(close_matches(name, [one.name for one in known]))
    raise NotFound(f"there is no workflow {name!r}" + (names and f"; {names}"))


def input_names(c: Context, run: RunRow) -> tuple[str, ...]:
    """The parameters of the workflow of a run, in their order; none if they are not known, or have changed since."""
    try:
        started = first_entry(c.store.access.core, run)
    except HoldfastError:  # a damaged entry must not hide the rest of the run
        return ()
    known = next((one for one in list_known(c) if one.name == started.get("workflow")), None)
    if known is None or known.version != started.get("version"):
        return ()
    names = tuple(field.name for field in known.form.fields)
    return names if len(started.get("args") or ()) <= len(names) else ()


def _own(c: Context, name: str) -> WorkflowInfo:
    workflow = c.app.registry.workflows[name]
    one = describe(workflow)
    return WorkflowInfo(
        name=name, version=one.version, doc=one.doc, form=one.form, declared=one.declared, published_at=NEVER
    )

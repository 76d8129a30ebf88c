"""What verbs read of a run: the run that an argument names, its open gates, the command that answers one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from holdfast.cli.format import command_line
from holdfast.cli.output import one_line
from holdfast.ids import gate_labels
from holdfast.inspect.refs import run_of
from holdfast.inspect.status import gates_of, pending_cancel

if TYPE_CHECKING:
    from holdfast.cli.session import Session
    from holdfast.forms import Field
    from holdfast.inspect.views import PendingCancel
    from holdfast.model.views import GateInfo
    from holdfast.operations.store_reads import StoreReads

_CHILDREN_MAX: Final = 100
_CHOICES_MAX: Final = 60
"""Longer lists of choices are not written out in a command."""


def open_gates(store: StoreReads, run_id: str) -> list[GateInfo]:
    """Return the open gates of a run, then those of its children; none if a cancel of the run is pending."""
    children = store.runs(prefix=f"{run_id}/", status="waiting", limit=_CHILDREN_MAX)
    found = gates_of(store, run_id) + [gate for info in children for gate in gates_of(store, info.run_id)]
    if found and pending_cancel(store, run_id) is not None:
        return []
    return found


def note_cancel(session: Session, run_id: str, cancel: PendingCancel) -> None:
    """Print that a cancel is pending, by whom and when it was requested."""
    requested = f"a cancel was requested by {cancel.by} {session.out.when(cancel.at)}"
    text = f"{run_id}: {requested} and is pending; the next worker that takes the run carries it out"
    for line in session.out.wrapped(one_line(text)):
        session.out.note(line)


def find_run(session: Session, text: str, *, whole: bool = False) -> str:
    """Return the id of the run that `text` names; RunNotFound if there is none, AmbiguousId if there are several.

    `whole`: the command changes the run, so an abbreviated id is refused.
    """
    return run_of(session.store() if whole else session.reads(), text, whole=whole)


def answer_line(gate: GateInfo, *, among: Sequence[GateInfo] = ()) -> str:
    """Return the command that answers a gate, with a placeholder for each value. `among`: all open gates."""
    return f"{command_line(('holdfast', 'answer', gate.run_id))} {usage_of(gate, among=among)}".rstrip()


def resume_call(thread_id: str) -> str:
    """Return the call that answers an interrupt of a LangGraph thread."""
    return f'graph.invoke(Command(resume=…), {{"configurable": {{"thread_id": {json.dumps(thread_id)}}}}})'


def usage_of(gate: GateInfo, *, among: Sequence[GateInfo] = ()) -> str:
    """Return the arguments of `answer` for a gate, with a placeholder for each value: its choices, if they are short.

    They are quoted for a shell: without quotes, `approve=yes|no` would be a pipe, and would answer yes.
    """
    gates = [other.gate for other in among if other.run_id == gate.run_id]
    which = [command_line(("--gate", gate_labels(gates)[gate.gate]))] if len(gates) > 1 else []
    fields = [field for field in gate.form.fields if field.required]
    return " ".join([*which, *(f"{shlex.quote(field.name)}={_placeholder(field)}" for field in fields)])


def _placeholder(field: Field) -> str:
    if field.kind == "yes_no":
        return shlex.quote("yes|no")
    words = "|".join(choice.value if isinstance(choice.value, str) else choice.label for choice in field.choices)
    return shlex.quote(words) if words and len(words) <= _CHOICES_MAX else "…"

"""Gates as users see them, from their rows and bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blake3 import blake3

from holdfast.engine.approvals import levels, who_at
from holdfast.errors import DamagedData
from holdfast.forms.form import Form
from holdfast.model.rows import GateRow, RunRow
from holdfast.model.views import Approval, Assignment, Escalation, GateInfo
from holdfast.operations.views import decode_body, moment
from holdfast.store.checksum import verify_checksum

if TYPE_CHECKING:
    from holdfast.engine.commands import EntryData

GATE_STATES: Final = ("open", "answered", "expired", "closed")


def gate_body(run: RunRow, row: GateRow) -> EntryData:
    """The body of a gate, checked."""
    place = f"gate {row.gate!r} of run {run.run_id!r}"
    verify_checksum(row, run.incarnation, place)
    body = decode_body(row.body, place)
    if not isinstance(body, dict) or body.get("v") not in (1, 2):
        raise DamagedData(place, "it is not a gate that this version can read")
    return body


def gate_info(run: RunRow, row: GateRow, now_us: int) -> GateInfo:
    """A gate as users see it at this time."""
    body = gate_body(run, row)
    return GateInfo(
        run_id=run.run_id,
        workflow=run.workflow,
        gate=row.gate,
        state=row.state,
        prompt=body["prompt"],
        form=Form.from_data(body["form"]),
        show=body["show"],
        who=who_at(body, row.opened_us, now_us),
        purpose=body["purpose"],
        opened_at=moment(row.opened_us),
        expires_at=None if row.expires_us is None else moment(row.expires_us),
        answered_at=None if row.answered_us is None else moment(row.answered_us),
        answered_by=row.answered_by,
        approvals=body.get("approvals", 1),
        approved=tuple(
            [
                Approval(by=one["by"], at=moment(one["at_us"]), via=one["via"], answer=one["answer"])
                for one in body.get("approved", ())
            ]
        ),
        not_by=tuple(body.get("not_by", ())),
        escalations=tuple(
            [
                Escalation(at=moment(level.at_us), who=level.who, due=level.at_us <= now_us)
                for level in levels(body, row.opened_us)
            ]
        ),
        assigned=tuple([_assignment(one) for one in body.get("assigned", ())]),
        cursor=f"{row.opened_us}/{run.run}/{row.gate}",
        question=question_of(run, row),
    )


def question_of(run: RunRow, row: GateRow) -> str:
    """What identifies the question of a gate: another one under the same name, also of another run, has another."""
    return blake3(b"%s %d %s" % (run.incarnation.hex().encode(), row.opened_us, row.gate.encode())).hexdigest(9)


def _assignment(one: EntryData) -> Assignment:
    at, who = moment(one["at_us"]), tuple(one["who"])
    return Assignment(by=one["by"], at=at, via=one["via"], who=who, reason=one["reason"])

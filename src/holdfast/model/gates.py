"""A gate as users see it."""

from __future__ import annotations

import datetime as dt
from typing import Any

from holdfast.model.names import display_name
from holdfast.model.views import View


class GateInfo(View, frozen=True, kw_only=True):
    """A planned stop for an answer, as `app.gates` lists it."""

    run_id: str
    workflow: str
    gate: str
    state: str
    """`open`, `answered`, `expired` or `closed`."""
    prompt: str
    form: Any
    """The fields an answer has: a `holdfast.Form`."""
    show: Any
    """What is to be shown beside the question."""
    who: tuple[str, ...]
    """Who may answer; empty: anybody."""
    purpose: str
    """`ask`, `in_doubt` for an effect whose outcome is unknown, or `interrupt` of a LangGraph thread, which is
    answered through its graph."""
    opened_at: dt.datetime
    expires_at: dt.datetime | None
    answered_at: dt.datetime | None
    answered_by: str | None

    @property
    def name(self) -> str:
        """The gate as people see it: `approve` for `loop#1[2]/approve#1`. `answer` takes it if it means one gate."""
        return display_name(self.gate)

"""Composes the message of an event from what the store holds now.

It is called right before each attempt to send, so a gate that was answered meanwhile is not announced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.model.rows import FAILED, EntryRow, GateRow, RunRow
from holdfast.model.views import GateInfo
from holdfast.notifications.events import NEVER_US, RUN_FAILED, TEST, Event, failure_event, gate_events
from holdfast.notifications.message import PROMPT_CHARS_MAX, Message, line, page_url, plain
from holdfast.notifications.show_mask import Pattern, mask_gate
from holdfast.operations.gates import gate_info
from holdfast.operations.views import moment
from holdfast.store.checksum import verify_run

if TYPE_CHECKING:
    from holdfast.operations.store import Store
    from holdfast.store.port import StorePort


class Over(Exception):
    """The event is not worth announcing any more."""


def read_failure(port: StorePort, run: RunRow) -> Event:
    """The event of a failed run."""
    rows = port.rows(EntryRow, run.run, run.position - 1, 1) if run.position else []
    return failure_event(run, rows[0] if rows else None)


class Composer:
    """Composes messages. `base_url` is the address of the page, `mask` the paths that `show` is sent without."""

    def __init__(self, store: Store, base_url: str, mask: Sequence[Pattern]) -> None:
        self._core = store.access.core
        self._base_url = base_url
        self._mask = mask

    def compose(self, event: Event, *, include_show: bool) -> Message:
        """The message; raises Over if the gate is not open any more, or the run is not failed any more."""
        run = self._core.port.run(event.run_id)
        if run is None or run.incarnation.hex() != event.incarnation:
            raise Over("the run was deleted")
        verify_run(run)
        if event.event == RUN_FAILED:
            if run.status != FAILED or read_failure(self._core.port, run).detail != event.detail:
                raise Over("the run was continued")
            return self._message(event, run, None, include_show=False)
        rows = self._core.port.rows(GateRow, run.run)
        row = next((row for row in rows if row.gate == event.gate and row.opened_us == event.opened_us), None)
        if row is None or row.state != "open":
            raise Over(f"the gate is {'closed' if row is None else row.state}")
        now_us = self._core.clock.now_us()
        if row.expires_us is not None and row.expires_us <= now_us:
            raise Over("the gate is expired")
        info = gate_info(run, row, now_us)
        present = gate_events(run, row, info, NEVER_US, 0).happened
        if (event.event, event.detail) not in [(one.event, one.detail) for one in present]:
            raise Over("the gate was changed")
        return self._message(event, run, info, include_show=include_show)

    def _message(self, event: Event, run: RunRow, info: GateInfo | None, *, include_show: bool) -> Message:
        gate, who, prompt, show = None, event.who, "", None
        if info is not None:
            gate, who = info.gate, event.who or info.who
            show, prompt = mask_gate(info.show, info.prompt, self._mask)
        return Message(
            id=event.id,
            event=event.event,
            run_id=run.run_id,
            workflow=run.workflow,
            gate=gate,
            prompt=plain(prompt, PROMPT_CHARS_MAX),
            who=tuple([line(name, 200) for name in who]),
            expires_at=None if info is None else info.expires_at,
            url=page_url(self._base_url, run.run_id, gate),
            at=moment(event.at_us),
            show=show if include_show else None,
        )

    def test_message(self, target: str) -> Message:
        """A message that only shows that a target can be reached."""
        event = Event(event=TEST, target=target, at_us=self._core.clock.now_us(), detail=self._core.ids.token(8).hex())
        return Message(
            id=event.id,
            event=TEST,
            run_id="",
            workflow="holdfast",
            gate=None,
            prompt="This is a test of the notifications of Holdfast. No answer is needed.",
            who=(),
            expires_at=None,
            url=self._base_url,
            at=moment(event.at_us),
        )

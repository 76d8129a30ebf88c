"""Effects in a journal: intents and their results, and what is pending.

An intent is an `effect_intent` record, its result an `effect_result` record; both name the effect in their payload. An
effect is pending while it has an intent and no result that says what became of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

INTENT: Final = "effect_intent"
RESULT: Final = "effect_result"
_CLEAR: Final = ("completed", "failed", "cancelled", "denied_before_execution")
"""What is known to have become of an effect; after a timeout, and after anything else, it is not."""


class EffectLine(NamedTuple):
    """One effect, as the journal tells of it."""

    effect_id: str
    intent: dict[str, Any]
    """The payload of its intent."""
    seq: int
    """The number of the intent's record."""
    record: dict[str, Any]
    result: dict[str, Any] | None = None
    """The payload of its last result."""

    @property
    def is_pending(self) -> bool:
        """Whether nobody knows what became of it."""
        return self.result is None or self.result.get("terminal_status") not in _CLEAR

    @property
    def may_be_retried(self) -> bool:
        """Whether doing it again is harmless: it has a key by which the other side knows it again."""
        keys = ("idempotency_key", "dedupe_key")
        return any(place.get(key) for place in (self.intent, self.record) for key in keys)


def effects_of(records: Iterable[dict[str, Any]]) -> dict[str, EffectLine]:
    """The effects a journal tells of, by id, in the order of their intents."""
    found: dict[str, EffectLine] = {}
    for record in records:
        payload = record.get("payload")
        effect_id = payload.get("effect_id") if isinstance(payload, dict) else None
        if not isinstance(payload, dict) or not isinstance(effect_id, str):
            continue
        if record["record_kind"] == INTENT:
            found.setdefault(effect_id, EffectLine(effect_id, payload, record["journal_seq"], record))
        elif record["record_kind"] == RESULT and effect_id in found:
            found[effect_id] = found[effect_id]._replace(result=payload)
    return found


def before_pending(checkpoints: list[dict[str, Any]], records: list[dict[str, Any]]) -> tuple[str, ...]:
    """For each pending effect the newest checkpoint before it, of checkpoints in order."""
    kept: dict[str, None] = {}
    lines = effects_of(records)
    for line in lines.values():
        if line.is_pending:
            _keep_last(kept, [c for c in checkpoints if c["covers_journal_seq"] < line.seq])
    for pending in checkpoints[-1].get("pending_side_effects", ()) if checkpoints else ():
        if pending["effect_id"] not in lines:  # the journal is not here: the checkpoints themselves must tell
            _keep_last(kept, _before_first(checkpoints, pending["effect_id"]))
    return tuple(kept)


def _keep_last(kept: dict[str, None], checkpoints: list[dict[str, Any]]) -> None:
    if checkpoints:
        kept[checkpoints[-1]["checkpoint_id"]] = None


def _before_first(checkpoints: list[dict[str, Any]], effect_id: str) -> list[dict[str, Any]]:
    before: list[dict[str, Any]] = []
    for checkpoint in checkpoints:
        if any(pending["effect_id"] == effect_id for pending in checkpoint.get("pending_side_effects", ())):
            break
        before.append(checkpoint)
    return before

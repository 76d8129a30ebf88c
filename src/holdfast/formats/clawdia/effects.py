"""Effects in a journal: intents and their results, and what is pending.

An intent is an `effect_intent` payload, its result an `effect_result` payload; both name the effect. Deliveries of
output carry the same two inside. An effect is pending while it has an intent and no result that says what became of it.
A `recovery` payload declares effects unsafe: their results could not be recorded, and a person has to find out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

INTENT: Final = "effect_intent"
RESULT: Final = "effect_result"
_ENDED: Final = "terminal_result"
_RECOVERY: Final = "recovery"
_DELIVERY: Final = "output_delivery"
_CLEAR: Final = ("completed", "failed", "cancelled", "denied_before_execution")
"""What is known to have become of an effect; after a timeout, and after anything else, it is not."""


class EffectLine(NamedTuple):
    """One effect, as the journal tells of it."""

    effect_id: str
    intent: dict[str, Any]
    """The payload of its intent; if only a checkpoint or a recovery names the effect, what that says of it."""
    seq: int
    """The number of the intent's record."""
    record: dict[str, Any]
    result: dict[str, Any] | None = None
    """The payload of its last result."""
    unsafe: dict[str, Any] | None = None
    """What the last recovery says that declared it unsafe."""

    @property
    def is_pending(self) -> bool:
        """Whether nobody knows what became of it."""
        return self.result is None or self.result.get("terminal_status") not in _CLEAR

    @property
    def may_be_retried(self) -> bool:
        """Whether doing it again is harmless: it has a key by which the other side knows it again."""
        keys = ("idempotency_key", "dedupe_key")
        return self.unsafe is None and any(place.get(key) for place in (self.intent, self.record) for key in keys)


def effects_of(records: Iterable[dict[str, Any]], newest: dict[str, Any] | None = None) -> dict[str, EffectLine]:
    """The effects a journal names, by id, in the order of their intents.

    The pending side effects of `newest`, the newest checkpoint, are added. The journal is the truth: if it knows an
    effect, the checkpoint does not count.
    """
    found: dict[str, EffectLine] = {}
    seqs: dict[object, int] = {}
    for record in records:
        seqs[record["record_id"]] = record["journal_seq"]
        for kind, said in _statements(record):
            effect_id, known = said["effect_id"], found.get(said["effect_id"])
            line = known or EffectLine(effect_id, {}, record["journal_seq"], record)
            if kind == INTENT and (known is None or known.result is not None):  # it may be begun again
                found[effect_id] = EffectLine(effect_id, said, record["journal_seq"], record, unsafe=line.unsafe)
            elif kind == RESULT or (kind == _ENDED and known is not None and known.result is None):
                found[effect_id] = line._replace(result=said)
            elif kind == _RECOVERY:
                line = (
                    line if known else line._replace(intent=said, seq=seqs.get(said.get("intent_record_id"), line.seq))
                )
                found[effect_id] = line._replace(result=None, unsafe=said)
    for said in (newest or {}).get("pending_side_effects", ()):
        seq = seqs.get(said["intent_record_id"], (newest or {})["covers_journal_seq"])
        found.setdefault(said["effect_id"], EffectLine(said["effect_id"], said, seq, {}))
    return found


def kind_of(record: dict[str, Any]) -> str:
    """What a record says, by the type of its payload, as the original reads it; without one, by its own kind."""
    payload = record.get("payload")
    kind = payload.get("type") if isinstance(payload, dict) else None
    return kind if isinstance(kind, str) else str(record["record_kind"])


def _statements(record: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a record says of effects: the kind of statement, and the object that names the effect."""
    payload, kind = record.get("payload"), kind_of(record)
    if not isinstance(payload, dict):
        return
    said: Iterable[Any] = (payload,)
    if kind == _RECOVERY:
        said = payload.get("unsafe_pending") or ()
    elif kind == _DELIVERY:
        kind = {"intent": INTENT, "result": RESULT}.get(str(payload.get("record_type")), "")
        inner = payload.get("record")
        said = (inner.get(kind),) if isinstance(inner, dict) else ()
    if kind not in (INTENT, RESULT, _ENDED, _RECOVERY) or not isinstance(said, (list, tuple)):
        return
    for one in said:
        if isinstance(one, dict) and isinstance(one.get("effect_id"), str):
            yield kind, one


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

"""Replay of a journal: the outcome of its run, and whether it can be resumed.

Records after the end of a run are not damage: its last turn is closed after its result. An effect whose result is
unknown blocks the run, unless an idempotency key makes it safe to retry. An effect that a recovery declared unsafe
blocks the run permanently, whatever key it has, as in the original.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Final, Literal, NamedTuple

from holdfast.errors import DamagedFile
from holdfast.formats.clawdia.run_records import Record, RunCheckpoint, order
from holdfast.formats.schema import JsonObject, has_schema, require_schema
from holdfast.model.views import View

_ENDS: Final = ("completed", "failed", "cancelled", "run_completed", "run_failed", "run_cancelled")
"""The statuses in a run's lifecycle that end it."""


class Replay(View, frozen=True, kw_only=True):
    """The result of a replay."""

    status: Literal["complete", "repair_needed"]
    resume_allowed: bool
    """Whether the run has not ended, and none of its effects is in doubt."""
    latest_journal_seq: int
    terminal_status: str | None
    retry: tuple[str, ...]
    """Pending effects that may be retried under their key."""
    unsafe: tuple[str, ...]
    """Effects whose outcome a person must find out: pending, or declared unsafe by a recovery."""
    latest_checkpoint: JsonObject | None


def replay(records: Iterable[JsonObject]) -> Replay:
    """Read a journal from beginning to end.

    Example:
        clawdia.replay(runs.records("run.a")).resume_allowed
    """
    live = _in_order(records)
    terminal = [_terminal_status(record) for record in live]
    ended = [status for status in terminal if status is not None]
    lines: list[EffectLine] = [line for line in effects_of(live).values() if line.is_pending or line.unsafe]
    unsafe = tuple(line.effect_id for line in lines if not line.may_be_retried)
    saved = [_payload(record) for record in live if kind_of(record) == "checkpoint"]
    checkpoints = [payload for payload in saved if has_schema(payload, RunCheckpoint)]
    return Replay(
        status="repair_needed" if unsafe else "complete",
        resume_allowed=not unsafe and not ended,
        latest_journal_seq=live[-1]["journal_seq"] if live else 0,
        terminal_status=ended[-1] if ended else None,
        retry=tuple(line.effect_id for line in lines if line.may_be_retried),
        unsafe=unsafe,
        latest_checkpoint=max(checkpoints, key=order) if checkpoints else None,
    )


def _in_order(records: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the records, each once. Raises DamagedFile if their numbers do not increase."""
    live: list[JsonObject] = []
    for record in records:
        require_schema(record, Record, "a journal record")
        if live and record["journal_seq"] <= live[-1]["journal_seq"]:
            if record in live:
                continue
            raise DamagedFile(
                f"record {record['record_id']!r} of run {record['run_id']!r}",
                f"its journal_seq {record['journal_seq']} is not above that of the record before, "
                f"{live[-1]['journal_seq']}",
            )
        live.append(record)
    return live


def _payload(record: JsonObject) -> JsonObject:
    payload = record.get("payload")
    return payload if isinstance(payload, dict) else {}


def _terminal_status(record: JsonObject) -> str | None:
    payload = _payload(record)
    if payload.get("type") == "terminal_result":
        return str(payload.get("terminal_status", "unknown"))
    status = payload.get("status") if payload.get("type") == "run_lifecycle" else None
    return str(status).removeprefix("run_") if status in _ENDS else None


INTENT: Final = "effect_intent"
RESULT: Final = "effect_result"
_ENDED: Final = "terminal_result"
_RECOVERY: Final = "recovery"
_DELIVERY: Final = "output_delivery"
_CLEAR: Final = ("completed", "failed", "cancelled", "denied_before_execution")
"""Statuses with a known outcome. After a timeout, or any other status, the outcome of an effect is unknown."""


class EffectLine(NamedTuple):
    """One effect, as recorded in the journal."""

    effect_id: str
    intent: JsonObject
    """The payload of its intent; for an effect that only a checkpoint or a recovery lists, the object there."""
    seq: int
    """The number of the intent's record."""
    record: JsonObject
    result: JsonObject | None = None
    """The payload of its last result."""
    unsafe: JsonObject | None = None
    """The object of the last recovery that declared it unsafe."""

    @property
    def is_pending(self) -> bool:
        """Whether its outcome is unknown."""
        return self.result is None or self.result.get("terminal_status") not in _CLEAR

    @property
    def may_be_retried(self) -> bool:
        """Whether it is safe to retry: it has a key by which the other side recognizes a repetition."""
        keys = ("idempotency_key", "dedupe_key")
        return self.unsafe is None and any(place.get(key) for place in (self.intent, self.record) for key in keys)


def effects_of(records: Iterable[JsonObject], newest: JsonObject | None = None) -> dict[str, EffectLine]:
    """Return the effects in a journal by id, in the order of their intents.

    The pending side effects of `newest`, the newest checkpoint, are added, except those in the journal, which takes
    precedence.
    """
    found: dict[str, EffectLine] = {}
    seqs: dict[object, int] = {}
    for record in records:
        seqs[record["record_id"]] = record["journal_seq"]
        for kind, effect in _statements(record):
            effect_id, known = effect["effect_id"], found.get(effect["effect_id"])
            line = known or EffectLine(effect_id, {}, record["journal_seq"], record)
            if kind == INTENT and (known is None or known.result is not None):  # an effect may be retried
                found[effect_id] = EffectLine(effect_id, effect, record["journal_seq"], record, unsafe=line.unsafe)
            elif kind == RESULT or (kind == _ENDED and known is not None and known.result is None):
                found[effect_id] = line._replace(result=effect)
            elif kind == _RECOVERY:
                if known is None:
                    line = line._replace(intent=effect, seq=seqs.get(effect.get("intent_record_id"), line.seq))
                found[effect_id] = line._replace(result=None, unsafe=effect)
    if newest is not None:
        for effect in newest.get("pending_side_effects", ()):
            seq = seqs.get(effect["intent_record_id"], int(newest["covers_journal_seq"]))
            found.setdefault(effect["effect_id"], EffectLine(effect["effect_id"], effect, seq, {}))
    return found


def kind_of(record: JsonObject) -> str:
    """Return the type of a record's payload, as the original reads it; without one, the record's own kind."""
    kind = _payload(record).get("type")
    return kind if isinstance(kind, str) else str(record["record_kind"])


def _statements(record: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Yield a record's statements about effects: the kind of statement, and the object with the effect's id."""
    payload, kind = _payload(record), kind_of(record)
    statements: object = (payload,)
    if kind == _RECOVERY:
        statements = payload.get("unsafe_pending") or ()
    elif kind == _DELIVERY:
        kind = {"intent": INTENT, "result": RESULT}.get(str(payload.get("record_type")), "")
        inner = payload.get("record")
        statements = (inner.get(kind),) if isinstance(inner, dict) else ()
    if kind not in (INTENT, RESULT, _ENDED, _RECOVERY) or not isinstance(statements, (list, tuple)):
        return
    for one in statements:
        if isinstance(one, dict) and isinstance(one.get("effect_id"), str):
            yield kind, one


def before_pending(checkpoints: list[JsonObject], records: list[JsonObject]) -> tuple[str, ...]:
    """Return, for each pending effect, the newest of the ordered checkpoints before it."""
    lines = effects_of(records)
    before = [
        [c for c in checkpoints if c["covers_journal_seq"] < line.seq] for line in lines.values() if line.is_pending
    ]
    listed = checkpoints[-1].get("pending_side_effects", ()) if checkpoints else ()
    # Without the journal, only the checkpoints show where an effect began.
    before += [_before_first(checkpoints, effect["effect_id"]) for effect in listed if effect["effect_id"] not in lines]
    return tuple(dict.fromkeys(found[-1]["checkpoint_id"] for found in before if found))


def _before_first(checkpoints: list[JsonObject], effect_id: str) -> list[JsonObject]:
    """Return the checkpoints before the first that lists an effect as pending."""

    def is_before(checkpoint: JsonObject) -> bool:
        return all(pending["effect_id"] != effect_id for pending in checkpoint.get("pending_side_effects", ()))

    return list(takewhile(is_before, checkpoints))

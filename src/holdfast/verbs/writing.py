"""Writing to a run: save, append, mark, attach. Each is one commit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from holdfast.errors import InvalidCursor, InvalidInput, LimitExceeded
from holdfast.ids import check_id, check_lane
from holdfast.limits import ATTACHMENTS_PER_COMMIT_MAX, ENTRIES_PER_COMMIT_MAX, NUMBER_MAX, STEP_MAX
from holdfast.model import commit as why
from holdfast.model.commit import (
    Commit,
    Committed,
    NewAttachment,
    NewCheckpoint,
    NewEffect,
    NewEntry,
    NewRun,
    Outcome,
    Refused,
)
from holdfast.model.status import TERMINAL, check_status
from holdfast.model.views import Saved
from holdfast.state.encoder import encode
from holdfast.store.pruning import PRUNED
from holdfast.store.tags import write_metadata
from holdfast.verbs.core import Known, Place
from holdfast.verbs.plans import Plan
from holdfast.verbs.refusals import refusal
from holdfast.verbs.values import metadata_pairs, value_body


def position_of(value: object) -> int:
    """A journal position given as `41` or `"journal.41"`."""
    if type(value) is int and 0 <= value <= NUMBER_MAX:
        return value
    if type(value) is str and value.startswith("journal."):
        digits = value.removeprefix("journal.")
        if digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) <= NUMBER_MAX:
            return int(digits)
    raise InvalidCursor(f"{value!r} is not a journal position; write 41 or 'journal.41'")


def save(
    place: Place,
    run_id: str,
    state: object,
    *,
    workflow: str | None = None,
    step: int | None = None,
    next_node: str | None = None,
    status: str | None = None,
    metadata: dict[str, Any] | None = None,
    covers: int | str | None = None,
    checkpoint_id: str | None = None,
    parent_id: str | None = None,
    lane: str = "",
    replace: bool = False,
) -> Plan[Saved]:
    """Save the run's whole state as a checkpoint, durably, and create the run if it is not there.

    The same `checkpoint_id` again with the same content is a no-op; with other content it is a `CheckpointConflict`
    unless `replace=True`. Omitted: `step` is the lane's last step plus one, `covers` the end of the journal,
    `parent_id` the lane's newest checkpoint (an empty text says that it has none), `status` stays as it is ("ready"
    for a new run). `metadata` is kept with the checkpoint and merged into the run's.

    Example:
        saved = store.save("run-1", {"messages": []}, workflow="triage", status="running")
        saved.checkpoint_id, saved.bytes_added
    """
    check_id("run_id", run_id)
    core = place.core
    pairs, described = ((), None) if metadata is None else _metadata(metadata)
    _check_save(workflow, step, next_node, status, checkpoint_id, parent_id, lane)
    position = None if covers is None else position_of(covers)
    while True:
        known = place.known(run_id)
        encoded = encode(state, known.memos.get(lane), known.hashes) if known else encode(state)
        new = NewCheckpoint(
            checkpoint_id or "", encoded.root, lane, parent_id, step, next_node, position, status, described, None,
            replace,
        )  # fmt: skip
        commit = Commit(
            run_id, core.ids.token(8), place.guard(known) if encoded.linked else place.guard(), creation(place),
            workflow, status, pairs, (), (new,), core.chunk_rows(encoded.chunks) if encoded.chunks else (),
        )  # fmt: skip
        outcome = yield commit
        if type(outcome) is not Committed:
            if outdated(place, run_id, outcome, known):
                continue
            raise refusal(place, commit, outcome)
        if encoded.linked and outcome.fresh:  # what was there already may have been cut otherwise
            core.memory.note(outcome.run, encoded.chunks, lane, encoded)
        return Saved(
            run_id=run_id, checkpoint_id=outcome.checkpoint_id, covers=outcome.covers, step=outcome.step,
            terminal=(status or outcome.run.status) in TERMINAL, bytes_added=outcome.bytes_added,
            number=outcome.numbers[0],
        )  # fmt: skip


def append(place: Place, run_id: str, entries: Iterable[dict[str, Any]], *, workflow: str | None = None) -> Plan[int]:
    """Append entries to the run's journal, all or none, and create the run if it is not there.

    An entry is a dict with a text under "kind". `workflow` names the run's workflow, as in `save`. Returns the position
    of the last entry.

    Example:
        store.append("run-1", [{"kind": "note", "text": "looked it up"}], workflow="triage")
    """
    check_id("run_id", run_id)
    if workflow is not None:
        check_id("workflow", workflow)
    if isinstance(entries, dict):
        raise InvalidInput("append takes a list of entries; put the dict into a list")
    new = tuple(_entry(place, entry) for entry in entries)
    if not new:
        raise InvalidInput("append needs at least one entry")
    if len(new) > ENTRIES_PER_COMMIT_MAX:
        raise LimitExceeded(f"{len(new)} entries at once, at most {ENTRIES_PER_COMMIT_MAX} are allowed")
    commit = Commit(run_id, place.core.ids.token(8), place.guard(), creation(place), workflow, entries=new)
    return committed(place, commit, (yield commit)).run.position


def mark_done(
    place: Place,
    run_id: str,
    key: str,
    *,
    tool: str = "",
    target: str | None = None,
    reversible: bool = False,
    result: object = None,
) -> Plan[bool]:
    """Record that the side effect `key` was done, with its result. True the first time, False ever after.

    Atomic between processes: of all that try, one gets True. A repeated tool call is answered with the stored result.

    Example:
        if store.mark_done("run-1", "tool-use-7", tool="write_file", result={"bytes": 12}):
            ...
        store.effects("run-1", key="tool-use-7")[0].result
    """
    return _mark(
        place, run_id, NewEffect(key, "done", tool, target, reversible, value_body(place.core, result, "result"))
    )


def mark_intent(
    place: Place, run_id: str, key: str, *, tool: str = "", target: str | None = None, reversible: bool = False
) -> Plan[bool]:
    """Record that the side effect `key` is about to be done. Until `mark_done` it is in doubt.

    True if it was not recorded before. False means: somebody began it, so ask what became of it before doing it again.

    Example:
        if store.mark_intent("run-1", "tool-use-7", tool="send_mail"):
            ...
    """
    return _mark(place, run_id, NewEffect(key, "intent", tool, target, reversible))


def _mark(place: Place, run_id: str, effect: NewEffect) -> Plan[bool]:
    check_id("run_id", run_id)
    check_id("effect key", effect.key)
    if effect.tool:
        check_id("tool", effect.tool)
    if effect.target is not None:
        check_id("target", effect.target)
    commit = Commit(run_id, place.core.ids.token(8), place.guard(), creation(place), effects=(effect,))
    outcome = yield commit
    if type(outcome) is Refused and outcome.why == why.EFFECT_DONE:
        return False
    committed(place, commit, outcome)
    return True


def attach(
    place: Place, run_id: str, checkpoint_id: str, key: str, value: object, *, lane: str = "", replace: bool = False
) -> Plan[None]:
    """Keep a value beside a checkpoint, which may arrive later. The same value again is a no-op.

    Example:
        store.attach("run-1", checkpoint_id, "draft", {"text": "…"})
    """
    yield from _attach(place, run_id, checkpoint_id, {key: value}, lane, "replace" if replace else "error")


def attach_all(
    place: Place,
    run_id: str,
    checkpoint_id: str,
    values: dict[str, Any],
    *,
    lane: str = "",
    existing: Literal["error", "keep", "replace"] = "error",
) -> Plan[None]:
    """Keep several values beside a checkpoint, by key, all or none. Those that are there already are a no-op.

    Where another value is there: `existing="error"` refuses all of them, `"keep"` leaves what is there and attaches
    the others, `"replace"` puts the new ones in its place.

    Example:
        store.attach_all("run-1", checkpoint_id, {"draft": "…", "notes": []}, existing="keep")
    """
    if type(values) is not dict or not values:
        raise InvalidInput(f"attach_all needs a dict of at least one value by key, not {values!r}")
    if existing not in ("error", "keep", "replace"):
        raise InvalidInput(f'existing must be "error", "keep" or "replace", not {existing!r}')
    if len(values) > ATTACHMENTS_PER_COMMIT_MAX:
        raise LimitExceeded(f"{len(values)} attachments at once, at most {ATTACHMENTS_PER_COMMIT_MAX} are allowed")
    yield from _attach(place, run_id, checkpoint_id, values, lane, existing)


def _attach(
    place: Place, run_id: str, checkpoint_id: str, values: dict[str, Any], lane: str, existing: str
) -> Plan[None]:
    check_id("run_id", run_id)
    check_id("checkpoint_id", checkpoint_id)
    for key in values:
        check_id("attachment key", key)
    check_lane(lane)
    replace, keep = existing == "replace", existing == "keep"
    while True:
        known = place.known(run_id)
        hashes: set[bytes] | frozenset[bytes] = known.hashes if known else frozenset()
        encoded = {key: encode(value, None, hashes) for key, value in values.items()}
        chunks = {name: plain for each in encoded.values() for name, plain in each.chunks.items()}
        is_linked = any(each.linked for each in encoded.values())
        commit = Commit(
            run_id, place.core.ids.token(8), place.guard(known if is_linked else None), creation(place),
            attachments=tuple(
                NewAttachment(checkpoint_id, key, each.root, lane, replace, keep=keep) for key, each in encoded.items()
            ),
            chunks=place.core.chunk_rows(chunks),
        )  # fmt: skip
        outcome = yield commit
        if outdated(place, run_id, outcome, known):
            continue
        done = committed(place, commit, outcome)
        if done.fresh:
            place.core.memory.note(done.run, chunks)
        return


# --- what the writing verbs share ------------------------------------------------------------------------------------


_CREATE = NewRun()


def creation(place: Place) -> NewRun | None:
    """Plain writes create a run that is not there; a holder's run is there, or its claim is lost."""
    return None if place.holder else _CREATE


def committed(place: Place, commit: Commit, outcome: Outcome) -> Committed:
    """The outcome, if it is one; else the error that says why not."""
    if type(outcome) is Refused:
        raise refusal(place, commit, outcome)
    assert isinstance(outcome, Committed)
    return outcome


def outdated(place: Place, run_id: str, outcome: Outcome, known: Known | None) -> bool:
    """Whether a commit was refused because what was remembered of the run no longer holds. It is forgotten then."""
    if known is None or type(outcome) is not Refused or outcome.why not in (why.EPOCH, why.INCARNATION):
        return False
    place.core.memory.forget(run_id)
    return True


def _metadata(metadata: dict[str, Any]) -> tuple[tuple[tuple[str, bytes], ...], bytes]:
    pairs = metadata_pairs(metadata)
    return pairs, write_metadata(pairs)


def _check_save(
    workflow: str | None,
    step: int | None,
    next_node: str | None,
    status: str | None,
    checkpoint_id: str | None,
    parent_id: str | None,
    lane: str,
) -> None:
    if workflow is not None:
        check_id("workflow", workflow)
    if step is not None and (type(step) is not int or not 0 <= step <= STEP_MAX):
        raise InvalidInput(f"step must be a whole number from 0 to {STEP_MAX}, not {step!r}")
    if next_node is not None:
        check_id("next_node", next_node)
    if status is not None:
        check_status(status)
    if parent_id is not None and parent_id != "":
        check_id("parent_id", parent_id)
    if checkpoint_id is not None:
        check_id("checkpoint_id", checkpoint_id)
    if lane != "":
        check_lane(lane)


def _entry(place: Place, entry: object) -> NewEntry:
    if not isinstance(entry, dict) or "kind" not in entry:
        raise InvalidInput(f'a journal entry is a dict with a text under "kind", not {entry!r}')
    kind = check_id('an entry\'s "kind"', entry["kind"])
    if kind == PRUNED:
        raise InvalidInput(f'entries of the kind "{PRUNED}" stand for those that were removed; choose another kind')
    return NewEntry(kind, value_body(place.core, entry, "a journal entry"))

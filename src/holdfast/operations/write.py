"""Writes to a run: save, append, mark, attach. Each is one commit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from holdfast.drivers import Plan
from holdfast.errors import InvalidInput, LimitExceeded
from holdfast.ids import check_id, check_lane
from holdfast.limits import ATTACHMENTS_PER_COMMIT_MAX, ENTRIES_PER_COMMIT_MAX, STEP_MAX
from holdfast.model.commit import (
    Commit,
    NewAttachment,
    NewCheckpoint,
    NewEffect,
    NewEntry,
    Reason,
    Refused,
)
from holdfast.model.rows import TERMINAL, check_status
from holdfast.model.views import Saved, StoredDict
from holdfast.operations.context import Access, require_committed
from holdfast.operations.state_commit import commit_values
from holdfast.operations.views import encode_body, metadata_pairs, position_of
from holdfast.store.journal_prune import PRUNED
from holdfast.store.search import write_metadata


def save(
    access: Access,
    run_id: str,
    state: object,
    *,
    workflow: str | None = None,
    step: int | None = None,
    next_node: str | None = None,
    status: str | None = None,
    metadata: StoredDict | None = None,
    covers: int | str | None = None,
    checkpoint_id: str | None = None,
    parent_id: str | None = None,
    lane: str = "",
    replace: bool = False,
) -> Plan[Saved]:
    """Save the run's whole state as a checkpoint, durably, and create the run if it does not exist.

    The same `checkpoint_id` again with the same content is a no-op; with other content it is a `CheckpointConflict`
    unless `replace=True`. Omitted: `step` is the lane's last step plus one, `covers` the end of the journal,
    `parent_id` the lane's newest checkpoint (an empty text means none), `status` does not change ("ready" for a new
    run). `metadata` is kept with the checkpoint and merged into the run's.

    Example:
        saved = store.save("run-1", {"messages": []}, workflow="triage", status="running")
        saved.checkpoint_id, saved.bytes_added
    """
    check_id("run_id", run_id)
    pairs, described = ((), None) if metadata is None else _metadata(metadata)
    _check_save(workflow, step, next_node, status, checkpoint_id, parent_id, lane)
    position = None if covers is None else position_of(covers)
    new = NewCheckpoint(
        checkpoint_id=checkpoint_id or "",
        root=b"",
        lane=lane,
        parent_id=parent_id,
        step=step,
        next_node=next_node,
        covers=position,
        status=status,
        metadata=described,
        replace=replace,
    )
    commit = Commit(
        run_id,
        access.core.ids.token(8),
        access.guard(),
        create=access.creation(),
        workflow=workflow,
        status=status,
        metadata=pairs,
        checkpoints=(new,),
    )
    outcome, _ = yield from commit_values(access, commit, (state,))
    done = require_committed(access, commit, outcome)
    return Saved(
        run_id=run_id,
        checkpoint_id=done.checkpoint_id,
        covers=done.covers,
        step=done.step,
        terminal=(status or done.run.status) in TERMINAL,
        bytes_added=done.bytes_added,
        number=done.numbers[0],
    )


def append(access: Access, run_id: str, entries: Iterable[StoredDict], *, workflow: str | None = None) -> Plan[int]:
    """Append entries to the run's journal, all or none, and create the run if it does not exist.

    An entry is a dict with a text under "kind". `workflow` names the run's workflow, as in `save`. Returns the position
    of the last entry.

    Example:
        store.append("run-1", [{"kind": "note", "text": "looked it up"}], workflow="triage")
    """
    check_id("run_id", run_id)
    if workflow is not None:
        check_id("workflow", workflow)
    if isinstance(entries, dict):
        raise InvalidInput("append needs a list of entries, not a dict; put the dict in a list")
    new = tuple(_entry(access, entry) for entry in entries)
    if not new:
        raise InvalidInput("append needs at least one entry, not an empty list")
    if len(new) > ENTRIES_PER_COMMIT_MAX:
        raise LimitExceeded(
            f"{len(new)} entries at once, at most {ENTRIES_PER_COMMIT_MAX} are allowed; append them in parts"
        )
    commit = Commit(run_id, access.core.ids.token(8), access.guard(), access.creation(), workflow, entries=new)
    return require_committed(access, commit, (yield commit)).run.position


def mark_done(
    access: Access,
    run_id: str,
    key: str,
    *,
    tool: str = "",
    target: str | None = None,
    reversible: bool = False,
    result: object = None,
) -> Plan[bool]:
    """Record that the side effect `key` was done, with its result. True the first time, False after that.

    Atomic between processes: only one of them gets True. A repeated tool call is answered with the stored result.

    Example:
        if store.mark_done("run-1", "tool-use-7", tool="write_file", result={"bytes": 12}):
            ...
        store.effects("run-1", key="tool-use-7")[0].result
    """
    return _mark(
        access, run_id, NewEffect(key, "done", tool, target, reversible, encode_body(access.core, result, "result"))
    )


def mark_intent(
    access: Access, run_id: str, key: str, *, tool: str = "", target: str | None = None, reversible: bool = False
) -> Plan[bool]:
    """Record that the side effect `key` is about to be done. Until `mark_done` it is in doubt.

    True if it was not recorded before. False: it was begun before, so find out its outcome before doing it again.

    Example:
        if store.mark_intent("run-1", "tool-use-7", tool="send_mail"):
            ...
    """
    return _mark(access, run_id, NewEffect(key, "intent", tool, target, reversible))


def _mark(access: Access, run_id: str, effect: NewEffect) -> Plan[bool]:
    check_id("run_id", run_id)
    check_id("effect key", effect.key)
    if effect.tool:
        check_id("tool", effect.tool)
    if effect.target is not None:
        check_id("target", effect.target)
    commit = Commit(run_id, access.core.ids.token(8), access.guard(), access.creation(), effects=(effect,))
    outcome = yield commit
    if type(outcome) is Refused and outcome.reason == Reason.EFFECT_DONE:
        return False
    require_committed(access, commit, outcome)
    return True


def attach(
    access: Access, run_id: str, checkpoint_id: str, key: str, value: object, *, lane: str = "", replace: bool = False
) -> Plan[None]:
    """Attach a value to a checkpoint, which may be saved later. The same value again is a no-op.

    Example:
        store.attach("run-1", checkpoint_id, "draft", {"text": "…"})
    """
    yield from _attach(access, run_id, checkpoint_id, {key: value}, lane, "replace" if replace else "error")


def attach_all(
    access: Access,
    run_id: str,
    checkpoint_id: str,
    values: StoredDict,
    *,
    lane: str = "",
    existing: Literal["error", "keep", "replace"] = "error",
) -> Plan[None]:
    """Attach several values to a checkpoint, by key, all or none. Values that are attached already are a no-op.

    If a key has another value, `existing="error"` refuses all of them, `"keep"` keeps the old value and attaches the
    others, and `"replace"` replaces it.

    Example:
        store.attach_all("run-1", checkpoint_id, {"draft": "…", "notes": []}, existing="keep")
    """
    if not isinstance(values, dict) or not values:
        raise InvalidInput(f"attach_all needs a dict with at least one value, not {values!r}")
    if existing not in ("error", "keep", "replace"):
        raise InvalidInput(f'existing must be "error", "keep" or "replace", not {existing!r}')
    if len(values) > ATTACHMENTS_PER_COMMIT_MAX:
        raise LimitExceeded(
            f"{len(values)} attachments at once, at most {ATTACHMENTS_PER_COMMIT_MAX} are allowed; attach them in parts"
        )
    yield from _attach(access, run_id, checkpoint_id, values, lane, existing)


def _attach(
    access: Access, run_id: str, checkpoint_id: str, values: StoredDict, lane: str, existing: str
) -> Plan[None]:
    check_id("run_id", run_id)
    check_id("checkpoint_id", checkpoint_id)
    for key in values:
        check_id("attachment key", key)
    check_lane(lane)
    replace, keep = existing == "replace", existing == "keep"
    new = [NewAttachment(checkpoint_id, key, root=b"", lane=lane, replace=replace, keep=keep) for key in values]
    commit = Commit(run_id, access.core.ids.token(8), access.guard(), create=access.creation(), attachments=tuple(new))
    outcome, _ = yield from commit_values(access, commit, tuple(values.values()))
    require_committed(access, commit, outcome)


def _metadata(metadata: StoredDict) -> tuple[tuple[tuple[str, bytes], ...], bytes]:
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
        raise InvalidInput(f"step must be an integer from 0 to {STEP_MAX}, not {step!r}")
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


def _entry(access: Access, entry: object) -> NewEntry:
    if not isinstance(entry, dict) or "kind" not in entry:
        raise InvalidInput(f'a journal entry must be a dict with a text under "kind", not {entry!r}')
    kind = check_id('an entry\'s "kind"', entry["kind"])
    if kind == PRUNED:
        raise InvalidInput(f'the kind "{PRUNED}" is reserved for removed entries; choose another kind')
    return NewEntry(kind, encode_body(access.core, entry, "a journal entry"))

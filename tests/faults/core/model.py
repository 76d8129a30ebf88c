"""A plain model of what a store holds, and the same picture taken from a real store.

`Model.shown()` and `observe(store)` give equal pictures if and only if nothing was lost, torn or invented. Values are
kept as digests. An id the store made itself is shown by its number, because the rest of it is random.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import msgspec
from blake3 import blake3

import holdfast
from holdfast.ids import own_checkpoint_number
from holdfast.model.rows import AttachmentRow

Picture = dict[str, Any]

_TERMINAL = ("completed", "failed", "cancelled")


def digest(value: object) -> str:
    """A value by its content."""
    return blake3(msgspec.msgpack.encode(value)).hexdigest(8)


def label(checkpoint_id: str | None) -> str | None:
    """A checkpoint's id without what is random in it."""
    number = own_checkpoint_number(checkpoint_id) if checkpoint_id else None
    return checkpoint_id if number is None else f"#{number}"


class Kept(NamedTuple):
    """A checkpoint."""

    label: str
    lane: str
    parent: str | None
    step: int
    covers: int
    status: str
    state: str


class Line(NamedTuple):
    """A line of the ledger; `after` is the checkpoint it came after."""

    state: str
    result: str
    after: int


class Head(NamedTuple):
    """The newest checkpoint of a lane."""

    number: int
    label: str | None
    step: int


@dataclasses.dataclass
class Run:
    """One run."""

    status: str = "ready"
    owner: str = ""
    fence: int = 0
    serial: int = 0
    kept: dict[int, Kept] = dataclasses.field(default_factory=dict)
    heads: dict[str, Head] = dataclasses.field(default_factory=dict)
    entries: list[str] = dataclasses.field(default_factory=list)
    effects: dict[str, Line] = dataclasses.field(default_factory=dict)
    attached: dict[tuple[str, str, str], str] = dataclasses.field(default_factory=dict)
    messages: tuple[str, ...] = ()
    """The conversation as last saved, for the next operation to go on from."""

    def shown(self) -> Picture:
        newest = self.heads.get("")
        return {
            "status": self.status,
            "owner": self.owner,
            "fence": self.fence,
            "newest": newest.label if newest else None,
            "checkpoints": dict(self.kept),
            "journal": list(self.entries),
            "effects": {key: (line.state, line.result) for key, line in self.effects.items()},
            "attachments": dict(self.attached),
        }


class Model:
    """All runs. Each method is what the verb of that name does to a store."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.held: set[str] = set()
        """Runs whose claim lives; the others may have an owner who died with the machine."""

    def shown(self) -> Picture:
        return {run_id: run.shown() for run_id, run in self.runs.items()}

    def restart(self) -> None:
        """The machine was started anew: nobody's claim lives."""
        self.held.clear()

    def apply(self, verb: str, run_id: str, **values: Any) -> None:
        """Do what one acknowledged operation did."""
        getattr(self, verb)(run_id, **values)

    def _written(self, run_id: str) -> Run:
        run = self.runs.setdefault(run_id, Run())
        if run_id not in self.held and run.owner:
            run.owner = ""  # a plain write revokes a claim whose owner is gone
            run.status = "ready" if run.status == "running" else run.status
        return run

    def save(
        self,
        run_id: str,
        state: dict[str, Any],
        *,
        checkpoint_id: str | None = None,
        lane: str = "",
        replace: bool = False,
        status: str | None = None,
    ) -> None:
        run = self._written(run_id)
        run.status = status or run.status
        run.messages = tuple(state.get("messages", ()))
        found = next((n for n, k in run.kept.items() if (k.lane, k.label) == (lane, checkpoint_id)), None)
        content, covers = digest(state), len(run.entries)
        head = run.heads.get(lane, Head(0, None, 0))
        if found is None:
            run.serial += 1
            number = run.serial
            new = Kept(checkpoint_id or f"#{number}", lane, head.label, head.step + 1, covers, run.status, content)
        else:
            assert replace, f"{checkpoint_id} is there already"
            number, old = found, run.kept[found]
            if old.state == content:
                return
            new = old._replace(covers=covers, status=run.status, state=content)
        run.kept[number] = new
        if number >= head.number:
            run.heads[lane] = Head(number, new.label, new.step)

    def append(self, run_id: str, entries: list[dict[str, Any]]) -> None:
        self._written(run_id).entries += [digest(entry) for entry in entries]

    def mark_intent(self, run_id: str, key: str) -> None:
        run = self._written(run_id)
        run.effects[key] = Line("in_doubt", digest(None), run.serial)

    def mark_done(self, run_id: str, key: str, result: object) -> None:
        run = self._written(run_id)
        after = run.effects[key].after if key in run.effects else run.serial
        run.effects[key] = Line("done", digest(result), after)

    def attach(self, run_id: str, checkpoint_id: str, key: str, value: object) -> None:
        self._written(run_id).attached["", checkpoint_id, key] = digest(value)

    def prune(self, run_id: str, last: int) -> None:
        run = self.runs[run_id]
        for lane in {kept.lane for kept in run.kept.values()}:
            for number in [n for n, kept in sorted(run.kept.items()) if kept.lane == lane][:-last]:
                gone = run.kept.pop(number)
                run.attached = {at: v for at, v in run.attached.items() if at[:2] != (lane, gone.label)}

    def pack(self, run_id: str) -> None:
        """Nothing that can be seen."""

    def fork(self, run_id: str, new_run_id: str) -> None:
        source = self.runs[run_id]
        number = source.heads[""].number
        kept = source.kept[number]
        self.runs[new_run_id] = Run(
            serial=1,
            kept={1: kept},
            heads={"": Head(1, kept.label, kept.step)},
            entries=source.entries[: kept.covers],
            effects={k: line._replace(after=0) for k, line in source.effects.items() if line.after < number},
            attached={at: value for at, value in source.attached.items() if at[:2] == ("", kept.label)},
            messages=source.messages,
        )

    def delete(self, run_id: str) -> None:
        del self.runs[run_id]

    def claim(self, run_id: str, owner: str) -> None:
        run = self.runs[run_id]
        run.fence += 1
        run.owner, run.status = owner, "running"
        self.held.add(run_id)

    def renew(self, run_id: str) -> None:
        pass

    def release(self, run_id: str, status: str | None) -> None:
        run = self.runs[run_id]
        run.owner = ""
        run.status = status or ("ready" if run.status == "running" else run.status)
        self.held.discard(run_id)

    def recover_expired(self, run_id: str) -> None:
        for name, run in self.runs.items():
            if run.owner and name not in self.held:
                run.owner = ""
                run.status = "ready" if run.status == "running" else run.status

    def may_claim(self, run_id: str) -> bool:
        return run_id not in self.held and self.runs[run_id].status not in _TERMINAL


def observe(store: holdfast.Store) -> Picture:
    """The picture of a real store, read through its public verbs; owner and fence come from the port."""
    picture: Picture = {}
    for info in store.runs(limit=1000):
        row = store.port.run(info.run_id)
        assert row is not None
        newest = store.load(info.run_id)
        picture[info.run_id] = {
            "status": info.status,
            "owner": row.owner,
            "fence": row.fence,
            "newest": label(newest.checkpoint_id) if newest else None,
            "checkpoints": _checkpoints(store, info.run_id),
            "journal": [digest(entry.data) for entry in store.journal(info.run_id)],
            "effects": {effect.key: (effect.state, digest(effect.result)) for effect in store.effects(info.run_id)},
            "attachments": _attachments(store, info.run_id, row.run),
        }
    return picture


def _checkpoints(store: holdfast.Store, run_id: str) -> dict[int, Kept]:
    found = {}
    for info in store.history(run_id):
        loaded = store.load(run_id, checkpoint_id=info.checkpoint_id, lane=info.lane)
        assert loaded is not None, f"{run_id} {info.checkpoint_id} is listed and cannot be loaded"
        name, parent = label(info.checkpoint_id), label(info.parent_id)
        assert name is not None
        state = digest(loaded.state)
        found[info.number] = Kept(name, info.lane, parent, info.step, info.covers, info.status, state)
    return found


def _attachments(store: holdfast.Store, run_id: str, run: int) -> dict[tuple[str, str, str], str]:
    found = {}
    for lane, checkpoint_id in {(row.lane, row.checkpoint_id) for row in store.port.rows(AttachmentRow, run)}:
        for key, value in store.attachments(run_id, checkpoint_id, lane=lane).items():
            found[lane, str(label(checkpoint_id)), key] = digest(value)
    return found


def difference(found: Picture, wanted: Picture) -> str:
    """Where two pictures differ, in few words."""
    for run_id in sorted(found.keys() | wanted.keys()):
        if run_id not in found or run_id not in wanted:
            return f"run {run_id!r} is {'missing' if run_id not in found else 'there and should not be'}"
        for name in wanted[run_id]:
            if found[run_id][name] != wanted[run_id][name]:
                return (
                    f"{name} of {run_id!r}: found {_short(found[run_id][name])}, wanted {_short(wanted[run_id][name])}"
                )
    return "nothing"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:120]} … {text[-170:]}"

"""Random operations on a store: small inline states, growing conversations, journal, ledger, attachments, claims,
prune, fork and delete. An operation is data: it can be carried out on a store and applied to the model, and the same
seed gives the same operations.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import holdfast
from holdfast.operations.packs import pack_loose
from tests.faults.core.model import Model

LEASE_S: Final = 60.0
_RUNS: Final = ("alpha", "beta", "gamma")
_WORDS: Final = ("anchor", "ballast", "capstan", "davit", "eyebolt", "fairlead", "gunwale", "halyard", "inboard", "jib")

Claims = dict[str, holdfast.Claim]


class Operation(NamedTuple):
    """A verb, the run it is for, and the rest of its arguments."""

    verb: str
    run_id: str
    values: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.verb} {self.run_id!r}"


class Sizes(NamedTuple):
    """How large states are."""

    messages: int = 12
    words: int = 90


def carry_out(store: holdfast.Store, claims: Claims, operation: Operation) -> None:
    """Do it on a store; through the claim if this process holds the run."""
    verb, run_id, values = operation
    claim = claims.get(run_id)
    if verb in ("save", "append", "mark_intent", "mark_done", "attach"):
        if verb == "attach":
            values = {**values, "replace": True}
        done = getattr(claim, verb)(**values) if claim else getattr(store, verb)(run_id, **values)
        assert done is not False, f"{operation} found that it was done before"
    elif verb == "claim":
        taken = store.claim(run_id, values["owner"], LEASE_S)
        assert taken is not None, f"{run_id} could not be claimed"
        claims[run_id] = taken
    elif verb == "renew":
        claims[run_id].renew()
    elif verb == "release":
        claims[run_id].release(values["status"])
        del claims[run_id]
    elif verb == "prune":
        keep = holdfast.Keep(last=values["last"], latest_terminal=False, before_pending_effects=False)
        store.prune(run_id, keep)
    elif verb == "pack":
        row = store.port.run(run_id)
        assert row is not None
        pack_loose(store.access.core, row.family, 4, chunks_min=2)
    elif verb == "recover_expired":
        store.recover_expired()
    else:
        getattr(store, verb)(run_id, **values)


def next_operation(chance: random.Random, model: Model, number: int, sizes: Sizes) -> Operation:
    """An operation that the model says will be accepted. `number` makes its content unlike all others."""
    for _ in range(100):
        make = chance.choices(_MAKERS, _WEIGHTS)[0]
        run_id = chance.choice(_RUNS)
        made = make(chance, model, run_id, number, sizes)
        if made is not None:
            return made
    return _save_small(chance, model, _RUNS[0], number, sizes)


def text(chance: random.Random, words: int) -> str:
    """Text that compresses about as well as what people write."""
    return " ".join(chance.choices(_WORDS, k=words)) + f" {chance.getrandbits(64):x}"


Make = Callable[[random.Random, Model, str, int, Sizes], Operation | None]


def _save_small(chance: random.Random, model: Model, run_id: str, number: int, sizes: Sizes) -> Operation:
    values: dict[str, Any] = {"state": {"number": number, "note": text(chance, 5)}}
    if chance.random() < 0.3:
        values["checkpoint_id"] = f"named {number}"
    if chance.random() < 0.2:
        values["lane"] = "side"
    if chance.random() < 0.2:
        values["status"] = chance.choice(("waiting", "paused", "ready"))
    return Operation("save", run_id, values)


def _save_conversation(chance: random.Random, model: Model, run_id: str, number: int, sizes: Sizes) -> Operation:
    """A conversation that grows by a message, is edited in the middle, or goes back to where it was."""
    run = model.runs.get(run_id)
    messages = list(run.messages) if run else []
    turn = chance.random()
    if turn < 0.15 and len(messages) > 2:
        messages[chance.randrange(len(messages))] = text(chance, sizes.words)
    elif turn < 0.25 or len(messages) >= 3 * sizes.messages:
        messages = messages[: len(messages) // 2]
    grow = 1 if len(messages) >= sizes.messages else sizes.messages // 2
    messages += [text(chance, chance.randrange(1, 2 * sizes.words)) for _ in range(grow)]
    return Operation("save", run_id, {"state": {"messages": messages, "number": number}})


def _replace(chance: random.Random, model: Model, run_id: str, number: int, sizes: Sizes) -> Operation | None:
    named = _named(model, run_id)
    if not named:
        return None
    state = {"number": number, "again": text(chance, chance.choice((3, 700)))}
    return Operation("save", run_id, {"state": state, "checkpoint_id": chance.choice(named), "replace": True})


def _named(model: Model, run_id: str) -> list[str]:
    run = model.runs.get(run_id)
    return [kept.label for kept in run.kept.values() if kept.label[0] != "#" and not kept.lane] if run else []


def _append(chance: random.Random, model: Model, run_id: str, number: int, sizes: Sizes) -> Operation:
    count = chance.choice((1, 1, 1, 4))
    return Operation("append", run_id, {"entries": [_entry(chance, number, i) for i in range(count)]})


def _entry(chance: random.Random, number: int, i: int) -> dict[str, Any]:
    return {"kind": "note", "number": number, "i": i, "text": text(chance, chance.choice((2, 120)))}


def _mark_intent(chance: random.Random, model: Model, run_id: str, number: int, sizes: Sizes) -> Operation:
    return Operation("mark_intent", run_id, {"key": f"effect {number}"})


def _mark_done(chance: random.Random, model: Model, run_id: str, number: int, sizes: Sizes) -> Operation:
    run = model.runs.get(run_id)
    doubtful = [key for key, line in run.effects.items() if line.state == "in_doubt"] if run else []
    key = chance.choice(doubtful) if doubtful and chance.random() < 0.7 else f"effect {number}"
    return Operation("mark_done", run_id, {"key": key, "result": {"number": number}})


def _attach(chance: random.Random, model: Model, run_id: str, number: int, sizes: Sizes) -> Operation:
    target = chance.choice([*_named(model, run_id), f"named {number + 5}"])
    value = {"number": number, "text": text(chance, chance.choice((3, 500)))}
    return Operation("attach", run_id, {"checkpoint_id": target, "key": chance.choice(("a", "b")), "value": value})


def _prune(chance: random.Random, model: Model, run_id: str, number: int, sizes: Sizes) -> Operation | None:
    if run_id not in model.runs:
        return None
    return Operation("prune", run_id, {"last": chance.choice((1, 2, 4))})


def _pack(chance: random.Random, model: Model, run_id: str, number: int, sizes: Sizes) -> Operation | None:
    return Operation("pack", run_id, {}) if run_id in model.runs else None


def _fork(chance: random.Random, model: Model, run_id: str, number: int, sizes: Sizes) -> Operation | None:
    if "" not in (model.runs[run_id].heads if run_id in model.runs else {}):
        return None
    forks = [name for name in model.runs if name.startswith("fork")]
    if len(forks) >= 2:
        return Operation("delete", chance.choice(forks), {})
    return Operation("fork", run_id, {"new_run_id": f"fork {number}"})


def _delete(chance: random.Random, model: Model, run_id: str, number: int, sizes: Sizes) -> Operation | None:
    return Operation("delete", run_id, {}) if run_id in model.runs and run_id not in model.held else None


def _claim(chance: random.Random, model: Model, run_id: str, number: int, sizes: Sizes) -> Operation | None:
    if run_id not in model.runs:
        return None
    if run_id not in model.held:
        return Operation("claim", run_id, {"owner": f"owner {number}"}) if model.may_claim(run_id) else None
    if chance.random() < 0.3:
        return Operation("renew", run_id, {})
    return Operation("release", run_id, {"status": chance.choice((None, None, "waiting"))})


def _recover(chance: random.Random, model: Model, run_id: str, number: int, sizes: Sizes) -> Operation | None:
    gone = any(run.owner and name not in model.held for name, run in model.runs.items())
    return Operation("recover_expired", "", {}) if gone else None


_CHOICES: Final[tuple[tuple[Make, int], ...]] = (
    (_save_small, 22),
    (_save_conversation, 30),
    (_replace, 5),
    (_append, 14),
    (_mark_intent, 5),
    (_mark_done, 7),
    (_attach, 8),
    (_prune, 6),
    (_pack, 6),
    (_fork, 4),
    (_delete, 1),
    (_claim, 8),
    (_recover, 6),
)
_MAKERS: Final = [make for make, _ in _CHOICES]
_WEIGHTS: Final = [weight for _, weight in _CHOICES]

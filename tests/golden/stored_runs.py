"""Runs that are written through the store's own verbs, for the golden stores."""

from __future__ import annotations

from holdfast import Keep, Store
from holdfast.operations.packs import pack_loose
from tests.golden.states import LONG, TYPES, growing

STRANGE_ID = "Ünïcode/../№ 7 \\ CON."
OWNER = "writer-1"


def write_runs(store: Store) -> None:
    """Every row kind that the store's verbs write."""
    _write_states(store)
    _write_lanes(store)
    _write_statuses(store)
    store.save("pruned", _rows(0), step=1)
    for number in range(6):
        store.append("pruned", [{"kind": "note", "number": number}])
        resume = {"holdfast": {"spans": [[number, number + 1]], "needs": []}}
        store.save("pruned", _rows(number), metadata=resume)
    store.prune("pruned", Keep(last=2, journal=True))
    for items in range(40, 81, 4):
        store.save("packed", growing(items))
    pack_loose(store.access.core, family_of(store, "packed"), 9, chunks_min=1)
    store.save("packed", growing(84))
    store.save("deleted", {"gone": True})
    store.delete("deleted")


def family_of(store: Store, run_id: str) -> int:
    """The family of a run."""
    row = store.port.run(run_id)
    assert row is not None
    return row.family


def _rows(number: int) -> dict[str, list[str]]:
    """A state of which the greater part stays the same."""
    return {"rows": [f"row {n} of {number if n % 10 == 0 else 'all'} " * 9 for n in range(100)]}


def _write_states(store: Store) -> None:
    store.append("states", [{"kind": "note", "text": "first", "value": TYPES}, {"kind": "note", "text": "second"}])
    store.save("states", TYPES, workflow="plain", metadata={"team": "a", "nested": {"b": [1, 2], "a": None}})
    store.save("states", growing(120), step=7, next_node="next", status="waiting", checkpoint_id="by-name")
    store.append("states", [{"kind": "large", "rows": [{"n": n, "text": "text " * 5} for n in range(100)]}])
    store.save("states", growing(160), covers=2, metadata={"team": "b", "long": "tag " * 50})
    store.save("states", LONG)
    store.save("states", {"a root": 1}, parent_id="")
    store.save("states", {"replaced": 1}, checkpoint_id="replaced")
    store.save("states", {"replaced": 2}, checkpoint_id="replaced", replace=True)
    store.mark_intent("states", "intended", tool="mail", target="ana", reversible=True)
    store.mark_done("states", "done", tool="write_file", target="a.txt", reversible=True, result=TYPES)
    store.mark_intent("states", "settled")
    store.mark_done("states", "settled", result=[1, 2])
    store.save("states", [1, "a state need not be a dict"])
    store.fork("states", "states-fork", checkpoint_id="by-name")
    store.save("states-fork", growing(130))
    store.save("states-fork", {"the newest": "is shown to people, so it is small"})
    store.copy("states", "states-copy")
    store.save(STRANGE_ID, {"id": STRANGE_ID}, metadata={STRANGE_ID: STRANGE_ID})


def _write_lanes(store: Store) -> None:
    store.save("lanes", {"lane": "default"}, checkpoint_id="c1")
    store.save("lanes", {"lane": "side"}, lane="side", step=3, checkpoint_id="c1")
    store.save("lanes", growing(60), lane="side/inner|ns:1")
    store.attach("lanes", "c1", "draft", {"text": "on the default lane"})
    store.attach("lanes", "c1", "draft", {"text": "on the side lane"}, lane="side")
    store.attach_all("lanes", "c1", {"types": TYPES, "large": growing(30)})
    store.attach("lanes", "c1", "draft", {"text": "replaced"}, replace=True)
    store.attach("lanes", "not yet saved", "early", (1, 2))


def _write_statuses(store: Store) -> None:
    for status in ("ready", "running", "waiting", "paused", "completed", "failed", "cancelled"):
        store.save(f"status-{status}", {"status": status}, status=status)
    store.announce(OWNER)
    store.save("held", {"held": True}, workflow="plain")
    claim = store.claim("held", OWNER, 60.0)
    assert claim is not None
    claim.save({"held": "and saved"})

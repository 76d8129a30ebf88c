"""Two stores on one place, as two processes have them: what one remembers of a run does not hide what the other did."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Store
from holdfast.clock import US
from holdfast.model.commit import (
    HOLDER,
    OUTSIDER,
    Commit,
    Committed,
    Guard,
    NewEntry,
    NewItem,
    NewRun,
    Outcome,
    Reason,
    Refused,
    TakeClaim,
)
from holdfast.model.rows import RunRow
from tests.store.postgres.shared_servers import new_url

ENTRY = NewEntry("e", b"\x00\xc0")
_count = itertools.count()


@pytest.fixture(params=["sqlite", "dir", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_url() if request.param == "postgres" else f"{request.param}:{tmp_path / 'runs'}"


@pytest.fixture
def stores(url: str) -> Iterator[tuple[Store, Store]]:
    with holdfast.open(url) as one, holdfast.open(url) as two:
        yield one, two


def put(store: Store, **parts: Any) -> Outcome:
    (outcome,) = store.port.commit([Commit("run", next(_count).to_bytes(8, "big"), **parts)])
    return outcome


def done(store: Store, **parts: Any) -> RunRow:
    outcome = put(store, **parts)
    assert isinstance(outcome, Committed), outcome
    return outcome.run


def refused(store: Store, **parts: Any) -> str:
    outcome = put(store, **parts)
    assert isinstance(outcome, Refused), outcome
    return outcome.reason


def claimed(store: Store, **parts: Any) -> Guard:
    row = done(store, **{"create": NewRun(), "take": TakeClaim("w", b"n" * 16, 600 * US), **parts})
    return Guard(HOLDER, row.incarnation, row.fence, row.nonce)


def test_a_holder_sees_in_its_next_outcome_what_another_has_delivered(stores: tuple[Store, Store]) -> None:
    one, two = stores
    holder = claimed(one)
    for number in range(1, 4):
        assert done(one, guard=holder, entries=(ENTRY,)).inbox == number - 1
        done(two, guard=Guard(OUTSIDER), deliver=(NewItem("event", "n", f"k{number}", "by", b"\x00\xc0"),))
        row = done(one, guard=holder, entries=(ENTRY,))
        assert (row.inbox, row.position) == (number, 2 * number)


def test_that_an_owner_was_dead_does_not_hold_against_the_next(stores: tuple[Store, Store]) -> None:
    one, two = stores
    first = claimed(one)
    done(one, guard=first, entries=(ENTRY,))
    second = claimed(two, guard=Guard(gone=first.fence), take=TakeClaim("w2", b"m" * 16, 600 * US))
    for parts in ({"entries": (ENTRY,)}, {"take": TakeClaim("w3", b"o" * 16, US)}, {}):
        assert refused(one, guard=Guard(gone=first.fence), **parts) == Reason.CLAIMED
    assert refused(one, guard=Guard(OUTSIDER, gone=first.fence), rearm=first.fence) == Reason.NOT_EXPIRED
    assert refused(one, guard=first, entries=(ENTRY,)) == Reason.CLAIM_LOST
    row = done(two, guard=second, entries=(ENTRY,))
    assert (row.owner, row.position) == ("w2", 2)


def test_a_head_that_went_back_is_there_for_others_and_after_opening_again(
    stores: tuple[Store, Store], url: str
) -> None:
    one, two = stores
    for n in range(1, 7):
        one.save("run", n, checkpoint_id=f"c{n}")
        two.save("run", n, lane="side")
    assert [row.number for row in one.port.prune("run", lambda rows, _effects: [9, 11, *range(2, 13, 2)]) or []]
    for store in (two, one):
        found = store.load("run")
        assert found is not None
        assert (found.checkpoint_id, found.state) == ("c4", 4)
        assert store.load("run", lane="side") is None
    saved = two.save("run", "next")
    assert (saved.number, saved.step) == (13, 5)
    one.port.prune("run", lambda rows, _effects: [row.number for row in rows])
    with holdfast.open(url) as third:
        assert third.load("run") is None
        saved = third.save("run", "first", lane="side")
        assert (saved.number, saved.step) == (14, 1)
        assert third.save("run", "first").number == 15
        assert third.verify().problems == []
    found = one.load("run")
    assert found is not None
    assert (found.parent_id, found.step, found.state) == (None, 1, "first")
    assert two.save("run", "second").step == 2
    assert one.verify().problems == []

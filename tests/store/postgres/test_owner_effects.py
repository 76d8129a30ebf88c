"""Effects of an owner that loses its session: none is repeated, and none begins before the lock is back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast import App
from holdfast.errors import ClaimLost, StorageFailed
from holdfast.store.capabilities import liveness_of
from tests.store.postgres.owners import Blocked, Place, session_of, until
from tests.store.postgres.server import newest
from tests.store.postgres.shared_servers import shared


class Stage:
    """An app whose workflow performs two effects; what happens during the first is up to the test."""

    def __init__(self, kind: str) -> None:
        self.place = Place(shared(newest()))
        self.kind = kind
        self.calls: list[str] = []
        self.during: Callable[[], None] = lambda: None
        self.app = self.open()
        self.owner = self.app._core.owner

    def open(self) -> App:
        app = App(self.place.url, lease_s=600)

        def sync(run: holdfast.Run) -> str:
            run.effect(self.first)
            run.effect(self.second)
            return "done"

        async def asynchronous(run: holdfast.AsyncRun) -> str:
            await run.effect(self.first)
            await run.effect(self.second)
            return "done"

        app.workflow(name="two")(sync if self.kind == "def" else asynchronous)
        return app

    def first(self) -> None:
        self.calls.append("first")
        self.during()

    def second(self) -> None:
        self.calls.append("second")

    def start(self) -> holdfast.Handle:
        return self.app.start("two", run_id="run")

    def block(self, times: int = 1_000_000) -> Blocked:
        return Blocked(session_of(self.app.store, self.owner), times)

    def look(self) -> None:
        """What others do who would take over from a dead owner."""
        store = self.place.store
        assert not liveness_of(store.port).owner_is_dead(self.owner)
        assert store.recover_expired() == 0
        assert store.claim("run", owner="robber") is None

    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.place.store.journal("run")]

    def close(self) -> None:
        self.app.close()
        self.app.store.close()
        self.place.store.close()


@pytest.fixture(params=["def", "async"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    found = Stage(request.param)
    yield found
    found.close()


ONCE = ["started", "intent", "outcome", "intent", "outcome", "completed"]


def test_an_owner_whose_connection_is_cut_in_the_middle_of_an_effect_is_not_robbed_and_goes_on(stage: Stage) -> None:
    blocked = stage.block(times=0)

    def during() -> None:
        blocked.times = 1_000_000
        stage.place.rows.cut(stage.owner)
        for _ in range(3):
            stage.look()
        assert stage.place.rows.is_missing(stage.owner)
        blocked.end()
        until(lambda: stage.place.rows.session(stage.owner) == 2)
        stage.look()

    stage.during = during
    assert stage.start().result(timeout=240) == "done"
    assert stage.calls == ["first", "second"]
    assert stage.kinds() == ONCE
    row = stage.place.store.port.run("run")
    assert row is not None
    assert row.fence == 1


def test_an_owner_that_cannot_take_its_lock_again_begins_no_effect(stage: Stage) -> None:
    blocked = stage.block(times=0)

    def during() -> None:
        blocked.times = 1_000_000
        stage.place.rows.cut(stage.owner)
        until(lambda: blocked.times < 1_000_000)  # the owner has noticed

    stage.during = during
    with pytest.raises(StorageFailed, match="begins no effect"):
        stage.start()
    assert stage.calls == ["first"]
    blocked.end()
    assert stage.app.resume("run").result(timeout=240) == "done"
    assert stage.calls == ["first", "second"]


def test_an_effect_waits_until_the_owner_has_its_lock_again(stage: Stage) -> None:
    blocked = stage.block(times=0)

    def during() -> None:
        blocked.times = 3
        stage.place.rows.cut(stage.owner)
        until(lambda: blocked.times < 3)

    stage.during = during
    assert stage.start().result(timeout=240) == "done"
    assert stage.calls == ["first", "second"]
    assert stage.kinds() == ONCE
    assert blocked.times < 0
    assert stage.place.rows.session(stage.owner) == 2


def test_an_owner_that_was_declared_dead_begins_no_effect_and_goes_on_under_another_name(stage: Stage) -> None:
    blocked = stage.block(times=0)

    def during() -> None:
        blocked.times = 1_000_000
        stage.place.rows.cut(stage.owner)
        until(lambda: blocked.times < 1_000_000)  # the owner has noticed, and waits for a connection
        stage.look()
        stage.place.rows.let_an_hour_pass()
        assert liveness_of(stage.place.store.port).owner_is_dead(stage.owner)
        blocked.end()

    stage.during = during
    with pytest.raises(ClaimLost):
        stage.start()
    assert stage.calls == ["first"]
    assert stage.app._core.owner != stage.owner
    assert stage.app.resume("run").result(timeout=240) == "done"
    assert stage.calls == ["first", "second"]
    row: Any = stage.place.store.port.run("run")
    assert row.fence == 2


def test_effects_of_an_owner_that_keeps_its_session_ask_the_server_for_nothing_more(stage: Stage) -> None:
    session = session_of(stage.app.store, stage.owner)
    asked: list[str] = []
    stage.during = lambda: None
    confirm = session.confirm
    session.confirm = lambda: asked.append("") or confirm()  # type: ignore[method-assign, func-returns-value]
    assert stage.start().result(timeout=240) == "done"
    assert asked == []  # its grace period is long, so the lock it took is proof enough

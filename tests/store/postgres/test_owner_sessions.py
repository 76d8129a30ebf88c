"""Sessions of owners on PostgreSQL: a dead owner is noticed without its lease, a live one is never taken for dead."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Conflict
from holdfast.store.capabilities import Presence, liveness_of
from holdfast.store.port import RunQuery
from holdfast.store.postgres import postgres_connection as connections
from tests.store.postgres.owners import NEVER_S, Blocked, Place, port_of, session_of, until
from tests.store.postgres.proxy import Proxy
from tests.store.postgres.server import Server, newest, running
from tests.store.postgres.shared_servers import majors, new_url, shared
from tests.store.test_liveness import FORK, HOLD, Process


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for process in started:
        process.kill_all()


def start(processes: list[Process], *arguments: str, script: str = HOLD) -> Process:
    process = Process(script, *arguments)
    processes.append(process)
    assert process.line().startswith("held")
    return process


@pytest.fixture
def place() -> Iterator[Place]:
    """A place whose owners have a grace period that does not end by itself."""
    found = Place(shared(newest()))
    yield found
    found.store.close()


# --- death -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("major", majors())
def test_a_killed_process_is_taken_over_before_its_lease_and_a_stopped_or_living_one_is_not(
    major: int, processes: list[Process]
) -> None:
    place = Place(shared(major), grace=0.1)
    place.claims("a", "b", "c", "d")
    with place.store as store:
        stopped = start(processes, place.url, "stopped", "a")
        start(processes, place.url, "alive", "b")
        stopped.popen.send_signal(signal.SIGSTOP)
        killed = start(processes, place.url, "killed", "c", "d")
        assert store.claim("c", owner="w2") is None
        assert store.recover_expired() == 0
        killed.kill()
        until(lambda: place.owner_is_dead("killed"))  # the others were looked for as long, and longer
        claim = store.claim("c", owner="w2")
        assert claim is not None
        claim.save("taken over")
        assert place.owner_is_dead("killed"), "other runs of it are still to be recovered"
        assert store.recover_expired() == 1
        assert [run.run_id for run in store.runs(status="ready")] == ["d"]
        assert port_of(store).dead_owners(["alive", "stopped", "killed"]) == set()
        assert store.claim("a", owner="w2") is store.claim("b", owner="w2") is None
        assert place.rows.names() == ["alive", "stopped"]


def test_a_process_that_ends_well_leaves_nothing_behind(place: Place, processes: list[Process]) -> None:
    place.claims("run")
    process = start(processes, place.url, "w1", "run")
    assert place.rows.names() == ["w1"]
    assert process.end() == 0
    assert place.rows.names() == []
    assert not place.owner_is_dead("w1"), "it has not died"
    assert place.store.claim("run", owner="w2") is None


def test_a_child_does_not_keep_its_dead_parent_alive(processes: list[Process]) -> None:
    place = Place(shared(newest()), grace=0.1)
    place.claims("run")
    parent = start(processes, place.url, script=FORK)
    assert not place.owner_is_dead("parent")
    parent.kill()
    until(lambda: place.owner_is_dead("parent"))
    assert parent.popen.poll() is not None
    place.store.close()


def test_dead_owners_that_hold_nothing_are_forgotten(place: Place, processes: list[Process]) -> None:
    place.claims("run")
    for name in ("idle", "holding"):
        start(processes, place.url, name, *(["run"] if name == "holding" else []))
    with holdfast.open(place.url) as other:
        other.announce("alive")
        for process in processes:
            process.kill()
        until(lambda: not place.owner_is_dead("idle") and place.rows.is_missing("idle"))
        until(lambda: not place.owner_is_dead("holding") and place.rows.is_missing("holding"))
        place.rows.let_an_hour_pass()
        assert port_of(other).dead_owners(["idle", "holding", "alive"]) == {"idle", "holding"}
        liveness_of(other.port).remove_dead_owners(())
        assert place.rows.names() == ["alive", "holding"]
        assert other.recover_expired() == 1
        assert place.rows.names() == ["alive"]


def test_many_owners_are_judged_in_one_question(place: Place) -> None:
    place.rows.execute(
        "INSERT INTO owners SELECT 'w' || n, n, 'token', 1, 'elsewhere', 1, 1, 1, n > 100 "
        "FROM generate_series(1, 200) AS numbers (n)"
    )
    place.claims(*[f"run {n}" for n in range(101, 121)])
    for n in range(101, 121):
        assert place.store.claim(f"run {n}", owner=f"w{n}", lease=600) is not None
    proxy = Proxy(place.server.port)
    with holdfast.open(place.server.url(port=proxy.port, schema=place.schema, durability="relaxed")) as store:
        port = port_of(store)
        port.runs(RunQuery(claimed="any", limit=1))  # the connection is there
        before = proxy.turns
        assert len(port.dead_owners([f"w{n}" for n in range(1, 201)])) == 100
        assert proxy.turns == before + 1
        assert len(port.claims_of_dead()) == 20
        assert proxy.turns == before + 4
        place.rows.execute("DELETE FROM owners WHERE dead")
        before = proxy.turns
        assert port.claims_of_dead() == []
        assert proxy.turns <= before + 2  # the statement may be prepared now
    proxy.close()


def test_owners_of_two_schemas_on_one_server_are_not_mixed_up(place: Place, processes: list[Process]) -> None:
    other = Place(place.server)
    start(processes, place.url, "w").kill()
    with holdfast.open(other.url) as store:
        store.announce("w")
        for looking in (place, other):
            looking.rows.execute("UPDATE owners SET grace_us = 0")
        until(lambda: place.owner_is_dead("w"))
        assert not other.owner_is_dead("w")
    other.store.close()


# --- a live owner whose connection is lost ---------------------------------------------------------------------------


def test_a_live_owner_takes_its_lock_again_and_what_was_missed_no_longer_counts(place: Place) -> None:
    with holdfast.open(place.url) as store:
        store.announce("w")
        blocked = Blocked(session_of(store, "w"))
        for session in range(1, 4):
            assert place.rows.session("w") == session
            blocked.times = 1_000_000
            place.rows.cut("w")
            assert not place.owner_is_dead("w")
            assert place.rows.is_missing("w")
            blocked.end()
            until(lambda session=session: place.rows.session("w") == session + 1)  # type: ignore[misc]
            assert not place.rows.is_missing("w")
            place.rows.let_an_hour_pass()
            assert not place.owner_is_dead("w")
            assert liveness_of(store.port).confirm("w") is Presence.SURE


def test_an_absence_that_was_seen_before_the_owner_came_back_is_not_counted_afterwards(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holdfast.open(place.url) as store:
        store.announce("w")
        blocked = Blocked(session_of(store, "w"))
        place.rows.cut("w")
        port = port_of(place.store)
        read = port._pool._taken

        class Late:
            """Between the look at the locks and what is written of it, the owner comes back."""

            def __init__(self, link: Any) -> None:
                self._link = link

            def execute(self, statement: bytes, *more: Any, **options: Any) -> Any:
                if statement.startswith(b"UPDATE"):
                    blocked.end()
                    until(lambda: place.rows.session("w") == 2)
                return self._link.execute(statement, *more, **options)

            def __getattr__(self, name: str) -> Any:
                return getattr(self._link, name)

        monkeypatch.setattr(port._pool, "_taken", lambda until: Late(read(until)))
        assert not place.owner_is_dead("w")
        assert not place.rows.is_missing("w")


def test_an_owner_that_was_declared_dead_learns_it_before_it_has_its_lock_again(place: Place) -> None:
    with holdfast.open(place.url) as store:
        store.announce("w")
        blocked = Blocked(session_of(store, "w"))
        place.rows.cut("w")
        assert not place.owner_is_dead("w")
        place.rows.let_an_hour_pass()
        until(lambda: liveness_of(store.port).presence("w") is Presence.UNSURE)
        assert place.owner_is_dead("w")
        blocked.end()
        assert liveness_of(store.port).confirm("w") is Presence.LOST
        assert place.owner_is_dead("w"), "that is final"
        store.announce("w")  # as a new process of this name
        assert liveness_of(store.port).confirm("w") is Presence.SURE
        assert not place.owner_is_dead("w")


def test_an_owner_is_unsure_as_soon_as_its_proof_is_older_than_half_its_grace(place: Place) -> None:
    with holdfast.open(place.url) as store:
        store.announce("w")
        session = session_of(store, "w")
        assert liveness_of(store.port).presence("w") is Presence.SURE
        with session._lock:  # its thread proves nothing now
            session._proved_at -= NEVER_S / 2
            assert liveness_of(store.port).presence("w") is Presence.UNSURE
        assert liveness_of(store.port).confirm("w") is Presence.SURE
        assert liveness_of(store.port).presence("of another process") is Presence.SURE


def test_a_connection_the_server_still_keeps_is_ended_once_the_owner_has_another(place: Place) -> None:
    with holdfast.open(place.url) as store:
        store.announce("w")
        session = session_of(store, "w")
        old = session.link
        assert old is not None
        pid, kept = old.info.backend_pid, os.dup(old.pgconn.socket)
        with session._lock:  # the client has given the connection up, the server knows nothing of it
            connections.abandon([old])
            session.link = None
        until(lambda: place.rows.session("w") == 2)
        until(lambda: not place.rows.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", pid))
        os.close(kept)
        assert liveness_of(store.port).confirm("w") is Presence.SURE


def test_of_two_living_sessions_of_one_name_the_second_gets_a_conflict(place: Place, processes: list[Process]) -> None:
    start(processes, place.url, "w")
    with pytest.raises(Conflict, match="'w'"):
        place.store.announce("w")
    processes[0].kill()
    until(lambda: _announced(place.store, "w"))
    assert not place.owner_is_dead("w")


def _announced(store: holdfast.Store, owner: str) -> bool:
    with contextlib.suppress(Conflict):
        store.announce(owner)
        return True
    return False


# --- restarts and failovers ------------------------------------------------------------------------------------------


@pytest.fixture(params=majors())
def own(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that may be restarted."""
    with running(request.param, settings={"fsync": "off"}) as server:
        yield server


def _crash(server: Server) -> None:
    server.crash()
    server.start()


def _restart(server: Server) -> None:
    server._end(signal.SIGINT)
    server.start()


def _crash_one_backend(server: Server) -> None:
    """The server ends all its sessions and recovers, and goes on as the same process."""
    again = "all server processes terminated; reinitializing"
    before = server.log().count(again)
    with server.connect() as connection:
        (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (0,)
        os.kill(pid, signal.SIGKILL)
        until(lambda: server.log().count(again) > before)
    server.wait_until_ready()


def test_after_a_restart_no_owner_is_declared_dead_that_had_no_lock_since(own: Server) -> None:
    for restart in (_restart, _crash, _crash_one_backend):
        place = Place(own, grace=NEVER_S)
        with holdfast.open(place.url) as store:
            store.announce("away")
            store.announce("back")
            blocked = Blocked(session_of(store, "away"))
            restart(own)
            until(lambda place=place: place.rows.session("back") == 2)  # type: ignore[misc]
            for _ in range(3):
                assert port_of(place.store).dead_owners(["away", "back"]) == set(), restart
                place.rows.let_an_hour_pass()
            assert place.rows.is_missing("away")
            assert liveness_of(store.port).presence("back") is Presence.SURE
            blocked.end()
            until(lambda place=place: place.rows.session("away") == 2)  # type: ignore[misc]
            blocked.times = 1_000_000
            place.rows.cut("away")
            assert not place.owner_is_dead("away")
            place.rows.let_an_hour_pass()
            assert place.owner_is_dead("away"), "its lock was lost on this start of the server"
        place.store.close()


def test_after_a_failover_no_owner_is_declared_dead_that_had_no_lock_since() -> None:
    with running() as primary:
        place = Place(primary)
        place.store.announce("w")
        replica = Server().copy_of(primary)
        try:
            replica.promote()
            there = Place(replica, place.schema)
            assert there.rows.names() == ["w"]
            for _ in range(3):
                assert not there.owner_is_dead("w")
                there.rows.let_an_hour_pass()
            assert there.rows.is_missing("w")
            there.store.close()
        finally:
            replica.remove()
        place.store.close()


# --- without sessions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["pooler", "off"])
def test_where_sessions_cannot_be_had_only_leases_count(
    reason: str, place: Place, processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    place.claims("run")
    start(processes, place.url, "w").kill()
    until(lambda: not place.owner_is_dead("w") and place.rows.is_missing("w"))
    place.rows.let_an_hour_pass()
    assert place.owner_is_dead("w")
    url = place.url
    if reason == "off":
        url = url.replace(f"owner_grace={NEVER_S}", "owner_grace=off")
    else:
        monkeypatch.setattr(connections, "_CHECK", connections._CHECK.replace("pg_backend_pid()", "-1"))
    with holdfast.open(url) as store:
        store.announce("w")  # a new process of the same name, which must not be taken for the dead one
        assert place.rows.names() == []
        assert not place.owner_is_dead("w")
        assert liveness_of(store.port).presence("w") is liveness_of(store.port).confirm("w") is Presence.SURE
        assert store.claim("run", owner="w", lease=600) is not None
        assert place.store.claim("run", owner="w2") is None
        assert place.store.recover_expired() == 0


@pytest.mark.parametrize("wrong", ["0", "-1", "none", "nan", "1e9", ""])
def test_a_grace_period_that_makes_no_sense_is_refused(wrong: str) -> None:
    with pytest.raises(holdfast.InvalidInput, match="owner_grace"):
        holdfast.open(new_url(owner_grace=wrong))

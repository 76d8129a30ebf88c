"""How often a worker reads and writes between an answer in another process and the next step."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.runtime import reaper, worker
from holdfast.runtime.reaper import WakeupListener
from tests.store.postgres.server import newest
from tests.store.postgres.shared_servers import new_schema, shared


def register(app: holdfast.App, stepped: threading.Event) -> None:
    def mark() -> None:
        stepped.set()

    @app.workflow
    def other(run: Any) -> None: ...

    @app.workflow
    def asks(run: Any) -> None:
        run.ask("Go on?", bool)
        run.step(mark)


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Is set while a worker waits for a notification; there are no polls."""
    found, wait = threading.Event(), WakeupListener.wait

    def observed(listener: WakeupListener) -> None:
        if listener.notified:
            found.set()
        wait(listener)
        found.clear()

    monkeypatch.setattr(WakeupListener, "wait", observed)
    monkeypatch.setattr(worker, "_REAP_S", 3600.0)
    monkeypatch.setattr(reaper, "POLL_NOTIFIED_S", 3600.0)
    return found


def test_a_worker_claims_at_once_when_it_is_notified(monkeypatch: pytest.MonkeyPatch, idle: threading.Event) -> None:
    """It reads no ready runs before and none after; what it reads to replay are the journal, gates and inbox."""
    url, stepped = shared(newest()).url(schema=new_schema(), durability="relaxed"), threading.Event()
    seen: list[str] = []
    execute = psycopg.Cursor.execute

    def noted(cursor: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.current_thread().name in ("worker", "holdfast-worker") and not stepped.is_set():
            text = query.decode() if isinstance(query, bytes) else str(query)
            seen.extend([word for word in _WORDS if text.startswith(word) or f".{word} " in text][:1])
        return execute(cursor, query, *args, **kwargs)

    with holdfast.App(url, lease_s=3600) as app, holdfast.App(url) as outside:
        register(app, stepped)
        register(outside, stepped)
        outside.start("asks", run_id="run")
        at_work = app.worker()
        thread = threading.Thread(target=at_work.run, name="worker")
        thread.start()
        assert idle.wait(240)
        monkeypatch.setattr(psycopg.Cursor, "execute", noted)
        outside.answer("run", True, enqueue=True)
        assert stepped.wait(240)
        assert outside.handle("run").result(240) is None
        at_work.stop()
        thread.join(240)
    assert seen == ["BEGIN", "runs", "runs", "COMMIT", "entries", "gates", "inbox"]


_WORDS = ("BEGIN", "COMMIT", "entries", "gates", "inbox", "runs")

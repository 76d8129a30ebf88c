"""`Notifications`: announces gates and failures of a store to targets.

A thread finds what must be announced and starts a run of `holdfast.notify` for it; a worker of its own executes these
runs. Both may run in any number of processes at once. A process that dies loses nothing: the runs are durable, and what
was not started is found again.
"""

from __future__ import annotations

import datetime as dt
import fnmatch
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Self

from msgspec.structs import replace

from holdfast.clock import US
from holdfast.engine.gates import seconds_us
from holdfast.errors import HoldfastError, InputConflict, InvalidInput, StoreClosed
from holdfast.notifications.composer import Composer
from holdfast.notifications.delivery import Attempt, Target, check_events
from holdfast.notifications.events import CONFIGURED, EVENTS, RUN_FAILED, WORKFLOW, Event, us_of
from holdfast.notifications.message import check_base_url
from holdfast.notifications.prune import prune_pages
from holdfast.notifications.scanner import Scanner, Sweep
from holdfast.notifications.show_mask import read_mask
from holdfast.notifications.undelivered import Undelivered, read_undelivered
from holdfast.notifications.workflow import RETRY_S, make_workflow
from holdfast.runtime.app import App

if TYPE_CHECKING:
    from holdfast.runtime.worker import Worker

_log: Final = logging.getLogger("holdfast.notifications")
_PRUNE_S: Final = 3600.0
_STOP_S: Final = 0.1
_DAY_US: Final = 86_400 * US


class Notifications:
    """Announces open gates and failed runs to targets, at least once each.

    `events` and `workflows` (patterns) select what is announced; a target may have its own. A gate is announced as
    expiring `expiring_s` before its expiry. Failures are announced from the moment on in which a target was configured
    first, and open gates whenever they were opened; `since` changes both. `mask` are paths that `show` is sent without.
    Notifications are removed `keep_days` after their end; None keeps them. `unavailable` names further targets, and
    why this process cannot send to them.

    Example:
        notifications = Notifications(app, [Webhook("ops", "https://example.org/hook", secret_env="HOOK_SECRET")],
                                      base_url="https://holdfast.example.org")
        with notifications:
            app.worker().run()
    """

    def __init__(
        self,
        app: App,
        targets: Iterable[Target],
        *,
        base_url: str,
        events: Sequence[str] = EVENTS,
        expiring_s: float = 3600.0,
        workflows: Sequence[str] = ("*",),
        mask: Sequence[str] = (),
        since: dt.datetime | None = None,
        keep_days: float | None = 30.0,
        retry_s: Sequence[float] = RETRY_S,
        concurrency: int = 4,
        poll_s: float = 1.0,
        unavailable: Mapping[str, str] | None = None,
    ) -> None:
        self._store = app.store
        self._targets = _by_name(targets)
        self.unavailable = dict(unavailable or {})
        """The targets that are left to other processes, with the reason."""
        self._events = check_events(events)
        self._workflows = _patterns(workflows)
        self._lead_us = seconds_us("expiring_s", expiring_s)
        if since is not None and (not isinstance(since, dt.datetime) or since.tzinfo is None):
            raise InvalidInput(f"since must be a datetime with a time zone, not {since!r}")
        self._since_us = None if since is None else us_of(since)
        self._keep_us = None if keep_days is None else int(seconds_us("keep_days", keep_days, "above 0") / US * _DAY_US)
        self._retry_s = tuple(seconds_us("a delay of retry_s", delay) / US for delay in retry_s)
        self._concurrency = concurrency
        self._poll_s = seconds_us("poll_s", poll_s, "above 0") / US
        self._composer = Composer(self._store, check_base_url(base_url), read_mask(mask))
        for target in self._targets.values():
            target.check()
        self._failed_since: dict[str, int] = {}
        """For each target that is notified of failures: from when on."""
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._app: App | None = None
        self._worker: Worker | None = None

    # --- running -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Announce in threads of this process until `stop`."""
        if self._is_left_to_others:
            return
        app, worker = self._begin()
        self._threads = [
            threading.Thread(target=self._watch, args=(app,), name="holdfast-notifications", daemon=True),
            threading.Thread(target=self._work, args=(worker,), name="holdfast-notifications-worker", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads, or `run`. Attempts in progress get some seconds; the others are left to other processes."""
        self._stopping.set()
        worker, (threads, self._threads) = self._worker, (self._threads, [])
        if worker is not None:
            worker.stop()
        for thread in threads:
            while thread.is_alive():
                thread.join(_STOP_S)
                if worker is not None:
                    worker.stop()  # again: a worker that was about to begin has ignored it
        if threads:
            self._end()

    def run(self, *, until_idle: bool = False) -> None:
        """Announce until SIGTERM or SIGINT; with `until_idle` only what can be announced now, for cron.

        An attempt that is due later is made by a later call.
        """
        if until_idle and self._is_left_to_others:
            return
        app, worker = self._begin()
        watch = threading.Thread(target=self._watch, args=(app,), name="holdfast-notifications", daemon=True)
        try:
            if until_idle:
                scanner = self._make_scanner(app)
                while scanner.read_all():
                    worker.run(until_idle=True)
                worker.run(until_idle=True)
            else:
                watch.start()
                worker.run()
        finally:
            self._stopping.set()
            if watch.ident is not None:
                watch.join()
            self._end()

    @property
    def _is_left_to_others(self) -> bool:
        """Whether this process can send to no target. It then executes no notification."""
        return bool(self.unavailable) and not self._targets

    def _begin(self) -> tuple[App, Worker]:
        if self._app is not None:
            raise InvalidInput("these notifications have been started already")
        self._stopping.clear()
        app = self._open()
        self._worker = app.worker(concurrency=self._concurrency, workflows=[WORKFLOW])
        return app, self._worker

    def _end(self) -> None:
        app, self._app, self._worker = self._app, None, None
        if app is not None:
            app.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _open(self) -> App:
        """An app that knows only this workflow, so that messages do not take the place of the user's runs."""
        app = self._app = App(self._store)
        app.workflow(name=WORKFLOW)(make_workflow(self._composer, self._targets, self._retry_s))
        try:
            self._failed_since = {
                name: self._configured_us(app, name) if self._since_us is None else self._since_us
                for name, target in self._targets.items()
                if RUN_FAILED in self._events_of(target)
            }
        except BaseException:
            self._app = None
            app.close()
            raise
        return app

    def _configured_us(self, app: App, target: str) -> int:
        """When the target was configured first. A run records it, so that a restart does not change it."""
        event = Event(event=CONFIGURED, target=target)
        found = self._store.port.run(event.notification)
        if found is None:
            self._start_run(app, event)
            found = self._store.port.run(event.notification)
        assert found is not None, "it was started"
        return found.created_us

    def _make_scanner(self, app: App) -> Scanner:
        events = {event for target in self._targets.values() for event in self._events_of(target)}
        return Scanner(
            self._store,
            lambda event, workflow: self._announce(app, event, workflow),
            lead_us=self._lead_us,
            watch_gates=bool(events - {RUN_FAILED}),
            failed_since_us=self._failures_from_us,
        )

    def _watch(self, app: App) -> None:
        scanner = self._make_scanner(app)
        keep_us = self._keep_us
        prune = None if keep_us is None else Sweep(lambda: prune_pages(self._store, keep_us), _PRUNE_S)
        while not self._stopping.is_set():
            try:
                scanner.step()
                if prune is not None:
                    prune.advance(0)
            except StoreClosed:
                return
            except HoldfastError as error:
                _log.warning("cannot read what is to be announced; retrying: %s", error)
            except Exception:
                _log.exception("cannot read what is to be announced; retrying")
            self._stopping.wait(self._poll_s)

    def _work(self, worker: Worker) -> None:
        try:
            worker.run()
        except StoreClosed:
            pass
        except Exception:
            _log.exception("notifications are not sent any more by this process")

    # --- announcing --------------------------------------------------------------------------------------------------

    def _announce(self, app: App, event: Event, workflow: str) -> int:
        """Start the notifications of an event that do not exist yet."""
        count = 0
        for name, target in self._targets.items():
            if event.event in self._events_of(target) and self._is_wanted(target, event, workflow):
                count += self._start_run(app, replace(event, target=name))
        return count

    def _is_wanted(self, target: Target, event: Event, workflow: str) -> bool:
        patterns = self._workflows if target.workflows is None else target.workflows
        if not any(fnmatch.fnmatchcase(workflow, pattern) for pattern in patterns):
            return False
        if event.event == RUN_FAILED:
            return event.at_us >= self._failed_since[target.name]
        return self._since_us is None or event.opened_us >= self._since_us

    def _start_run(self, app: App, event: Event) -> int:
        if self._store.port.run(event.notification) is not None:
            return 0
        try:
            app.start(WORKFLOW, event, run_id=event.notification, metadata=event.metadata, enqueue=True)
        except InputConflict:  # another process has described the same event in other words
            return 0
        return 1

    def _events_of(self, target: Target) -> tuple[str, ...]:
        return self._events if target.events is None else target.events

    def _failures_from_us(self) -> int | None:
        """From when on failures are announced; older ones may have been announced and pruned."""
        first_us = min(self._failed_since.values(), default=None)
        if first_us is None or self._keep_us is None:
            return first_us
        return max(first_us, self._store.access.core.clock.now_us() - self._keep_us)

    # --- looking -----------------------------------------------------------------------------------------------------

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets."""
        return tuple(self._targets)

    def test(self, target: str) -> Attempt:
        """Send a test message to a target, once.

        Example:
            notifications.test("ops").state
        """
        if target in self.unavailable:
            raise InvalidInput(self.unavailable[target])
        if target not in self._targets:
            raise InvalidInput(f"there is no target {target!r}; the targets are {', '.join(self._targets) or 'none'}")
        return self._targets[target].send(self._composer.test_message(target))

    def undelivered(self, limit: int = 100) -> list[Undelivered]:
        """The newest notifications that were not delivered.

        Example:
            [one.reason for one in notifications.undelivered()]
        """
        return read_undelivered(self._store, limit)

    def prune(self) -> int:
        """Remove the notifications that ended more than `keep_days` ago, as the threads do every hour.

        Example:
            notifications.prune()
        """
        return 0 if self._keep_us is None else sum(prune_pages(self._store, self._keep_us))


def _by_name(targets: Iterable[Target]) -> dict[str, Target]:
    found: dict[str, Target] = {}
    for target in targets:
        if not isinstance(target, Target):
            raise InvalidInput(f"a target must be a Webhook, Slack or Email, not {target!r}")
        if target.name in found:
            raise InvalidInput(f"two targets are named {target.name!r}; give one of them another name")
        found[target.name] = target
    return found


def _patterns(workflows: object) -> tuple[str, ...]:
    if isinstance(workflows, str) or not all(isinstance(pattern, str) for pattern in list(workflows)):  # type: ignore[call-overload]
        raise InvalidInput(f"workflows must be a list of patterns, not {workflows!r}")
    return tuple(workflows)  # type: ignore[arg-type]

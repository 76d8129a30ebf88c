"""Changes that survive a lost connection: carried out once, or not at all, or with an error that says it is not known.

Whoever changes something says what is to be done with a writer; here it is done, again if the connection was lost or
somebody was in the way. If it was lost when the change may have been committed, that is found out on a new connection
before anything is done a second time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

import psycopg

from holdfast.errors import HoldfastError, StorageBusy, StorageFailed
from holdfast.store.postgres.connection import Opener
from holdfast.store.postgres.errors import interrupt_behind, is_broken, is_idle, is_worth_another_try, translated
from holdfast.store.postgres.transaction import NOTHING, Again, Before, Names, Time, Unclear, Unknowable
from holdfast.store.postgres.writer import Writer

Result = TypeVar("Result")

_TRIES: Final = 5
_PAUSE_S: Final = 0.02


class Changes:
    """The writer, one caller at a time."""

    def __init__(self, opener: Opener, names: Names, clock: Time) -> None:
        self._opener = opener
        self._names = names
        self._time = clock
        self.reset()

    def reset(self) -> None:
        """Begin without a connection: after a fork it is the parent's."""
        self._lock = threading.RLock()
        self.writer: Writer | None = None

    def run(self, work: Callable[[Writer, Before], Result]) -> Result:
        """Have `work` done, once. It is told what an earlier attempt may have done."""
        until = time.monotonic() + self._opener.timeout_s
        before = NOTHING
        with self._lock:
            for tries in range(1_000_000):
                try:
                    return work(self._opened(until), before)
                except (Unclear, psycopg.Error) as error:
                    interrupt = interrupt_behind(error)
                    if interrupt is not None:
                        self.drop()
                        raise interrupt from None
                    if isinstance(error, Unclear):
                        self.drop()
                        before = Before({**before.doubts, **error.before.doubts}, error.before.result)
                        if time.monotonic() > until:
                            raise self._unknown(error.__cause__) from error
                    else:
                        self._after(error, tries, until, in_doubt=before is not NOTHING)
                except Again as error:
                    self._pause(tries, error, in_doubt=before is not NOTHING)
                except Unknowable as error:
                    raise self._unknown(error) from error
                except HoldfastError as error:
                    if before is not NOTHING and isinstance(error, (StorageFailed, StorageBusy)):
                        raise self._unknown(error) from error
                    raise
            raise AssertionError("tries have an end")

    def _opened(self, until: float) -> Writer:
        if self.writer is None or is_broken(self.writer.link) or not is_idle(self.writer.link):
            self.drop()  # an interrupt may have left it in the middle of something
            self.writer = Writer(self._opener.open(until), self._names, self._time)
        return self.writer

    def _after(self, error: psycopg.Error, tries: int, until: float, *, in_doubt: bool) -> None:
        """Return if the work is to be done again, else raise what the error means."""
        lost = self.writer is None or is_broken(self.writer.link)
        if lost:
            self.drop()
            if time.monotonic() < until:
                return
        elif is_worth_another_try(error) and tries < _TRIES:
            self._pause(tries, error, in_doubt=in_doubt)
            return
        found = translated(error, self._opener.settings.shown, self._opener.timeout_s)
        raise (self._unknown(found) if in_doubt else found) from error

    def _pause(self, tries: int, error: Exception, *, in_doubt: bool) -> None:
        if tries >= _TRIES * 2:
            if in_doubt:
                raise self._unknown(error) from error
            raise StorageBusy(f"{self._opener.settings.shown}: others were faster {tries} times, try again") from error
        time.sleep(_PAUSE_S * tries)

    def _unknown(self, cause: BaseException | None) -> StorageFailed:
        return StorageFailed(
            f"{self._opener.settings.shown}: the connection was lost while committing, and what became of it could not "
            f"be found out ({cause}); whether it was saved is not known"
        )

    def drop(self) -> None:
        """Close the writer's connection."""
        writer, self.writer = self.writer, None
        if writer is not None:
            with contextlib.suppress(psycopg.Error):
                writer.link.close()

    def close(self) -> None:
        """Wait for whoever is writing, then close."""
        with self._lock:
            self.drop()

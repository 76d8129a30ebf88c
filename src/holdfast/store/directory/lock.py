"""The lock: one process and one thread at a time is inside the directory, to read or to write.

It is an flock on a file of its own, which is never replaced or removed. In it stands a note for the next who comes:

    {"generation":41,"writing":"00000007-order-4711"}      padded with spaces to 200 bytes

`generation` grows with every change, so others know that what they remember may be out of date. `writing` names the
family that is being changed, and is empty again once all of it was synced. Who finds a name there knows that a writer
died, or that its disk failed, in the middle: that family must be settled before anything in it is believed. The note is
never synced: it tells living processes about each other, and after a power cut there are none.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from holdfast.errors import StorageBusy, StorageFailed
from holdfast.forking import watch
from holdfast.store.directory.files import Files, translating

_NOTE_BYTES: Final = 200
_PAUSE_S: Final = 0.0005
_PAUSE_MAX_S: Final = 0.01
EVERYTHING: Final = "*"
"""Stands for all families, where the note cannot be read."""


class Note(NamedTuple):
    """What the lock file says."""

    generation: int = 0
    writing: str = ""


class DirectoryLock:
    """A lock between threads and between processes. A thread that has it may take it again."""

    def __init__(self, files: Files, path: str, timeout_s: float) -> None:
        self.path = path
        self._files = files
        self._timeout_s = timeout_s
        self._handle: int | None = None
        self.note = Note()
        self._reset()
        watch(self)

    def _reset(self) -> None:
        self._threads = threading.RLock()
        self._depth = 0

    def after_fork(self) -> None:
        """The parent's handle and its lock are the parent's: let go of the handle, which leaves the lock alone."""
        self._reset()
        self._close_handle()

    @contextlib.contextmanager
    def held(self) -> Iterator[Note]:
        """Hold the lock. A generator: one that an interrupt leaves behind is ended, and lets go, all the same."""
        if not self._threads.acquire(timeout=self._timeout_s):
            raise self._busy()
        try:
            outermost = self._depth == 0
            try:
                if outermost:
                    self._take()
                self._depth += 1
                yield self.note
            finally:
                try:
                    self._let_go(outermost=outermost)
                except BaseException:  # an interrupt just here
                    self._let_go(outermost=outermost)
                    raise
        finally:
            self._threads.release()

    def _let_go(self, *, outermost: bool) -> None:
        if not outermost:
            self._depth = max(1, self._depth - 1)
            return
        self._depth = 0
        if self._handle is not None:
            try:
                self._files.unlock(self._handle)
            except OSError:
                self._close_handle()  # which gives the lock up as well

    def close(self) -> None:
        """Give the handle back."""
        with self._threads:
            self._close_handle()

    def _close_handle(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            with contextlib.suppress(OSError):
                self._files.close(handle)

    def _take(self) -> None:
        until = time.monotonic() + self._timeout_s
        pause_s = _PAUSE_S
        with translating(f"locking {self.path}"):
            while True:
                if self._handle is None:
                    self._handle = self._files.open_lock(self.path)
                if self._files.try_lock(self._handle):
                    try:
                        if self._is_current():
                            self.note = self._read()
                            return
                    except BaseException:
                        self._close_handle()
                        raise
                    self._close_handle()  # the directory was replaced; its lock is another one now
                    continue
                if time.monotonic() > until:
                    raise self._busy()
                time.sleep(pause_s * (0.5 + random.random()))  # noqa: S311 - only spreads waiters
                pause_s = min(pause_s * 1.5, _PAUSE_MAX_S)

    def _busy(self) -> StorageBusy:
        return StorageBusy(f"{self.path}: others had the lock for more than {self._timeout_s} s, try again")

    def _is_current(self) -> bool:
        assert self._handle is not None
        found = self._files.identity(self.path)
        return found is not None and found.inode == self._files.handle_identity(self._handle).inode

    def _read(self) -> Note:
        assert self._handle is not None
        data = self._files.read_note(self._handle, _NOTE_BYTES).strip(b" \n")
        if not data:
            return Note()
        try:
            content = json.loads(data)
            return Note(int(content["generation"]), str(content["writing"]))
        except (ValueError, KeyError, TypeError):
            return Note(0, EVERYTHING)

    def mark(self, writing: str) -> None:
        """Say that a family is being changed, before it is."""
        self._write(Note(self.note.generation + 1, writing))

    def clear(self) -> None:
        """Say that all of it was synced. If that cannot be said, the next who comes looks for itself."""
        with contextlib.suppress(StorageFailed):
            self._write(self.note._replace(writing=""))

    def _write(self, note: Note) -> None:
        assert self._handle is not None, "the lock is held"
        content = json.dumps(note._asdict(), separators=(",", ":")).encode()
        with translating(f"writing to {self.path}"):
            self._files.write_note(self._handle, content.ljust(_NOTE_BYTES - 1) + b"\n")
        self.note = note

"""Locks between processes: flocks on files.

`DirectoryLock` admits one process and one thread at a time to a directory, to read or to write. Its file is never
replaced or removed, and holds a note for the next process:

    {"generation":41,"writing":"00000007-order-4711"}      padded with spaces to 200 bytes

`generation` grows with every change, so other processes notice that what they remember may be out of date. `writing`
names the family that is being changed, and is empty again once all of it was synced. A name there means that a writer
died, or that its disk failed, in the middle of a change: that family must be recovered before it is read. The note is
never synced: it is for living processes, and a power cut leaves none.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from holdfast.errors import StorageBusy, StorageFailed
from holdfast.files.os_files import Files, translate_os_errors
from holdfast.fork_safety import reset_after_fork

_NOTE_BYTES: Final = 200
_PAUSE_S: Final = 0.0005
_PAUSE_MAX_S: Final = 0.01
EVERYTHING: Final = "*"
"""Means all families, if the note cannot be read."""


def try_lock_file(files: Files, path: str, *, create: bool = False, shared: bool = False) -> int | None:
    """Open and lock a file; None if it is locked elsewhere, or was removed before the lock was taken."""
    handle = files.open_lock(path, create=create)
    try:
        if files.try_lock(handle, shared=shared) and files.is_at(handle, path):
            return handle
    except BaseException:
        files.close(handle)
        raise
    files.close(handle)
    return None


class Note(NamedTuple):
    """The content of the lock file."""

    generation: int = 0
    writing: str = ""


class DirectoryLock:
    """A lock between threads and between processes. A thread that holds it may take it again."""

    def __init__(self, files: Files, path: str, timeout_s: float) -> None:
        self.path = path
        self._files = files
        self._timeout_s = timeout_s
        self._handle: int | None = None
        self.note = Note()
        self._reset()
        reset_after_fork(self)

    def _reset(self) -> None:
        self._threads = threading.RLock()
        self._depth = 0

    def after_fork(self) -> None:
        """Close the handle, which the child shares with its parent. That does not release the parent's lock."""
        self._reset()
        self._close_handle()

    @contextlib.contextmanager
    def hold(self) -> Iterator[Note]:
        """Hold the lock. A generator releases it also if an interrupt drops it half way."""
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
                    self._release(outermost=outermost)
                except BaseException:  # an interrupt just here
                    self._release(outermost=outermost)
                    raise
        finally:
            self._threads.release()

    def _release(self, *, outermost: bool) -> None:
        if not outermost:
            self._depth = max(1, self._depth - 1)
            return
        self._depth = 0
        if self._handle is not None:
            try:
                self._files.unlock(self._handle)
            except OSError:
                self._close_handle()  # which releases the lock as well

    def close(self) -> None:
        """Close the lock file."""
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
        with translate_os_errors(f"locking {self.path}"):
            while True:
                if self._handle is None:
                    self._handle = self._files.open_lock(self.path)
                if self._files.try_lock(self._handle):
                    try:
                        if self._files.is_at(self._handle, self.path):
                            self.note = self._read()
                            return
                    except BaseException:
                        self._close_handle()
                        raise
                    self._close_handle()  # the directory was replaced; its lock is another one now
                    continue
                if time.monotonic() > until:
                    raise self._busy()
                time.sleep(pause_s * (0.5 + os.urandom(1)[0] / 256))  # spreads the retries
                pause_s = min(pause_s * 1.5, _PAUSE_MAX_S)

    def _busy(self) -> StorageBusy:
        return StorageBusy(f"{self.path}: other processes held the lock for more than {self._timeout_s} s; try again")

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

    def mark_writing(self, family: str) -> None:
        """Note that a family is being changed, before it is."""
        self._write(Note(self.note.generation + 1, family))

    def clear_writing(self) -> None:
        """Note that all of it was synced. If this fails, the next process recovers the family."""
        with contextlib.suppress(StorageFailed):
            self._write(self.note._replace(writing=""))

    def _write(self, note: Note) -> None:
        assert self._handle is not None, "the lock is held"
        content = json.dumps(note._asdict(), separators=(",", ":")).encode()
        with translate_os_errors(f"writing to {self.path}"):
            self._files.write_note(self._handle, content.ljust(_NOTE_BYTES - 1) + b"\n")
        self.note = note

"""A shim between SQLite and its own file layer, put in from outside: no compiler, no root, no other VFS.

SQLite reaches files through a table of functions. While a watcher is on duty, the entries of the default VFS for
opening and deleting are replaced, and each file opened in the watched directory gets a table of its own whose entries
ask the watcher first. So the store runs exactly as it always does, and an injected failure is an error code like a
real one. (A VFS written with apsw can only raise exceptions, which then come out of a COMMIT even where SQLite itself
ignores the error, as in a checkpoint after it.) The shared-memory index goes past the shim.

The layout of the structures is SQLite's public interface (sqlite3.h: sqlite3_vfs, sqlite3_io_methods).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any, ClassVar, Final

import apsw

GO_ON: Final = 0
SKIP: Final = -1
"""Say that it was done, and do nothing."""
SHORT: Final = -2
"""Of a read: half of it, zeros for the rest, and no word about it but the one SQLite takes for the end of the file."""

_Close = CFUNCTYPE(c_int, c_void_p)
_Transfer = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_Truncate = CFUNCTYPE(c_int, c_void_p, c_int64)
_Number = CFUNCTYPE(c_int, c_void_p, c_int)
_Size = CFUNCTYPE(c_int, c_void_p, POINTER(c_int64))
_Open = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
_Delete = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)


class _Methods(ctypes.Structure):
    _fields_: ClassVar = [
        ("iVersion", c_int),
        ("xClose", _Close),
        ("xRead", _Transfer),
        ("xWrite", _Transfer),
        ("xTruncate", _Truncate),
        ("xSync", _Number),
        ("xFileSize", _Size),
        ("xLock", _Number),
        *((name, c_void_p) for name in ("xUnlock", "xCheckReservedLock", "xFileControl", "xSectorSize")),
        *((name, c_void_p) for name in ("xDeviceCharacteristics", "xShmMap", "xShmLock", "xShmBarrier", "xShmUnmap")),
    ]


class _File(ctypes.Structure):
    _fields_: ClassVar = [("pMethods", POINTER(_Methods))]


class _Vfs(ctypes.Structure):
    _fields_: ClassVar = [
        ("iVersion", c_int),
        ("szOsFile", c_int),
        ("mxPathname", c_int),
        ("pNext", c_void_p),
        ("zName", c_char_p),
        ("pAppData", c_void_p),
        ("xOpen", _Open),
        ("xDelete", _Delete),
    ]


class Handle:
    """One open file."""

    def __init__(self, name: str, flags: int) -> None:
        self.name = name
        self.creates = bool(flags & apsw.SQLITE_OPEN_CREATE)
        """Whether the file was to be created if it was not there."""
        self.is_database = bool(flags & apsw.SQLITE_OPEN_MAIN_DB)


class Watcher:
    """Is asked before each call. Gives `GO_ON`, `SKIP`, or the error code that the call is to return."""

    def open(self, name: str) -> int:
        return GO_ON

    def opened(self, handle: Handle) -> None:
        """A file was opened."""

    def read(self, handle: Handle) -> int:
        """Also `SHORT`."""
        return GO_ON

    def write(self, handle: Handle, data: bytes, offset: int) -> int:
        """An error code makes half of the bytes arrive, as on a disk that fails."""
        return GO_ON

    def truncate(self, handle: Handle, size: int) -> int:
        return GO_ON

    def sync(self, handle: Handle) -> int:
        return GO_ON

    def size(self, handle: Handle) -> int:
        return GO_ON

    def lock(self, handle: Handle) -> int:
        return GO_ON

    def delete(self, name: str, *, sync_directory: bool) -> int:
        return GO_ON


def _default_vfs() -> _Vfs:
    pointer = c_void_p()
    connection = apsw.Connection(":memory:")
    try:
        connection.file_control("main", apsw.SQLITE_FCNTL_VFS_POINTER, ctypes.addressof(pointer))
    finally:
        connection.close()
    assert pointer.value
    return _Vfs.from_address(pointer.value)


class _Shim:
    """The replaced entries. Whatever SQLite may still call is kept alive by this object."""

    def __init__(self, directory: Path, watcher: Watcher) -> None:
        self._directory = str(directory)
        self._watcher = watcher
        self._vfs = _default_vfs()
        self._handles: dict[int, Handle] = {}
        self._tables: dict[int, tuple[_Methods, _Methods]] = {}
        self._open: Any = _Open(ctypes.cast(self._vfs.xOpen, c_void_p).value or 0)
        self._delete: Any = _Delete(ctypes.cast(self._vfs.xDelete, c_void_p).value or 0)
        self._replacements = (_Open(_safely(self._on_open)), _Delete(_safely(self._on_delete)))
        self._vfs.xOpen, self._vfs.xDelete = self._replacements

    def remove(self) -> None:
        gc.collect()  # a connection that was dropped is closed by then
        assert not self._handles, f"files are still open: {[handle.name for handle in self._handles.values()]}"
        self._vfs.xOpen, self._vfs.xDelete = self._open, self._delete

    def _on_open(self, vfs: int, path: int | None, file: int, flags: int, out_flags: int) -> int:
        name = self._watched(path)
        if name is None:
            return int(self._open(vfs, path, file, flags, out_flags))
        refused = self._watcher.open(name)
        if refused:
            return refused
        code = int(self._open(vfs, path, file, flags, out_flags))
        methods = _File.from_address(file).pMethods
        if code == apsw.SQLITE_OK and methods:
            _File.from_address(file).pMethods = ctypes.pointer(self._table(methods))
            self._handles[file] = Handle(name, flags)
            self._watcher.opened(self._handles[file])
        return code

    def _watched(self, path: int | None) -> str | None:
        """The name of a file in the directory. SQLite keeps the pointer it passes, so only that is passed on."""
        directory, name = os.path.split(os.fsdecode(ctypes.string_at(path))) if path else ("", "")
        return name if directory == self._directory else None

    def _on_delete(self, vfs: int, path: int, sync_directory: int) -> int:
        name = self._watched(path)
        if name is not None and os.path.exists(os.path.join(self._directory, name)):
            answer = self._watcher.delete(name, sync_directory=bool(sync_directory))
            if answer != GO_ON:
                return max(answer, 0)
        return int(self._delete(vfs, path, sync_directory))

    def _table(self, methods: Any) -> _Methods:
        """The table for files that had the table `methods`."""
        address = ctypes.addressof(methods.contents)
        if address not in self._tables:
            real = methods.contents
            ours = _Methods.from_buffer_copy(real)
            ours.iVersion = min(real.iVersion, 2)  # no memory-mapped reads
            self._fill(ours, real)
            self._tables[address] = (ours, real)
        return self._tables[address][0]

    def _fill(self, ours: _Methods, real: Any) -> None:
        handles, watcher = self._handles, self._watcher

        def close(file: int) -> int:
            handles.pop(file, None)
            return int(real.xClose(file))

        def read(file: int, buffer: int, size: int, offset: int) -> int:
            answer = watcher.read(handles[file])
            if answer == SHORT:
                real.xRead(file, buffer, size, offset)
                ctypes.memset(buffer + size // 2, 0, size - size // 2)
                return apsw.SQLITE_IOERR_SHORT_READ
            return answer or int(real.xRead(file, buffer, size, offset))

        def write(file: int, buffer: int, size: int, offset: int) -> int:
            answer = watcher.write(handles[file], ctypes.string_at(buffer, size), offset)
            if answer > 0:
                real.xWrite(file, buffer, size // 2, offset)
                return answer
            return int(real.xWrite(file, buffer, size, offset))

        def truncate(file: int, size: int) -> int:
            return watcher.truncate(handles[file], size) or int(real.xTruncate(file, size))

        def sync(file: int, flags: int) -> int:
            answer = watcher.sync(handles[file])
            return int(real.xSync(file, flags)) if answer == GO_ON else max(answer, 0)

        def size(file: int, out: Any) -> int:
            return watcher.size(handles[file]) or int(real.xFileSize(file, out))

        def lock(file: int, level: int) -> int:
            return watcher.lock(handles[file]) or int(real.xLock(file, level))

        ours.xClose, ours.xTruncate, ours.xSync = (
            _Close(_safely(close)),
            _Truncate(_safely(truncate)),
            _Number(_safely(sync)),
        )
        ours.xRead, ours.xWrite = _Transfer(_safely(read)), _Transfer(_safely(write))
        ours.xFileSize, ours.xLock = _Size(_safely(size)), _Number(_safely(lock))


def _safely(call: Callable[..., int]) -> Callable[..., int]:
    """An exception cannot pass through SQLite: say what it was, and fail."""

    def safe(*args: Any) -> int:
        try:
            return call(*args)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(70)

    return safe


@contextlib.contextmanager
def watched(directory: Path, watcher: Watcher) -> Iterator[None]:
    """While it lasts, the watcher is asked about every file in the directory. All must be closed at the end."""
    shim = _Shim(directory, watcher)
    try:
        yield
    finally:
        shim.remove()

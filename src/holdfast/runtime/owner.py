"""Who this process is to others who use the same store."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import Final

from holdfast.errors import StorageError
from holdfast.forking import watch
from holdfast.store.port import Presence, StorePort
from holdfast.verbs.core import Core

_MANY: Final = 1_000


class Owner:
    """The name under which this process claims runs. The store can tell others whether the process still lives."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.after_fork()
        watch(self)

    def after_fork(self) -> None:
        """A child process is another owner."""
        self._lock = threading.Lock()
        self._name = ""

    @property
    def name(self) -> str:
        """The name, announced to the store. A process that others declared dead goes on under a new one."""
        if self._needs_name():
            with self._lock:
                if self._needs_name():
                    name = f"{socket.gethostname()}:{os.getpid()}:{self._core.ids.token(6).hex()}"
                    self._core.port.announce(name)
                    self._tidy_up()
                    self._name = name
        return self._name

    def _needs_name(self) -> bool:
        return not self._name or self._core.port.presence(self._name) is Presence.LOST

    def _tidy_up(self) -> None:
        """Remove the signs of life of processes that have ended and hold nothing; without a worker nobody else does."""
        port = self._core.port
        if getattr(type(port), "bury", StorePort.bury) is StorePort.bury:
            return
        with contextlib.suppress(StorageError):
            held = port.held(_MANY)
            if len(held) < _MANY:
                port.bury({row.owner for row in held})

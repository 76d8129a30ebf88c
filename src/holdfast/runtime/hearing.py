"""How a worker learns that there is something to do: told by the store where it can tell, else by looking.

Being told is only a hint. Whoever is told also looks now and then, and what cannot be heard is found by looking.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

from holdfast.errors import HoldfastError
from holdfast.verbs.store import Store

_log: Final = logging.getLogger("holdfast.worker")

LOOK_TOLD_S: Final = 1.0
"""How often one looks who is told."""
LOOK_FIRST_S: Final = 0.01
LOOK_LATER_S: Final = 0.2
"""How often one looks who is not: often while there is something to do, less often when it is quiet."""
_HEAR_S: Final = 2.0
_DEAF_S: Final = 15.0


class Ear:
    """Wakes a worker. Its thread listens if the store can tell."""

    def __init__(self, store: Store) -> None:
        self._listen: Any = getattr(store.port, "listen", None)
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._quiet = 0
        self.told = False
        """Whether the store tells, tried and found working."""
        if self._listen is not None:
            threading.Thread(target=self._hear, name="holdfast-ear", daemon=True).start()

    def wake(self) -> None:
        """There is something to do."""
        self._woken.set()

    def wait(self) -> None:
        """Wait until there may be something to do."""
        self._quiet += 1
        look_s = LOOK_TOLD_S if self.told else min(LOOK_LATER_S, LOOK_FIRST_S * 1.3**self._quiet)
        if self._woken.wait(look_s):
            self._woken.clear()
            self._quiet = 0

    def busy(self) -> None:
        """There was something to do, so there may soon be more."""
        self._quiet = 0

    def close(self) -> None:
        self._closing.set()
        self._woken.set()

    def _hear(self) -> None:
        while not self._closing.is_set():
            try:
                with self._listen() as listener:
                    self.told = listener.works()
                    if not self.told:
                        _log.warning("the store does not pass on what it tells; looking for ready runs instead")
                        return
                    while not self._closing.is_set():
                        if listener.heard(_HEAR_S):
                            self.wake()
            except HoldfastError as error:
                self.told = False
                _log.warning("cannot listen to the store (%s); looking for ready runs instead", error)
                self._closing.wait(_DEAF_S)

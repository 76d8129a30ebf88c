"""Retry policies: how often something is tried, and how long to wait in between."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.errors import InvalidInput

_ATTEMPTS_MAX: Final = 1_000_000


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How a step or an effect is tried again after it raised.

    `attempts` counts all tries. Before the second `first_s` seconds pass, before each later one `factor` times as long,
    `longest_s` at most; each wait is shortened or lengthened by up to `jitter` of itself. Only errors of the types
    `on` are tried again, and those of `never` are not.

    Example:
        Retry(attempts=5, first_s=0.2)
    """

    attempts: int = 3
    first_s: float = 0.5
    factor: float = 2.0
    longest_s: float = 60.0
    jitter: float = 0.2
    on: tuple[type[Exception], ...] = (Exception,)
    never: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        if type(self.attempts) is not int or not 1 <= self.attempts <= _ATTEMPTS_MAX:
            raise InvalidInput(f"Retry(attempts={self.attempts!r}): it is tried once or more")
        if not (self.first_s >= 0 and self.longest_s >= 0 and self.factor >= 1 and 0 <= self.jitter <= 1):
            raise InvalidInput("Retry: waits are not negative, factor is 1 or more, jitter 0 to 1")

    def wait_us(self, failed: int, chance: bytes) -> int:
        """How long to wait after `failed` tries."""
        try:
            wait_s = min(self.longest_s, self.first_s * self.factor ** min(failed - 1, 200))
        except OverflowError:
            wait_s = self.longest_s
        spread = int.from_bytes(chance, "big") / (1 << (8 * len(chance))) * 2 - 1
        return int(wait_s * (1 + self.jitter * spread) * 1_000_000)

    def covers(self, error: BaseException) -> bool:
        """Whether `error` is one that may pass."""
        return isinstance(error, Exception) and isinstance(error, self.on) and not isinstance(error, self.never)


ONCE: Final = Retry(attempts=1)


def retry_of(given: Any, default: Retry) -> Retry:
    """A policy given as such, as a number of attempts, or not at all."""
    if given is None:
        return default
    if isinstance(given, Retry):
        return given
    if type(given) is int:
        return Retry(attempts=given)
    raise InvalidInput(f"retry must be a Retry or a number of attempts, not {given!r}")

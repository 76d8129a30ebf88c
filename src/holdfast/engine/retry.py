"""Retry policies: the number of attempts and the delays between them."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from holdfast.errors import InvalidInput

_ATTEMPTS_MAX: Final = 1_000_000
_RANGES: Final = (
    ("initial_delay", 0, math.inf),
    ("max_delay", 0, math.inf),
    ("backoff", 1, math.inf),
    ("jitter", 0, 1),
)


class Retry(msgspec.Struct, frozen=True):
    """How often a step or an effect is attempted, and the delays between attempts.

    `attempts` counts all attempts. The second one follows after `initial_delay` seconds, each later one after `backoff`
    times the delay before it, at most `max_delay` seconds. Each delay varies by up to `jitter` of itself. Only errors
    of the types in `on` are retried, and those of the types in `never` are not.

    Example:
        Retry(attempts=5, initial_delay=0.2)
    """

    attempts: int = 3
    initial_delay: float = 0.5
    max_delay: float = 60.0
    backoff: float = 2.0
    jitter: float = 0.2
    on: tuple[type[Exception], ...] = (Exception,)
    never: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        if type(self.attempts) is not int or not 1 <= self.attempts <= _ATTEMPTS_MAX:
            raise InvalidInput(f"Retry: attempts must be 1 to {_ATTEMPTS_MAX:,}, not {self.attempts!r}")
        for name, least, most in _RANGES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                allowed = f"{least} or more" if most == math.inf else f"{least} to {most:.0f}"
                raise InvalidInput(f"Retry: {name} must be {allowed}, not {value!r}")
        for name in ("on", "never"):
            kinds = getattr(self, name)
            given = kinds if isinstance(kinds, tuple) else (kinds,)
            if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in given):
                raise InvalidInput(f"Retry: {name} must be a tuple of exception types, not {kinds!r}")

    def wait_us(self, failed: int, chance: bytes) -> int:
        """The delay after `failed` attempts."""
        try:
            wait_s = min(self.max_delay, self.initial_delay * self.backoff ** min(failed - 1, 200))
        except OverflowError:
            wait_s = self.max_delay
        spread = int.from_bytes(chance, "big") / (1 << (8 * len(chance))) * 2 - 1
        return int(wait_s * (1 + self.jitter * spread) * 1_000_000)

    def covers(self, error: BaseException) -> bool:
        """Whether the policy retries after `error`."""
        return isinstance(error, Exception) and isinstance(error, self.on) and not isinstance(error, self.never)


ONCE: Final = Retry(attempts=1)


def retry_of(given: object, default: Retry) -> Retry:
    """The policy that was given: a `Retry`, a number of attempts, or None for `default`."""
    if given is None:
        return default
    if isinstance(given, Retry):
        return given
    if type(given) is int:
        return Retry(attempts=given)
    raise InvalidInput(f"retry must be a Retry or a number of attempts, not {given!r}")

"""Every interleaving of one of our calls with the file calls of an original program.

The original is a generator that makes one file call per step: `yield` stands before each call, and the generator
returns what the original would. Ours is a function that uses the `Files` it is given. Before each of our file calls the
explorer either goes on or lets the original make its next call, and it tries every such choice:

    def steps(place: Path) -> Steps[bool]:
        yield
        found = (place / "a.json").exists()
        yield
        (place / "a.json").unlink(missing_ok=True)
        return found

    every_interleaving(tmp_path, prepare, ours=lambda place, files: …, theirs=steps, check=check)

Calls on `.holdfast` are not choices, because the originals look at nothing in there: such a call commutes with theirs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeVar

from holdfast.files.os_files import Identity, SystemFiles
from holdfast.formats.folder import OWN

Result = TypeVar("Result")
Steps = Generator[None, None, Result]

SCHEDULES_MAX: Final = 20_000
"""More are an error: a test that silently tries a part proves less than it says."""


class Part(NamedTuple):
    """The orders in which the number of our calls before the original's first has this remainder."""

    number: int
    of: int


WHOLE: Final = Part(0, 1)


class Outcome(NamedTuple):
    """What came of one schedule; an exception stands for the result of a call that raised it."""

    ours: Any
    theirs: Any
    is_dead: bool
    """The original died before its last call; then `theirs` is None."""
    trace: tuple[str, ...]
    """Both programs' calls in the order in which they were made."""


def finish(steps: Steps[Result]) -> Result:
    """Let the original run alone, to its end."""
    while True:
        try:
            next(steps)
        except StopIteration as stopped:
            result: Result = stopped.value
            return result


def every_interleaving(
    scratch: Path,
    prepare: Callable[[Path], object],
    ours: Callable[[Path, SystemFiles], object],
    theirs: Callable[[Path], Steps[Any]],
    check: Callable[[Path, Outcome], None],
    *,
    may_die: bool = False,
    part: Part = WHOLE,
) -> int:
    """Run `ours` and `theirs` in every order, each time in a new directory, and `check` what is left; how many orders.

    With `may_die` the original also dies before each of its calls. `part` limits the exploration to one part of the
    orders; all parts together are every order.
    """
    count = 0
    for limit in range(_length(scratch, prepare, theirs)) if may_die else ():
        count += _explore(scratch, prepare, ours, theirs, check, limit, part)
    return count + _explore(scratch, prepare, ours, theirs, check, None, part)


def _length(scratch: Path, prepare: Callable[[Path], object], theirs: Callable[[Path], Steps[Any]]) -> int:
    """How many calls the original makes when it runs alone."""
    with _directory(scratch) as place:
        prepare(place)
        original = _Original(theirs(place), None)
        while original.has_steps:
            original.step([])
        return original.made


def _explore(
    scratch: Path,
    prepare: Callable[[Path], object],
    ours: Callable[[Path, SystemFiles], object],
    theirs: Callable[[Path], Steps[Any]],
    check: Callable[[Path, Outcome], None],
    limit: int | None,
    part: Part,
) -> int:
    choices: list[bool] = []
    for count in range(1, SCHEDULES_MAX + 1):
        with _directory(scratch) as place:
            prepare(place)
            schedule = _Schedule(choices, _Original(theirs(place), limit))
            outcome = schedule.run(lambda files, place=place: ours(place, files))  # type: ignore[misc]
            try:
                check(place, outcome)
            except BaseException as error:
                error.add_note("in this order:\n  " + "\n  ".join(outcome.trace))
                raise
        choices = _next_choices(schedule.taken, part)
        if not choices:
            return count
    raise AssertionError(f"more than {SCHEDULES_MAX} schedules; make one of the programs shorter")


def _next_choices(taken: list[bool], part: Part) -> list[bool]:
    """The choices of the next order that belongs to the part; none if there is none."""
    choices = list(taken)
    while choices:
        if choices[-1]:  # the original went first here already: every choice below was tried
            choices.pop()
            continue
        choices[-1] = True
        calls_before = choices.index(True)  # our calls before the original's first
        if calls_before % part.of == part.number:
            break
    return choices


@contextlib.contextmanager
def _directory(scratch: Path) -> Iterator[Path]:
    place = scratch / "interleaved"
    place.mkdir()
    try:
        yield place
    finally:
        shutil.rmtree(place)


class _Original:
    """The original program, one call at a time."""

    def __init__(self, steps: Steps[Any], limit: int | None) -> None:
        self._steps = steps
        self._limit = limit
        self.made = 0
        self.result: Any = None
        self.has_steps = True
        self._advance()  # to before its first call

    def step(self, trace: list[str]) -> None:
        """Make its next call."""
        self.made += 1
        trace.append(f"original: call {self.made}")
        self._advance()

    def _advance(self) -> None:
        try:
            next(self._steps)
        except StopIteration as stopped:
            self.result, self.has_steps = stopped.value, False
        except Exception as error:
            self.result, self.has_steps = error, False
        if self.has_steps and self.made == self._limit:
            self.has_steps = False


class _Schedule:
    """One order: the choices given, and after them ours first."""

    def __init__(self, choices: list[bool], original: _Original) -> None:
        self._given = choices
        self._original = original
        self.taken: list[bool] = []
        self._trace: list[str] = []

    def run(self, ours: Callable[[SystemFiles], object]) -> Outcome:
        try:
            mine = ours(_Files(self))
        except Exception as error:
            mine = error
        while self._original.has_steps:
            self._original.step(self._trace)
        theirs = self._original.result
        is_dead = theirs is None and self._original.made == self._original._limit
        return Outcome(mine, theirs, is_dead, tuple(self._trace))

    def before(self, call: str, path: str) -> None:
        """Called before each of our calls."""
        if OWN in Path(path).parts:
            return
        while self._original.has_steps:
            at = len(self.taken)
            goes_first = self._given[at] if at < len(self._given) else False
            self.taken.append(goes_first)
            if not goes_first:
                break
            self._original.step(self._trace)
        self._trace.append(f"ours: {call} {os.path.basename(path)}")


class _Files(SystemFiles):
    """Our file calls, each after what the original is to do before it. Nothing is synced: no power is cut here."""

    def __init__(self, schedule: _Schedule) -> None:
        self._schedule = schedule
        self._paths: dict[int, str] = {}

    def listdir(self, path: str) -> list[str]:
        self._schedule.before("listdir", path)
        return super().listdir(path)

    def identity(self, path: str) -> Identity | None:
        self._schedule.before("stat", path)
        return super().identity(path)

    def stat(self, path: str) -> os.stat_result:
        self._schedule.before("stat", path)
        return super().stat(path)

    def open_for_read(self, path: str) -> BinaryIO:
        self._schedule.before("open", path)
        return super().open_for_read(path)

    def read(self, path: str) -> bytes:
        self._schedule.before("read", path)
        return super().read(path)

    def mkdir(self, path: str) -> None:
        self._schedule.before("mkdir", path)
        super().mkdir(path)

    def create(self, path: str) -> int:
        self._schedule.before("create", path)
        handle = super().create(path)
        self._paths[handle] = path
        return handle

    def open_for_append(self, path: str) -> int:
        self._schedule.before("open", path)
        handle = super().open_for_append(path)
        self._paths[handle] = path
        return handle

    def open_lock(self, path: str, *, create: bool = True) -> int:
        handle = super().open_lock(path, create=create)
        self._paths[handle] = path
        return handle

    def write(self, handle: int, data: bytes | bytearray) -> None:
        self._schedule.before("write", self._paths[handle])
        super().write(handle, data)

    def overwrite(self, path: str, start: int, data: bytes) -> None:
        self._schedule.before("overwrite", path)
        super().overwrite(path, start, data)

    def truncate(self, handle: int, size: int) -> None:
        self._schedule.before("truncate", self._paths[handle])
        super().truncate(handle, size)

    def rename(self, old: str, new: str) -> None:
        self._schedule.before("rename to", old if OWN in Path(new).parts else new)
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self._schedule.before("unlink", path)
        super().unlink(path)

    def rmdir(self, path: str) -> None:
        self._schedule.before("rmdir", path)
        super().rmdir(path)

    def sync(self, handle: int) -> None:
        pass

    def sync_directory(self, path: str) -> None:
        pass

"""Where output goes, and in which form: for people in a terminal, for people in a pipe, or as JSON for programs.

With --json standard output has the JSON and nothing else; all other lines go to standard error. In a terminal there are
colours and times such as "3 min ago"; in a pipe, or with NO_COLOR, there are no colours, and in a pipe times are ISO.
Ids and statuses are never cut: a table that is too wide for the terminal shortens its last column, and what still does
not fit stands on further lines.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import select
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TextIO

import click

from holdfast.cli.exits import CannotAsk

Cell = str | int | None
_COLORS: Final = {
    "ready": "cyan", "running": "blue", "waiting": "yellow", "paused": "magenta", "rolling_back": "magenta",
    "completed": "green", "failed": "red", "cancelled": "bright_black",
}  # fmt: skip
_LISTEN_S: Final = 0.1
_LAST_MIN: Final = 8
"""With less room than this the last column stands on a line of its own."""
_INDENT: Final = "  "
_SPANS: Final = ((86_400, "d", 24), (3_600, "h", 60), (60, "min", 60), (1, "s", 1000))
"""Units in seconds, and how many of the next smaller one they are."""


class Output:
    """The output of one command."""

    def __init__(self, *, as_json: bool, color: bool | None) -> None:
        self.as_json = as_json
        self.stream: TextIO = sys.stderr if as_json else sys.stdout
        """Where lines for people go."""
        self.is_terminal = self.stream.isatty()
        wants_none = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self.has_color = color if color is not None else self.is_terminal and not wants_none
        self.can_ask = sys.stdin.isatty() and sys.stderr.isatty() and not as_json
        """Whether somebody is there to answer a question."""
        self._json: TextIO = sys.stdout

    def keep_for_json(self) -> None:
        """Let everything that others write to standard output, a workflow for example, go to standard error instead."""
        sys.stdout.flush()
        self._json = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def hush(self) -> None:
        """Write to nobody from now on, also what is still in buffers."""
        nobody = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, self._json):
            os.dup2(nobody, stream.fileno())
        os.close(nobody)

    @property
    def width(self) -> int:
        """Columns to write into; in a pipe as many as it takes."""
        return shutil.get_terminal_size().columns if self.is_terminal else 10_000

    # --- lines -------------------------------------------------------------------------------------------------------

    def give(self, data: Any) -> None:
        """JSON, alone on standard output."""
        self._json.write(json.dumps(plain(data), ensure_ascii=False, indent=2) + "\n")
        self._json.flush()

    def say(self, text: str = "") -> None:
        """A line for people."""
        self.stream.write(f"{text}\n")

    def note(self, text: str) -> None:
        """A line beside the result, on standard error."""
        self.stream.flush()
        sys.stderr.write(f"{text}\n")

    def styled(self, text: str, **style: Any) -> str:
        """Text in a colour, if there are colours."""
        return click.style(text, **style) if self.has_color else text

    def status(self, status: str) -> str:
        """A status in its colour."""
        return self.styled(status, fg=_COLORS.get(status))

    # --- times and sizes ---------------------------------------------------------------------------------------------

    def time(self, moment: dt.datetime | None) -> str:
        """A time: "3 min ago" in a terminal, ISO in a pipe."""
        if moment is None:
            return ""
        return ago(moment, dt.datetime.now(dt.UTC)) if self.is_terminal else moment.isoformat(timespec="milliseconds")

    def when(self, moment: dt.datetime) -> str:
        """A time inside a sentence: "3 min ago" in a terminal, "at" and ISO in a pipe."""
        return self.time(moment) if self.is_terminal else f"at {self.time(moment)}"

    # --- tables ------------------------------------------------------------------------------------------------------

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[Cell]], *, status: int | None = None) -> None:
        """A table. `status` is the number of the column that holds one. Only the last column is ever shortened.

        In a terminal that is too narrow, columns without content are left out, and what still does not fit stands on
        further lines of its row.
        """
        cells = [[one_line("" if cell is None else str(cell)) for cell in row] for row in rows]
        widths = [max(columns(row[at]) for row in (list(headers), *cells)) for at in range(len(headers))]
        shown = list(range(len(headers)))
        if self.is_terminal and sum(widths) + 2 * (len(widths) - 1) > self.width:
            shown = [at for at in shown if at == 0 or any(row[at] for row in cells)]
        groups = _groups(shown, widths, self.width) if self.is_terminal else [shown]
        for line in self._row(headers, widths, groups, None):
            self.say(self.styled(line, bold=True))
        for row in cells:
            for line in self._row(row, widths, groups, status):
                self.say(line)

    def _row(
        self, cells: Sequence[str], widths: Sequence[int], groups: list[list[int]], status: int | None
    ) -> Iterator[str]:
        """The lines of one row of a table."""
        end = groups[-1][-1]
        for group in groups:
            indent = "" if group is groups[0] else _INDENT
            room = self.width - len(indent)
            *front, last = group
            if not front and last != end:
                yield from (indent + part for part in chunks(cells[last], room) if part)
                continue
            padded = [
                (self.status(cells[at]) if at == status else cells[at]) + " " * (widths[at] - columns(cells[at]))
                for at in front
            ]
            left = room - sum(widths[at] + 2 for at in front)
            text = cells[last] if last != end or left < _LAST_MIN else cut(cells[last], left)
            line = indent + "  ".join([*padded, self.status(text) if last == status else text]).rstrip()
            if line.strip() or group is groups[0]:
                yield line

    def wrapped(self, text: str, indent: str = _INDENT) -> list[str]:
        """Text as lines that fit the terminal; a pipe gets one line. All but the first are indented."""
        if columns(text) <= self.width:
            return [text]
        indent = indent[: self.width // 2]
        lines: list[str] = []
        line = ""
        for word in text.split(" "):
            room = self.width - (len(indent) if lines else 0)
            joined = f"{line} {word}" if line else word
            if columns(joined) <= room:
                line = joined
                continue
            left = room - columns(line) - 1
            if columns(word) > self.width - len(indent) and left >= _LAST_MIN:
                part = next(chunks(word, left))
                line, word = f"{line} {part}" if line else part, word[len(part) :]  # noqa: PLW2901
            lines += [line] if line.strip() else []
            *whole, line = chunks(word, self.width - (len(indent) if lines else 0))
            lines += whole
        lines.append(line)
        return [lines[0], *(indent + each for each in lines[1:])]

    # --- asking and progress -----------------------------------------------------------------------------------------

    def confirm(self, question: str, *, yes: bool, option: str = "--yes") -> bool:
        """Ask, unless `yes`. Without a terminal nothing is asked: CannotAsk says which option to give."""
        if yes:
            return True
        if not self.can_ask:
            raise CannotAsk(f"{question} Nobody can be asked here, so nothing was done; give {option} to do it")
        while True:
            answer = read_line(f"{question} [y/N]: ").strip().casefold()
            if answer in ("y", "yes", "n", "no", ""):
                return answer.startswith("y")

    @contextmanager
    def progress(self, label: str, total: int | None) -> Iterator[Progress]:
        """A bar for long work, on standard error; none when that is no terminal, or for a single thing."""
        if not sys.stderr.isatty() or self.as_json or total in (0, 1):
            yield Progress()
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        console = Console(stderr=True, no_color=not self.has_color)
        with Bar(*columns, console=console, transient=True) as bar:
            yield Progress(bar, bar.add_task(label, total=total))


class Progress:
    """How far the work is; without a bar it says nothing."""

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self._bar = bar
        self._task = task

    def advance(self, by: int = 1) -> None:
        """So much more is done."""
        if self._bar is not None:
            self._bar.advance(self._task, by)

    def reach(self, done: int, total: int) -> None:
        """So much of so much is done."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)


def read_line(label: str) -> str:
    """Ask for a line in the terminal. Raises click.Abort at the end of input, KeyboardInterrupt on Ctrl-C.

    It waits in small steps, because a signal that comes just before a read would only be heard after it.
    """
    sys.stderr.write(label)
    sys.stderr.flush()
    while not select.select([sys.stdin], [], [], _LISTEN_S)[0]:
        pass
    line = sys.stdin.readline()  # a terminal gives one line at a time, so nothing is left in a buffer
    if not line:
        raise click.Abort
    return line.rstrip("\n")


def lines_of(text: str) -> list[str]:
    """Text as lines, none of which can move the cursor or change colours."""
    return [one_line(line.expandtabs()) for line in text.splitlines()]


def one_line(text: str) -> str:
    """Text as one line that cannot move the cursor or change colours."""
    return "".join(char if char.isprintable() else " " if char in "\n\t" else "�" for char in text)


def ago(moment: dt.datetime, now: dt.datetime) -> str:
    """How long ago, in whole units that are over; or how long from now, to the nearest unit."""
    seconds = (now - moment).total_seconds()
    return f"{duration(seconds, int)} ago" if seconds >= 0 else f"in {duration(-seconds)}"


def duration(seconds: float, whole: Callable[[float], int] = round) -> str:
    """A length of time in its largest unit."""
    for size, unit, parts in _SPANS:
        if whole(seconds * parts / size) >= parts:  # so 59.9 minutes are an hour, and 40 are not
            return f"{whole(seconds / size)} {unit}"
    return f"{whole(seconds * 1000)} ms"


def size(count: int) -> str:
    """Bytes for people."""
    number, units = float(count), ["B", "KB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        units.pop(0)
    return f"{int(number)} {units[0]}" if units[0] == "B" else f"{number:.1f} {units[0]}"


def plain(value: Any) -> Any:
    """A value as JSON can hold it. What JSON has no word for becomes text; bytes become their base64 in an object."""
    import msgspec

    from holdfast.state.readable import shown

    def other(odd: Any) -> Any:
        return repr(odd)

    if isinstance(value, bytes):
        import base64

        return {"$base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return shown(value)
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    return msgspec.to_builtins(value, enc_hook=other)


def columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    wide = sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
    return wide - sum(1 for char in text if unicodedata.combining(char))


def cut(text: str, room: int) -> str:
    """Text in at most so many columns; one that is longer ends in "…"."""
    if columns(text) <= room:
        return text
    return f"{next(chunks(text, max(1, room - 1)))}…"


def chunks(text: str, room: int) -> Iterator[str]:
    """Text in pieces of at most so many columns."""
    start = used = 0
    for at, char in enumerate(text):
        takes = columns(char)
        if used + takes > room and at > start:
            yield text[start:at]
            start, used = at, 0
        used += takes
    yield text[start:]


def _groups(shown: Sequence[int], widths: Sequence[int], room: int) -> list[list[int]]:
    """Which columns stand on each line of a row: as many as fit, in their order."""
    groups: list[list[int]] = [[]]
    used = 0
    for at in shown:
        needed = min(widths[at], _LAST_MIN) if at == shown[-1] else widths[at]
        if groups[-1] and used + needed > room:
            groups.append([])
            used = len(_INDENT)
        groups[-1].append(at)
        used += widths[at] + 2
    return groups

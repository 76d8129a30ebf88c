"""Output of a command: text for a terminal or a pipe, or JSON.

With --json, standard output contains the JSON and nothing else; all other lines go to standard error. A terminal gets
colours, unless NO_COLOR is set, and times such as "3 min ago"; a pipe gets neither, and times in ISO format. Ids and
statuses are never cut: a table that is too wide for the terminal shortens its last column, and the cells that still do
not fit are written on further lines.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

from holdfast.cli.exit_codes import CannotAsk

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

Cell = str | int | None
_COLORS: Final = {
    "ready": "cyan",
    "running": "blue",
    "waiting": "yellow",
    "paused": "magenta",
    "rolling_back": "magenta",
    "completed": "green",
    "failed": "red",
    "cancelled": "bright_black",
}
_CODES: Final = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36, "bright_black": 90}
"""The codes of colours in a terminal."""
_POLL_S: Final = 0.1
_LAST_MIN: Final = 8
"""If fewer columns are left, the last cell of a row is written on a line of its own."""
_INDENT: Final = "  "
_SPANS: Final = ((86_400, "d", 24), (3_600, "h", 60), (60, "min", 60), (1, "s", 1000))
"""Units in seconds, with the number of next smaller units in each."""


class Output:
    """The output of one command."""

    def __init__(self, *, as_json: bool, color: bool | None) -> None:
        self.as_json = as_json
        self.stream: TextIO = sys.stderr if as_json else sys.stdout
        """Where text goes."""
        self.is_terminal = self.stream.isatty()
        wants_none = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self.has_color = color if color is not None else self.is_terminal and not wants_none
        self.can_ask = sys.stdin.isatty() and sys.stderr.isatty() and not as_json
        """Whether there is a terminal to ask questions in."""
        self._json: TextIO = sys.stdout

    def redirect_stdout(self) -> None:
        """Reserve standard output for JSON; what a workflow writes to it goes to standard error."""
        sys.stdout.flush()
        self._json = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def discard(self) -> None:
        """Discard all further output, and what is still buffered."""
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, self._json):
            os.dup2(null, stream.fileno())
        os.close(null)

    @property
    def width(self) -> int:
        """The number of columns; practically unlimited in a pipe."""
        if not self.is_terminal:
            return 10_000
        from shutil import get_terminal_size

        return get_terminal_size().columns

    # --- lines -------------------------------------------------------------------------------------------------------

    def give(self, data: object) -> None:
        """Write the JSON result to standard output."""
        from json import dumps

        self._json.write(dumps(plain(data), ensure_ascii=False, indent=2) + "\n")
        self._json.flush()

    def say(self, text: str = "") -> None:
        """Write a line of text."""
        self.stream.write(f"{text}\n")

    def note(self, text: str) -> None:
        """Write a line that is not part of the result, to standard error."""
        self.stream.flush()
        sys.stderr.write(f"{text}\n")

    def styled(self, text: str, *, fg: str | None = None, bold: bool | None = None, dim: bool | None = None) -> str:
        """Style text, if this output has colours."""
        if not self.has_color:
            return text
        codes = [_CODES[fg]] if fg is not None else []
        codes += [code for code, wanted in ((1, bold), (2, dim)) if wanted]
        return "".join(f"\033[{code}m" for code in codes) + f"{text}\033[0m"

    def status(self, status: str) -> str:
        """Colour a status."""
        return self.styled(status, fg=_COLORS.get(status))

    # --- times and sizes ---------------------------------------------------------------------------------------------

    def time(self, moment: dt.datetime | None) -> str:
        """Format a time: "3 min ago" in a terminal, ISO in a pipe."""
        if moment is None:
            return ""
        return ago(moment, dt.datetime.now(dt.UTC)) if self.is_terminal else moment.isoformat(timespec="milliseconds")

    def when(self, moment: dt.datetime) -> str:
        """Format a time within a sentence: "3 min ago" in a terminal, "at" and ISO in a pipe."""
        return self.time(moment) if self.is_terminal else f"at {self.time(moment)}"

    def since(self, moment: dt.datetime) -> str:
        """Format the time since a moment: "for 3 min" in a terminal, "since" and ISO in a pipe."""
        return f"for {self.time(moment).removesuffix(' ago')}" if self.is_terminal else f"since {self.time(moment)}"

    # --- tables ------------------------------------------------------------------------------------------------------

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[Cell]], *, status: int | None = None) -> None:
        """Write a table. `status` is the index of the status column. Only the last column is ever shortened.

        In a terminal that is too narrow, empty columns are left out, and cells that still do not fit are written on
        further lines of their row.
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
        """Return the lines of one row of a table."""
        end = groups[-1][-1]
        for group in groups:
            indent = "" if group is groups[0] else _INDENT
            width = self.width - len(indent)
            *front, last = group
            if not front and last != end:
                yield from (indent + part for part in chunks(cells[last], width) if part)
                continue
            padded = [
                (self.status(cells[at]) if at == status else cells[at]) + " " * (widths[at] - columns(cells[at]))
                for at in front
            ]
            left = width - sum(widths[at] + 2 for at in front)
            text = cells[last] if last != end or left < _LAST_MIN else cut(cells[last], left)
            line = indent + "  ".join([*padded, self.status(text) if last == status else text]).rstrip()
            if line.strip() or group is groups[0]:
                yield line

    def wrapped(self, text: str, indent: str = _INDENT) -> list[str]:
        """Wrap text to the width of the terminal; a pipe gets one line. All lines but the first are indented."""
        if columns(text) <= self.width:
            return [text]
        indent = indent[: self.width // 2]
        lines: list[str] = []
        line = ""
        for word in text.split(" "):
            width = self.width - (len(indent) if lines else 0)
            joined = f"{line} {word}" if line else word
            if columns(joined) <= width:
                line = joined
                continue
            left = width - columns(line) - 1
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
        """Ask for confirmation, unless `yes`. Raises CannotAsk, which names the option, if there is no terminal."""
        if yes:
            return True
        if not self.can_ask:
            raise CannotAsk(
                f"{question} There is no terminal to confirm it in, so nothing was done; pass {option} to confirm"
            )
        while True:
            answer = read_line(f"{question} [y/N]: ").strip().casefold()
            if answer in ("y", "yes", "n", "no", ""):
                return answer.startswith("y")

    @contextmanager
    def progress(self, label: str, total: int | None) -> Iterator[Progress]:
        """Show a progress bar on standard error, if that is a terminal and there is more than one item."""
        if not sys.stderr.isatty() or self.as_json or total in (0, 1):
            yield Progress()
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        console = Console(stderr=True, no_color=not self.has_color)
        with Bar(*columns, console=console, transient=True) as bar:
            yield Progress((bar, bar.add_task(label, total=total)))


class Progress:
    """The progress of long work; without a bar nothing is shown."""

    def __init__(self, shown: tuple[Bar, TaskID] | None = None) -> None:
        self._shown = shown

    def advance(self, by: int = 1) -> None:
        """Report that `by` more items are done."""
        if self._shown is not None:
            bar, task = self._shown
            bar.advance(task, by)

    def reach(self, done: int, total: int) -> None:
        """Report that `done` of `total` items are done."""
        if self._shown is not None:
            bar, task = self._shown
            bar.update(task, completed=done, total=total)


def read_line(label: str) -> str:
    """Read a line from the terminal. Raises click.Abort at the end of input, KeyboardInterrupt on Ctrl-C.

    It polls, because a signal that arrives just before a blocking read would only be handled after it.
    """
    sys.stderr.write(label)
    sys.stderr.flush()
    from select import select

    while not select([sys.stdin], [], [], _POLL_S)[0]:
        pass
    line = sys.stdin.readline()  # a terminal returns one line at a time, so nothing is left in a buffer
    if not line:
        from click import Abort

        raise Abort
    return line.rstrip("\n")


def lines_of(text: str) -> list[str]:
    """Split text into lines that cannot move the cursor or change colours."""
    return [one_line(line.expandtabs()) for line in text.splitlines()]


def one_line(text: str) -> str:
    """Turn text into one line that cannot move the cursor or change colours."""
    return "".join(char if char.isprintable() else " " if char in "\n\t" else "�" for char in text)


def unstyle(text: str) -> str:
    """Remove the codes that `Output.styled` adds."""
    return re.sub("\033\\[[0-9]+m", "", text)


def ago(moment: dt.datetime, now: dt.datetime) -> str:
    """Format a past time in complete units, or a future one to the nearest unit."""
    seconds = (now - moment).total_seconds()
    return f"{duration(seconds, int)} ago" if seconds >= 0 else f"in {duration(-seconds)}"


def duration(seconds: float, whole: Callable[[float], int] = round) -> str:
    """Format a duration in its largest unit."""
    for size, unit, parts in _SPANS:
        if whole(seconds * parts / size) >= parts:  # 59.9 minutes are shown as an hour, 40 minutes are not
            return f"{whole(seconds / size)} {unit}"
    return f"{whole(seconds * 1000)} ms"


def size(count: int) -> str:
    """Format a number of bytes."""
    number, units = float(count), ["B", "KB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        units.pop(0)
    return f"{int(number)} {units[0]}" if units[0] == "B" else f"{number:.1f} {units[0]}"


def plain(value: object) -> object:
    """Convert a value to JSON data. Bytes become an object with their base64; other foreign values their repr."""
    import msgspec

    from holdfast.state.json_preview import to_jsonable

    if isinstance(value, bytes):
        import base64

        return {"$base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return to_jsonable(value)
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    return msgspec.to_builtins(value, enc_hook=repr)


def columns(text: str) -> int:
    """Count the terminal columns of a text."""
    if text.isascii():
        return len(text)
    wide = sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
    return wide - sum(1 for char in text if unicodedata.combining(char))


def cut(text: str, width: int) -> str:
    """Shorten text to `width` columns; shortened text ends in "…"."""
    if columns(text) <= width:
        return text
    return f"{next(chunks(text, max(1, width - 1)))}…"


def chunks(text: str, width: int) -> Iterator[str]:
    """Split text into pieces of at most `width` columns."""
    start = used = 0
    for at, char in enumerate(text):
        takes = columns(char)
        if used + takes > width and at > start:
            yield text[start:at]
            start, used = at, 0
        used += takes
    yield text[start:]


def _groups(shown: Sequence[int], widths: Sequence[int], width: int) -> list[list[int]]:
    """Distribute the columns over the lines of a row: as many on each as fit, in their order."""
    groups: list[list[int]] = [[]]
    used = 0
    for at in shown:
        needed = min(widths[at], _LAST_MIN) if at == shown[-1] else widths[at]
        if groups[-1] and used + needed > width:
            groups.append([])
            used = len(_INDENT)
        groups[-1].append(at)
        used += widths[at] + 2
    return groups

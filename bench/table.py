"""Tables of plain text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from bench.results import Result, Spread, shown
from bench.targets import Judged, raw_bytes


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be; the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        first, *others = [
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
        ]
        return "| " + " | ".join((first, *others)) + " |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join((line(header), rule, *map(line, rows)))


def _spread(found: Spread | None) -> str:
    return "-" if found is None else str(found)


def _median(found: Spread | None) -> str:
    return "-" if found is None else shown(found.median)


def workload_table(result: Result) -> str:
    """The numbers of a workload under its name."""
    return f"## {result.plan.name}: {result.plan.title}\n\n{workload_body(result)}"


def workload_body(result: Result) -> str:
    """The numbers of a workload, system by system, with what the plan has of them."""
    lines = [_TABLES[result.plan.table](result), ""]
    lines += [f"Not in this table: {peer}, because {reason}." for peer, reason in result.plan.without.items()]
    counted = max((len(found) for found in result.rounds.values()), default=0)
    lines.append(
        f"{counted} rounds, {result.discarded} discarded for a stall, {result.stalled} counted in spite of one; "
        f"bare sync of 4 KB: median {result.probe_us[0]:.0f} us, longest {result.probe_us[1]:.0f} us; "
        f"other processes kept {result.neighbours:.2f} processors busy. {result.measured}"
    )
    return "\n".join(lines)


def _rows(result: Result, width: int, one: Callable[[str], Sequence[str]]) -> list[Sequence[str]]:
    """A row for each system; one that failed says why."""
    rows: list[Sequence[str]] = []
    for entry in result.plan.entries:
        if entry.name in result.rounds:
            rows.append(one(entry.name))
        elif reason := result.failures.get(entry.name):
            rows.append([entry.name, f"failed: {reason}", *["-"] * (width - 2)])
    return rows


def _speed_table(result: Result) -> str:
    floors = [
        entry.name for entry in result.plan.entries if entry.name.startswith("floor") and entry.name in result.rounds
    ]
    noun = result.plan.noun
    header = ["system", f"us per {noun}", f"{noun}s per s", *(f"of {floor}" for floor in floors)]

    def one(name: str) -> list[str]:
        parts = [_spread(result.part(name, floor)) for floor in floors]
        return [name, _spread(result.spread(name, "us")), _median(result.spread(name, "per_s")), *parts]

    return table(header, _rows(result, len(header), one))


def _turns_table(result: Result) -> str:
    header = (
        "system",
        "us per turn",
        "first tenth",
        "last tenth",
        "of the floor's speed",
        "MB on disk",
        "x raw",
        "bytes per turn",
    )
    raw = raw_bytes(result.plan.total) if not result.plan.options else 0

    def one(name: str) -> tuple[str, ...]:
        size = result.spread(name, "bytes")
        return (
            name,
            _spread(result.spread(name, "us")),
            _median(result.spread(name, "first_us")),
            _median(result.spread(name, "last_us")),
            _spread(result.part(name, result.plan.floor)),
            "-" if size is None else f"{size.median / 1e6:,.2f}",
            "-" if size is None or not raw else shown(size.median / raw),
            _median(result.spread(name, "bytes_each")),
        )

    return table(header, _rows(result, len(header), one))


def _times_table(result: Result) -> str:
    return _column_table(result, "x floor", lambda name, us: result.times(name, us, result.plan.floor))


def _parts_table(result: Result) -> str:
    return _column_table(result, "of the floor's speed", lambda name, us: result.part(name, result.plan.floor, us))


def _column_table(result: Result, what: str, compared: Callable[[str, str], Spread | None]) -> str:
    header = ["system"]
    for column in result.plan.columns:
        header += [f"{column} us", what]

    def one(name: str) -> list[str]:
        row = [name]
        for column in result.plan.columns:
            us = f"{column}_us"
            row += [_median(result.spread(name, us)), _spread(compared(name, us))]
        return row

    return table(header, _rows(result, len(header), one))


def _beside_table(result: Result) -> str:
    """What everything takes; below it, how many times as long one takes as another."""
    columns = result.plan.columns
    grows = any("growth" in found for rounds in result.rounds.values() for found in rounds)
    header = ["system", *(f"{column} us" for column in columns), *(["last / first"] if grows else [])]

    def row(name: str) -> list[str]:
        found = [name, *(_spread(result.spread(name, f"{column}_us")) for column in columns)]
        return [*found, _spread(result.spread(name, "growth"))] if grows else found

    took = table(header, _rows(result, len(header), row))
    ratios = [
        [f"{one} / {other}", *(_spread(result.times(one, f"{column}_us", other)) for column in columns)]
        for one, other in result.plan.compared
        if one in result.rounds and other in result.rounds
    ]
    return f"{took}\n\n{table(['times', *columns], ratios)}"


def _bytes_table(result: Result) -> str:
    """Bytes on disk, as they are and without what an empty store takes."""
    raw = result.plan.total * result.plan.raw_each
    header = ("system", "MB", "x messages", "MB without the empty store", "x messages", "MB in blocks", "x messages")

    def row(name: str) -> list[str]:
        cells = [name]
        for number in ("bytes", "grown_bytes", "block_bytes"):
            found = result.spread(name, number)
            cells += ["-", "-"] if found is None else [f"{found.median / 1e6:,.2f}", shown(found.median / raw)]
        return cells

    return table(header, _rows(result, len(header), row))


def _operations_table(result: Result) -> str:
    """A row for each operation: what it takes on the first system, and on each other one, also as times the first."""
    first, *others = [entry.name for entry in result.plan.entries]
    header = ["operation", f"{first}, us"]
    for name in others:
        header += [f"{name}, us", "times"]
    rows = []
    for column in result.plan.columns:
        row = [column, _median(result.spread(first, f"{column}_us"))]
        for name in others:
            row += [_median(result.spread(name, f"{column}_us")), _spread(result.times(name, f"{column}_us", first))]
        rows.append(row)
    failed = [f"{name}: failed: {reason}" for name, reason in result.failures.items()]
    return "\n\n".join([table(header, rows), *failed])


_TABLES: Final[dict[str, Callable[[Result], str]]] = {
    "speed": _speed_table,
    "turns": _turns_table,
    "times": _times_table,
    "parts": _parts_table,
    "beside": _beside_table,
    "bytes": _bytes_table,
    "operations": _operations_table,
}


TARGET_HEADER: Final = ("target", "wanted", "found", "verdict")


def target_table(rows: Iterable[Judged]) -> str:
    """Every target, what was found, and the verdict."""
    return table(TARGET_HEADER, [row.cells for row in rows])

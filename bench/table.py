"""Tables of plain text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bench.results import Result, Spread
from bench.saver_plans import message_bytes
from bench.targets import judged, raw_bytes


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


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def _spread(found: Spread | None) -> str:
    if found is None:
        return "-"
    return f"{_number(found.median)} [{_number(found.least)}..{_number(found.greatest)}]"


def _median(found: Spread | None) -> str:
    return "-" if found is None else _number(found.median)


def workload_table(result: Result) -> str:
    """The numbers of a workload under its name."""
    return f"## {result.plan.name}: {result.plan.title}\n\n{workload_body(result)}"


def workload_body(result: Result) -> str:
    """The numbers of a workload, system by system, with what the plan has of them."""
    lines = [_TABLES[result.plan.table](result), ""]
    lines += [f"{name} could not run: {reason}" for name, reason in result.failures.items()]
    counted = max((len(found) for found in result.rounds.values()), default=0)
    lines.append(
        f"{counted} rounds, {result.discarded} discarded for a stall, {result.stalled} counted in spite of one; "
        f"bare sync of 4 KB: median {result.probe_us[0]:.0f} us, longest {result.probe_us[1]:.0f} us; "
        f"other processes kept {result.neighbours:.2f} processors busy"
    )
    return "\n".join(lines)


def _speed_table(result: Result) -> str:
    floors = [
        entry.name for entry in result.plan.entries if entry.name.startswith("floor") and entry.name in result.rounds
    ]
    noun = result.plan.noun
    header = ["system", f"us per {noun}", f"{noun}s per s", *(f"of {floor}" for floor in floors)]
    rows = []
    for name in result.rounds:
        parts = [_spread(result.part(name, floor)) for floor in floors]
        rows.append([name, _spread(result.spread(name, "us")), _median(result.spread(name, "per_s")), *parts])
    return table(header, rows)


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
    rows = []
    for name in result.rounds:
        size = result.spread(name, "bytes")
        rows.append(
            (
                name,
                _spread(result.spread(name, "us")),
                _median(result.spread(name, "first_us")),
                _median(result.spread(name, "last_us")),
                _spread(result.part(name, result.plan.floor)),
                "-" if size is None else f"{size.median / 1e6:,.2f}",
                "-" if size is None or not raw else _number(size.median / raw),
                _median(result.spread(name, "bytes_each")),
            )
        )
    return table(header, rows)


def _times_table(result: Result) -> str:
    return _column_table(result, "x floor", lambda name, us: result.times(name, us, result.plan.floor))


def _parts_table(result: Result) -> str:
    return _column_table(result, "of the floor's speed", lambda name, us: result.part(name, result.plan.floor, us))


def _column_table(result: Result, what: str, compared: Callable[[str, str], Spread | None]) -> str:
    header = ["system"]
    for column in result.plan.columns:
        header += [f"{column} us", what]
    rows = []
    for name in result.rounds:
        row = [name]
        for column in result.plan.columns:
            us = f"{column}_us"
            row += [_median(result.spread(name, us)), _spread(compared(name, us))]
        rows.append(row)
    return table(header, rows)


def _beside_table(result: Result) -> str:
    """What everything takes; below it, how many times as long one takes as another."""
    columns = result.plan.columns
    grows = any("growth" in found for rounds in result.rounds.values() for found in rounds)
    rows = []
    for name in result.rounds:
        row = [name, *(_spread(result.spread(name, f"{column}_us")) for column in columns)]
        rows.append([*row, _spread(result.spread(name, "growth"))] if grows else row)
    took = table(["system", *(f"{column} us" for column in columns), *(["last / first"] if grows else [])], rows)
    ratios = [
        [f"{one} / {other}", *(_spread(result.times(one, f"{column}_us", other)) for column in columns)]
        for one, other in result.plan.compared
        if one in result.rounds and other in result.rounds
    ]
    return f"{took}\n\n{table(['times', *columns], ratios)}"


def _bytes_table(result: Result) -> str:
    """Bytes on disk, as they are and without what an empty store takes."""
    raw = message_bytes(result.plan.total)
    rows = []
    for name in result.rounds:
        row = [name]
        for number in ("bytes", "grown_bytes", "block_bytes"):
            found = result.spread(name, number)
            shown = ["-", "-"] if found is None else [f"{found.median / 1e6:,.2f}", _number(found.median / raw)]
            row += shown
        rows.append(row)
    header = ("system", "MB", "x messages", "MB without the empty store", "x messages", "MB in blocks", "x messages")
    return table(header, rows)


_TABLES: Final[dict[str, Callable[[Result], str]]] = {
    "speed": _speed_table,
    "turns": _turns_table,
    "times": _times_table,
    "parts": _parts_table,
    "beside": _beside_table,
    "bytes": _bytes_table,
}


def target_table(results: Mapping[str, Result]) -> str:
    """Every target, what was found, and the verdict."""
    rows = []
    for target, found in judged(results):
        wanted = f"{'<=' if target.most else '>='} {target.bound:g}"
        verdict = target.verdict(found) if found else "not measured"
        rows.append((f"{target.workload}: {target.what}", wanted, _spread(found), verdict))
    return table(("target", "wanted", "found", "verdict"), rows)

"""The tables of the adapters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Final

from bench.adapters.pairs import DOUBLE, FRAMEWORKS, GROWTH, RESUME, RESUME_S_MAX, Pair
from bench.adapters.play import Found
from bench.results import Spread

Results = Mapping[str, Mapping[str, Sequence[Found]]]
"""By adapter and storage, what each round gave."""
_TIMES: Final = ("no times", "once", "twice")


def growth_table(results: Results) -> str:
    header = "| framework | rounds | its own storage | KiB | s | on Holdfast | KiB | s | bytes, times | time, times |"
    return _table(header, GROWTH, results, _growth_row)


def double_table(results: Results) -> str:
    header = (
        "| framework | rounds | its own storage | paid | two processes got | on Holdfast | paid | two processes got |"
    )
    return _table(header, DOUBLE, results, _double_row)


def resume_table(results: Results) -> str:
    each = "s | s of CPU | KiB"
    header = f"| framework | rounds | its own storage | {each} | on Holdfast | {each} | time, times | target |"
    return _table(header, RESUME, results, _resume_row)


def _table(header: str, pairs: Sequence[Pair], results: Results, row: Callable[[Pair, Results], Sequence[str]]) -> str:
    measured = [pair for pair in pairs if set(pair.ways()) <= set(results.get(pair.adapter, ()))]
    lines = [header, "|---" * (header.count("|") - 1) + "|"]
    for pair in measured:
        found = results[pair.adapter][pair.ours]
        framework = FRAMEWORKS[pair.adapter]
        name = f"{framework.title} {found[0]['version']}"
        lines.append(f"| {' | '.join((name, str(len(found)), *row(pair, results)))} |")
    return "\n".join(lines)


def _growth_row(pair: Pair, results: Results) -> Sequence[str]:
    theirs, ours = _both(pair, results)
    mine = (f"`{pair.ours}`", _kib(ours), _seconds(ours))
    if not theirs:
        return (FRAMEWORKS[pair.adapter].missing, "-", "-", *mine, "-", "-")
    return (
        f"`{pair.theirs}`",
        _kib(theirs),
        _seconds(theirs),
        *mine,
        _ratio(theirs, ours, "bytes"),
        _ratio(theirs, ours, "seconds"),
    )


def _double_row(pair: Pair, results: Results) -> Sequence[str]:
    theirs, ours = _both(pair, results)
    own = (f"`{pair.theirs}`", _paid(theirs), _outcomes(theirs)) if theirs else ("none", "-", "-")
    return (*own, f"`{pair.ours}`", _paid(ours), _outcomes(ours))


def _resume_row(pair: Pair, results: Results) -> Sequence[str]:
    theirs, ours = _both(pair, results)
    limit = RESUME_S_MAX.get(pair.ours)
    slowest = max(one["seconds"] for one in ours)
    verdict = (
        "none" if limit is None else f"<= {limit:g} s: {'met' if slowest <= limit else 'MISSED'} in the slowest round"
    )
    return (
        f"`{pair.theirs}`",
        _spread([one["seconds"] for one in theirs]),
        _spread([one["cpu_seconds"] for one in theirs]),
        _kib(theirs),
        f"`{pair.ours}`",
        _spread([one["seconds"] for one in ours]),
        _spread([one["cpu_seconds"] for one in ours]),
        _kib(ours),
        _ratio(theirs, ours, "seconds"),
        verdict,
    )


def _both(pair: Pair, results: Results) -> tuple[Sequence[Found], Sequence[Found]]:
    found = results[pair.adapter]
    return found.get(pair.theirs, ()), found[pair.ours]


def _kib(found: Sequence[Found]) -> str:
    return f"{median(one['bytes'] for one in found) / 1024:,.0f}"


def _seconds(found: Sequence[Found]) -> str:
    return f"{median(one['seconds'] for one in found):.1f}"


def _ratio(theirs: Sequence[Found], ours: Sequence[Found], number: str) -> str:
    return _spread([one[number] / other[number] for one, other in zip(theirs, ours, strict=True)])


def _spread(values: Sequence[float]) -> str:
    found = Spread.of(values)
    return f"{found.median:.2f} [{found.least:.2f}..{found.greatest:.2f}]"


def _paid(found: Sequence[Found]) -> str:
    counts = Counter(one["payments"] for one in found)
    return ", ".join(f"{_TIMES[count]} in {rounds} of {len(found)}" for count, rounds in sorted(counts.items()))


def _outcomes(found: Sequence[Found]) -> str:
    names = Counter(" and ".join(one["outcomes"]).replace("continued and continued", "both continued") for one in found)
    return "; ".join(names) if len(names) == 1 else "; ".join(f"{name} ({count})" for name, count in names.items())

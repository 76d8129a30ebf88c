"""The picture: what a turn costs and what lies on disk, as a conversation grows to 1,000 turns."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Final

from bench.results import Point, Result

_STYLES: Final = {
    "floor append": ("black", ":"),
    "holdfast": ("tab:blue", "-"),
    "langgraph": ("tab:red", "-"),
    "langgraph delta": ("tab:orange", "-"),
    "json file": ("tab:green", "-"),
    "dbos": ("tab:purple", "-"),
}


def draw(result: Result, path: Path) -> None:
    """Draw the curves of `turns`."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (time, size) = pyplot.subplots(1, 2, figsize=(12, 5), layout="constrained")
    for name in sorted(result.rounds, key=lambda name: result.curves[name][0][-1].us, reverse=True):
        curve = [_middle(points) for points in zip(*result.curves[name], strict=True)]
        color, line = _STYLES.get(name, ("gray", "--"))
        turns = [point.turn for point in curve]
        style = {"color": color, "linestyle": line, "linewidth": 2.4 if name == "holdfast" else 1.6}
        time.plot(turns, [point.us / 1000 for point in curve], label=name, **style)
        size.plot(turns, [point.size / 1e6 for point in curve], label=name, **style)
    for axes, label in ((time, "milliseconds per turn"), (size, "megabytes in the database")):
        axes.set_yscale("log")
        axes.set_xlabel("turn (each adds a message of 1 KB and saves)")
        axes.set_ylabel(label)
        axes.grid(visible=True, which="both", alpha=0.25)
    time.set_title("Time of a save")
    size.set_title("Space for all checkpoints (json file: the newest only)")
    figure.legend(*time.get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=9)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _middle(points: tuple[Point, ...]) -> Point:
    return Point(points[0].turn, median(p.us for p in points), int(median(p.size for p in points)))

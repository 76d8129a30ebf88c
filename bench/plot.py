"""The pictures: what a turn costs and what lies on disk, as a conversation grows.

Their background is white and not transparent, so that they can be read on a dark page as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.results import Point, Result
from bench.saver_plans import message_bytes

_STYLES: Final = {
    "floor append": ("black", ":"),
    "holdfast": ("tab:blue", "-"),
    "langgraph": ("tab:red", "-"),
    "langgraph delta": ("tab:orange", "-"),
    "json file": ("tab:green", "-"),
    "dbos": ("tab:purple", "-"),
}
_SAVERS: Final = {"holdfast": ("Holdfast", "tab:blue"), "langgraph": ("LangGraph", "tab:red")}
SAVER_CURVES: Final = {"saver_turns": ("SQLite", "-"), "pg_saver_turns": ("PostgreSQL", "--")}
_SAVER_CHANNELS: Final = {"": ("add_messages", 2.4, 1.0), " delta": ("DeltaChannel", 1.4, 0.7)}
"""What a channel is called, and how wide and how strong its line is."""


def _two(pyplot: Any) -> tuple[Any, Any, Any]:
    figure, (time, size) = pyplot.subplots(1, 2, figsize=(12, 5), layout="constrained", facecolor="white")
    return figure, time, size


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw(result: Result, path: Path) -> None:
    """Draw the curves of `turns`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pyplot = _pyplot()
    figure, time, size = _two(pyplot)
    for name in sorted(result.rounds, key=lambda name: result.curves[name][0][-1].us, reverse=True):
        curve = _curve(result, name)
        color, line = _STYLES.get(name, ("gray", "--"))
        turns = [point.turn for point in curve]
        style = {"color": color, "linestyle": line, "linewidth": 2.4 if name == "holdfast" else 1.6}
        time.plot(turns, [point.us / 1000 for point in curve], label=name, **style)
        size.plot(turns, [point.size / 1e6 for point in curve], label=name, **style)
    _label(time, size, "turn (each adds a message of 1 KB and saves)")
    time.set_title("Time of a save")
    size.set_title("Space for all checkpoints (json file: the newest only)")
    figure.legend(*time.get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=9)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def draw_saver(results: Mapping[str, Result], path: Path) -> bool:
    """Draw the curves of `saver_turns`, as far as they were measured; whether there was anything to draw."""
    found = {name: results[name] for name in SAVER_CURVES if name in results and results[name].rounds}
    if not found:
        return False
    pyplot = _pyplot()
    figure, time, size = _two(pyplot)
    if "floor in memory" in (first := next(iter(found.values()))).rounds:
        curve = _curve(first, "floor in memory")
        style = {"color": "black", "linestyle": ":", "linewidth": 1.6}
        time.plot(_turns(curve), [p.us / 1000 for p in curve], label="LangGraph in memory", **style)
    for workload, result in found.items():
        for saver in _SAVERS:
            for channel in _SAVER_CHANNELS:
                if saver + channel in result.rounds:
                    _draw_saver_line(time, size, result, workload, saver, channel)
    turns = _turns(next(_curve(first, name) for name in first.rounds))
    size.plot(turns, [message_bytes(turn) / 1e6 for turn in turns], color="black", linestyle=":", linewidth=1.6)
    below = {"xytext": (0, -16), "textcoords": "offset points", "ha": "right", "va": "top", "fontsize": 9}
    size.annotate("the messages themselves", (turns[-1], message_bytes(turns[-1]) / 1e6), **below)
    _label(time, size, "turn (each is one invoke: 1 KB in, 1 KB out)")
    time.set_yscale("linear")  # it grows by a constant for each turn, and a straight line shows that
    time.set_ylim(bottom=0)
    time.set_title('Time of a turn, durability="sync"')
    size.set_title("Space for all checkpoints")
    figure.legend(*time.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True


def _draw_saver_line(time: Any, size: Any, result: Result, workload: str, saver: str, channel: str) -> None:
    (who, color), (store, line), (kept, width, strength) = (
        _SAVERS[saver],
        SAVER_CURVES[workload],
        _SAVER_CHANNELS[channel],
    )
    curve = _curve(result, saver + channel)
    style = {"color": color, "linestyle": line, "linewidth": width, "alpha": strength}
    time.plot(_turns(curve), [p.us / 1000 for p in curve], label=f"{who}, {store}, {kept}", **style)
    size.plot(_turns(curve), [p.size / 1e6 for p in curve], **style)


def _label(time: Any, size: Any, turn: str) -> None:
    for axes, label in ((time, "milliseconds per turn"), (size, "megabytes in the database")):
        axes.set_yscale("log")
        axes.set_xlabel(turn)
        axes.set_ylabel(label)
        axes.grid(visible=True, which="both", alpha=0.25)


def _turns(curve: list[Point]) -> list[int]:
    return [point.turn for point in curve]


def _curve(result: Result, name: str) -> list[Point]:
    return [_middle(points) for points in zip(*result.curves[name], strict=True)]


def _middle(points: tuple[Point, ...]) -> Point:
    return Point(points[0].turn, median(p.us for p in points), int(median(p.size for p in points)))

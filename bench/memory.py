"""What loading a large state and waiting runs take in memory, each measured in a process of its own.

Prints JSON. The peak of a load is what the resident set of a fresh process grows by, at most, while it loads, as times
the encoded state; the floors decode one file of the same messages. Waiting runs are counted in a worker: what its
resident set grows by while it pauses more of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import ormsgpack

import holdfast
from bench import data
from bench.table import table

_LOADS: Final = ("floor msgpack", "floor json", "holdfast", "holdfast tracked")
_SCALE_QUICK: Final = 20


def text(directory: Path, *, quick: bool) -> str:
    """The tables."""
    scale = _SCALE_QUICK if quick else 1
    messages, runs = 100_000 // scale, 10_000 // scale
    rows = []
    with tempfile.TemporaryDirectory(dir=directory) as place:
        size = _measured(place, "write", messages)["bytes"]
        for name in _LOADS:
            peak = _measured(place, name, messages)["peak_bytes"]
            rows.append((name, f"{peak / 1e6:,.0f}", f"{peak / size:.2f}"))
        waiting = _measured(place, "wait", runs)
    loads = table(("loading", "MB at most", "x the state"), rows)
    each = waiting["grown_bytes"] / runs
    return (
        f"{loads}\n\nThe state has {size / 1e6:,.0f} MB. Wanted of Holdfast: at most 3 times its size.\n\n"
        f"{runs:,} runs that pause in a worker and wait there take {waiting['grown_bytes'] / 1e6:,.1f} MB, "
        f"{each:,.0f} bytes each."
    )


def _measured(place: str, what: str, count: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.memory", place, what, str(count)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def _write(place: Path, count: int) -> dict[str, int]:
    state = {"messages": list(data.messages(count))}
    packed = ormsgpack.packb(state)
    (place / "state.msgpack").write_bytes(packed)
    (place / "state.json").write_bytes(msgspec.json.encode(state))
    with holdfast.open(f"sqlite:{place / 'runs.db'}") as store:
        chat = store.tracked(data.RUN)
        chat.state = state
        del state
        chat.save()
    return {"bytes": len(packed)}


def _load(place: Path, name: str) -> dict[str, int]:
    with holdfast.open(f"sqlite:{place / 'runs.db'}") as store:
        store.load("another")  # what the first read of a store loads is not part of the state
        loads: dict[str, Callable[[], Any]] = {
            "floor msgpack": lambda: ormsgpack.unpackb((place / "state.msgpack").read_bytes()),
            "floor json": lambda: msgspec.json.decode((place / "state.json").read_bytes()),
            "holdfast": lambda: store.load(data.RUN),
            "holdfast tracked": lambda: store.tracked(data.RUN),
        }
        Path("/proc/self/clear_refs").write_text("5", "ascii")  # the peak begins here
        before = _resident_bytes("VmRSS")
        loaded = loads[name]()
        assert loaded is not None
        return {"peak_bytes": _resident_bytes("VmHWM") - before}


def _wait(place: Path, count: int) -> dict[str, int]:
    with holdfast.App(f"sqlite:{place / 'waiting.db'}") as app:

        @app.workflow
        def approval(run: holdfast.Run, number: int) -> bool:
            return run.ask(f"Ship {number}?", bool)

        def pause(first: int, runs: int) -> int:
            for number in range(first, first + runs):
                app.start(approval, number, enqueue=True)
            app.worker().run(until_idle=True)
            return _resident_bytes("VmRSS")

        before = pause(0, max(100, count // 10))
        grown = pause(count, count) - before
        assert app.store.counts().runs == {"waiting": count + max(100, count // 10)}
    return {"grown_bytes": grown}


def _resident_bytes(what: str) -> int:
    """The resident set of this process, now (VmRSS) or at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{what}:"))


def main(place: Path, what: str, count: int) -> dict[str, int]:
    """Measure one thing."""
    if what == "write":
        return _write(place, count)
    return _wait(place, count) if what == "wait" else _load(place, what)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))

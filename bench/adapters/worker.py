"""A process that does one piece of work in the environment of a framework, when it is told to begin.

    python -m bench.adapters.worker ADAPTER WAY grow|pause|resume PLACE SEED COUNT

It prints "ready" when everything is imported, begins when a line arrives, and prints how it went as JSON. `grow` has
done a little of the same work before, so that its time does not contain late imports.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from bench.adapters.material import make_turns
from bench.adapters.pairs import FRAMEWORKS


def main(adapter: str, way: str, verb: str, place: str, seed: str, count: str) -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # frameworks print
    do = getattr(import_module(f"bench.adapters.frameworks.{adapter}"), verb)
    turns = make_turns(seed, int(count))
    if verb == "grow":
        warm = Path(place, "warm")
        warm.mkdir()
        do(way, warm, turns[:2])
        shutil.rmtree(warm)
    answers.write("ready\n")
    answers.flush()
    sys.stdin.readline()
    found: dict[str, Any] = {"version": metadata.version(FRAMEWORKS[adapter].package), "outcome": "continued"}
    began, cpu = time.perf_counter(), time.process_time()
    try:
        do(way, Path(place), turns)
    except Exception as error:
        found |= {"outcome": type(error).__name__, "text": str(error)[:500]}
    found |= {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    answers.write(json.dumps(found) + "\n")
    answers.flush()
    os._exit(0)  # a framework may have left threads behind


if __name__ == "__main__":
    main(*sys.argv[1:])

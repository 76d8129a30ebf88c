"""`python -m bench`: run workloads, print tables, write JSON lines, and fill the marked places of a document."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from time import monotonic
from typing import Final

from tests.store.postgres.server import Server

from bench import imports, memory, syncs, trips
from bench.documents import Document, facts_line
from bench.durations import expected_s
from bench.facts import facts, is_disk
from bench.plans import GROUPS, NEED_POSTGRES, PLANS, quick
from bench.plot import SAVER_CURVES, draw, draw_saver
from bench.results import Result
from bench.rounds import Stage
from bench.systems.databases import SERVER
from bench.table import table, target_table, workload_body
from bench.targets import judged

MEMORY: Final = Path("/dev/shm")
COUNTED: Final = ("syncs", "trips", "memory", "import")
WORKLOADS: Final = (*GROUPS, *COUNTED)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Holdfast beside its peers and its floors.")
    parser.add_argument("--only", default=",".join(WORKLOADS), help=f"workloads, of {', '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count, for each workload (default 5)")
    parser.add_argument("--minutes", type=float, default=60, help="after so many, stalled rounds are not repeated")
    parser.add_argument("--quick", action="store_true", help="a few short rounds, to see that everything runs")
    parser.add_argument("--out", type=Path, default=Path(".scratch/bench"), help="where results go")
    parser.add_argument("--dir", type=Path, help="where databases are made: on a real disk (default: --out)")
    parser.add_argument("--docs", type=Path, help="a document whose marked places get the tables and pictures")
    given = parser.parse_args()
    given.only = given.only.split(",")
    if unknown := sorted(set(given.only) - set(WORKLOADS)):
        parser.error(f"no such workload: {', '.join(unknown)}")
    if given.docs and given.quick:
        parser.error("a quick run says too little for a document")
    given.rounds = min(given.rounds, 2) if given.quick else given.rounds
    given.dir = given.dir or given.out
    given.out.mkdir(parents=True, exist_ok=True)
    given.dir.mkdir(parents=True, exist_ok=True)
    if not is_disk(given.dir):
        parser.error(f"{given.dir} lies in memory; durable workloads need a real disk")
    return given


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Session:
    """One run of the program: a workload that fails does not end it, and what was measured is written at once."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._report = (given.out / "report.txt").open("w", encoding="utf-8")
        self._lines = (given.out / "results.jsonl").open("w", encoding="utf-8")
        self._document = Document(given.docs) if given.docs else None
        self._machine = facts(given.dir)
        self._server: Server | None = None
        self._results: dict[str, Result] = {}
        self._took_s: dict[str, float] = {}
        self._failed: dict[str, str] = {}
        self._left = [name for group in WORKLOADS if group in given.only for name in GROUPS.get(group, (group,))]
        self._end = monotonic() + given.minutes * 60

    def say(self, text: str) -> None:
        """Print it, and keep it."""
        print(text + "\n", flush=True)
        self._report.write(text + "\n\n")
        self._report.flush()

    def run(self) -> int:
        """Measure everything; the number of workloads and peers that failed."""
        self.say(json.dumps(self._machine, indent=2))
        self.say(f"expected to take {self._expected_s(self._left) / 60:.0f} of {self._given.minutes:g} minutes")
        self._put({"facts": facts_line(self._machine)})
        try:
            while self._left:
                self._one(self._left[0])
                del self._left[0]
        finally:
            if self._server is not None:
                self._server.remove()
        for rows in judged(self._results, self._took_s).values():
            self.say(f"## targets\n\n{target_table(rows)}")
        self.say(f"## durations\n\n{self._durations()}")
        peers = [f"{name}: {peer}: {why}" for name, one in self._results.items() for peer, why in one.failures.items()]
        problems = [*(f"{name}: {why}" for name, why in self._failed.items()), *peers]
        self.say("\n".join(["## failures", "", *problems]) if problems else "nothing failed")
        return len(problems)

    def _expected_s(self, names: list[str]) -> float:
        return sum(expected_s(name, self._given.rounds) for name in names)

    def _one(self, name: str) -> None:
        """Measure one workload, and write what it gave."""
        start = monotonic()
        try:
            texts = self._measured(name)
        except Exception as error:
            traceback.print_exc()
            self._failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            texts = {name: f"This workload failed: {self._failed[name]}"}
        self._took_s[name] = monotonic() - start
        self.say(f"## {name}: {PLANS[name].title}" if name in PLANS else f"## {name}")
        for text in texts.values():
            self.say(text)
        self.say(f"{name} took {self._took_s[name]:.0f} s, expected {expected_s(name, self._given.rounds):.0f} s")
        self._put(texts)
        if self._document:
            self._document.put_targets(judged(self._results, self._took_s))

    def _put(self, texts: dict[str, str]) -> None:
        if self._document:
            self._document.put(texts)

    def _measured(self, name: str) -> dict[str, str]:
        """The texts of a workload, by their places."""
        match name:
            case "syncs":
                return {name: syncs.text(self._given.dir)}
            case "trips":
                self._serve()
                return {name: trips.text()}
            case "memory":
                return {name: memory.text(self._given.dir, quick=self._given.quick)}
            case "import":
                found = imports.measure(3 if self._given.quick else max(15, self._given.rounds), tell)
                return {name: imports.text(found)}
            case _:
                self._play(name)
                return {name: workload_body(self._results[name]), **self._pictures(name)}

    def _play(self, name: str) -> None:
        if name in NEED_POSTGRES:
            self._serve()
        given = self._given
        plan = quick(PLANS[name]) if given.quick else PLANS[name]
        place = Path(tempfile.mkdtemp(prefix="bench-", dir=MEMORY if plan.memory else given.dir))
        spare_s = self._end - monotonic() - self._expected_s(self._left)
        try:
            stage = Stage(plan, place, given.out, self._lines, self._machine)
            self._results[name] = stage.play(given.rounds, tell, spare_s=spare_s)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _serve(self) -> None:
        """Start a PostgreSQL with its own defaults, once."""
        if self._server is None:
            self._server = Server()
            os.environ[SERVER] = self._server.create().url(host="127.0.0.1")

    def _pictures(self, name: str) -> dict[str, str]:
        """Draw the picture with this workload's curves beside the document; where it belongs in there."""
        folder = (self._document.path.parent if self._document else self._given.out) / "images"
        if name == "turns" and self._results[name].rounds:
            draw(self._results[name], folder / "turns.png")
            return {"turns picture": "![Time and space over 1,000 turns](images/turns.png)"}
        if name in SAVER_CURVES and draw_saver(self._results, folder / "saver.png"):
            alt = "Time per turn and space on disk over a chat, LangGraph's savers and Holdfast's"
            return {"saver picture": f"![{alt}](images/saver.png)"}
        return {}

    def _durations(self) -> str:
        rows = [
            (name, f"{expected_s(name, self._given.rounds):.0f}", f"{seconds:.0f}")
            for name, seconds in self._took_s.items()
        ]
        total = (self._expected_s(list(self._took_s)), sum(self._took_s.values()))
        return table(("workload", "expected s", "took s"), [*rows, ("all", *(f"{one:.0f}" for one in total))])


if __name__ == "__main__":
    sys.exit(min(1, Session(arguments()).run()))

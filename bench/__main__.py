"""`python -m bench`: run workloads, print tables, write JSON lines and a picture."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.store.postgres.server import Server

from bench import documents, imports, syncs, trips
from bench.facts import facts, is_disk
from bench.plans import GROUPS, NEED_POSTGRES, PLANS, quick
from bench.plot import draw, draw_saver
from bench.results import Result
from bench.rounds import Stage
from bench.systems.databases import SERVER
from bench.table import table, target_table, workload_table

MEMORY: Final = Path("/dev/shm")
WORKLOADS: Final = (*GROUPS, "import", "syncs")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Holdfast beside its peers and its floors.")
    parser.add_argument("--only", default=",".join(WORKLOADS), help=f"workloads, of {', '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count, for each workload (default 5)")
    parser.add_argument("--quick", action="store_true", help="a few short rounds, to see that everything runs")
    parser.add_argument("--out", type=Path, default=Path(".scratch/bench"), help="where results go")
    parser.add_argument("--dir", type=Path, help="where databases are made: on a real disk (default: --out)")
    parser.add_argument("--docs", type=Path, help="a document whose marked places get the saver's tables and picture")
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


class Report:
    """Says things on standard output and keeps them in a file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def say(self, text: str) -> None:
        print(text + "\n", flush=True)
        self._file.write(text + "\n\n")
        self._file.flush()


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def play(given: argparse.Namespace, report: Report, machine: dict[str, Any]) -> dict[str, Result]:
    """Play the workloads that go through workers."""
    report.say(json.dumps(machine, indent=2))
    results: dict[str, Result] = {}
    with (given.out / "results.jsonl").open("w", encoding="utf-8") as lines:
        for name in (name for group in GROUPS if group in given.only for name in GROUPS[group]):
            plan = quick(PLANS[name]) if given.quick else PLANS[name]
            if plan.memory and not MEMORY.is_dir():
                report.say(f"## {name}: left out, there is no {MEMORY}")
                continue
            place = Path(tempfile.mkdtemp(prefix="bench-", dir=MEMORY if plan.memory else given.dir))
            try:
                results[name] = Stage(plan, place, given.out, lines, machine).play(given.rounds, tell)
            finally:
                shutil.rmtree(place, ignore_errors=True)
            report.say(workload_table(results[name]))
    return results


def count_syncs(given: argparse.Namespace, report: Report) -> None:
    found = syncs.counted(given.dir)
    report.say(
        f"## syncs\n\n{found['syncs_per_save']:.4f} syncs per save of Holdfast over {found['saves']} saves. Saves by "
        f"their number of syncs: {json.dumps(found['saves_by_syncs'])}; more than one is a WAL checkpoint, or the "
        "first save after one."
    )


def take_imports(given: argparse.Namespace, report: Report) -> None:
    found = imports.measure(3 if given.quick else max(15, given.rounds), tell)
    times = table(("import", "ms in all", "ms over bare", "x floor"), imports.rows(found))
    counts = [(name, str(one.packages), f"{one.megabytes:.1f}", one.how) for name, one in found.installed.items()]
    sizes = table(("library", "packages", "MB", "how counted"), counts)
    report.say(f"## import\n\n{times}\n\n{sizes}\n\n{imports.verdict(found)}")


@contextlib.contextmanager
def server(given: argparse.Namespace) -> Iterator[None]:
    """A PostgreSQL with its own defaults, if any workload needs one."""
    if not set(given.only) & NEED_POSTGRES:
        yield
        return
    made = Server()
    try:
        os.environ[SERVER] = made.create().url(host="127.0.0.1")
        yield
    finally:
        made.remove()


def count_trips(report: Report) -> None:
    statements, round_trips = trips.counted()
    report.say(f"## trips\n\nPostgreSQL: {statements:.2f} statements and {round_trips:.2f} round trips per save.")


def main() -> None:
    given = arguments()
    report = Report(given.out / "report.txt")
    machine = facts(given.dir)
    with server(given):
        results = play(given, report, machine)
        if "pg_save" in given.only:
            count_trips(report)
    if "syncs" in given.only:
        count_syncs(given, report)
    if "import" in given.only:
        take_imports(given, report)
    if results.get("turns") and results["turns"].rounds:
        draw(results["turns"], given.out / "turns.png")
    draw_saver(results, given.out / "saver.png")
    if given.docs:
        documents.write(given.docs, results, machine)
    if results:
        title = "## targets" + (" (a quick run: these verdicts mean little)" if given.quick else "")
        report.say(f"{title}\n\n{target_table(results)}")


if __name__ == "__main__":
    main()

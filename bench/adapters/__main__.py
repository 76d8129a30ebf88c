"""`make bench-adapters ARGS="--rounds 5 burr adk"`: the storages of frameworks beside ours."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from scripts.test_adapters import adapters, prepare

from bench.adapters.pairs import DOUBLE, FRAMEWORKS, GROWTH, RESUME
from bench.adapters.play import Found, Player, rounds_of
from bench.adapters.tables import double_table, growth_table, resume_table
from bench.documents import filled
from bench.facts import facts, is_disk

KINDS: Final = {"double": DOUBLE, "resume": RESUME, "growth": GROWTH}
TABLES: Final = {"double": double_table, "resume": resume_table, "growth": growth_table}


def measure(player: Player, kind: str, rounds: int, turns: int, out: Path) -> None:
    """Play one kind of work with the storages of a framework; each result is a line of a file."""
    play: dict[str, Callable[[str, str], Found]] = {
        "double": player.resume_twice,
        "resume": lambda way, _: player.resume(way, turns),
        "growth": lambda way, seed: player.grow(way, seed, turns),
    }
    pairs = [pair for pair in KINDS[kind] if pair.adapter == player.adapter]
    if not pairs:
        return
    with (out / f"{kind}-{player.adapter}.jsonl").open("w", encoding="utf-8") as lines:
        for number, ways in rounds_of(pairs, rounds):
            for way in ways:
                line = json.dumps({"round": number, "way": way, **play[kind](way, f"{kind} {number}")})
                lines.write(line + "\n")
                lines.flush()
                print(kind, player.adapter, line, file=sys.stderr, flush=True)


def read_results(kind: str, out: Path) -> dict[str, dict[str, list[Found]]]:
    """The newest results of each framework, those of complete rounds."""
    results: dict[str, dict[str, list[Found]]] = {}
    for adapter in FRAMEWORKS:
        path = out / f"{kind}-{adapter}.jsonl"
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
        ways = {line["way"] for line in lines}
        counts = Counter(line["round"] for line in lines)
        for line in lines:
            if counts[line["round"]] == len(ways):
                results.setdefault(adapter, {}).setdefault(line["way"], []).append(line)
    for found in results.values():
        for rounds in found.values():
            rounds.sort(key=lambda line: int(line["round"]))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.adapters", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FRAMEWORKS)}; all by default")
    parser.add_argument("--only", default=",".join(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--rounds", type=int, default=5, help="with 0 only the tables are written, from what was found")
    parser.add_argument("--growth-rounds", type=int, default=3, help="at most so many of them for growth: bytes repeat")
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path(".scratch/bench"), help="where results and databases go")
    parser.add_argument("--docs", type=Path, help="a document whose marked places get the tables")
    given = parser.parse_args()
    if unknown := set(given.names) - set(FRAMEWORKS):
        parser.error(f"no such framework: {', '.join(sorted(unknown))}; there are {', '.join(FRAMEWORKS)}")
    given.out.mkdir(parents=True, exist_ok=True)
    if not is_disk(given.out):
        parser.error(f"{given.out} lies in memory; durable work needs a real disk")
    known, out, load = adapters(), given.out.resolve() / "adapters", os.getloadavg()[0]
    out.mkdir(exist_ok=True)
    names = (given.names or FRAMEWORKS) if given.rounds else ()
    failed = []
    pythons = {name: prepare(name, known[name], oldest=False) for name in names}
    for kind in given.only.split(","):
        rounds = min(given.rounds, given.growth_rounds) if kind == "growth" else given.rounds
        for name, python in pythons.items():
            began = time.monotonic()
            try:
                measure(Player(name, python, out / f"{kind}-{name}"), kind, rounds, given.turns, out)
            except Exception as error:  # the others are measured all the same
                failed.append(f"{kind} {name}: {error!r}")
            print(f"--- {kind} {name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    here = facts(out)
    machine = (
        f"Measured {datetime.now(UTC):%Y-%m-%d} at {here['revision']}: {here['cpus']} processors ({here['cpu']}), "
        f"{here['filesystem']}, Python {here['python']}, a load of {load:.1f} at the beginning."
    )
    texts = {f"adapters {kind}": make(found) for kind, make in TABLES.items() if (found := read_results(kind, out))}
    texts["adapters facts"] = machine
    print("\n\n".join(texts.values()))
    if given.docs is not None:
        given.docs.write_text(filled(given.docs.read_text("utf-8"), texts), "utf-8")
    if failed:
        sys.exit("failed: " + "; ".join(failed))


if __name__ == "__main__":
    main()

"""The whole campaign: `python -m tests.faults KILLS=2000 CUTS=100000 …`, every argument optional.

    KILLS      processes killed                       SYNCS   syncs that fail, each followed by cuts
    CUTS       distinct images after a power cut      FULL    disks filled
    FAULTS     failing calls, 0 means every one       FORKS   trials with a fork
    CLAIM_S    seconds of contended claims            SEED    makes it repeatable
    WRITERS_S  seconds of eight writing processes     ONLY    names of harnesses, with commas between
    RACES      races of prune and fork with writers   MACHINE random sequences of verbs, against a model
    DIR_CUTS   distinct trees of a directory after a power cut or kill
    DIR_SYNCS  syncs of a directory that fail, each followed by cuts
    DIR_FAULTS failing calls of a directory's files, 0 means every one, and full disks
    PG_S       seconds of crashing servers, cut connections and killed clients on PostgreSQL
    ENGINE_KILLS   processes killed at the commands of workflows and rollbacks, 0 means once at every command
    ENGINE_STOPS   processes stopped there for longer than their lease, 0 means one at every command
    ENGINE_ANSWERS gates that eight processes answer at once
    ENGINE_RUNS    runs that four workers move on, on each store, while workers are killed
    FORMATS_ROUNDS rounds in which four processes claim one CAR workflow
    FORMATS_BESIDE rounds in which CAR itself claims beside ours
    FORMATS_CUTS   distinct trees of the five systems' directories after a power cut or kill
    ATTACK         random workflows under random actions and crashes, on all stores

Prints one line of figures for each harness and exits with 1 if anything is wrong or a mutant survives.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from typing import Final

from tests.faults.core.alone import ROOT
from tests.faults.core.campaign import HARNESSES, Harness

_AMOUNTS: Final[dict[str, tuple[str, float]]] = {
    "KILLS": ("kills", 2000),
    "CUTS": ("cuts", 100_000),
    "SYNCS": ("syncs", 130),
    "FAULTS": ("faults", 0),
    "FULL": ("full", 30),
    "CLAIM_S": ("claims", 60),
    "WRITERS_S": ("writers", 60),
    "FORKS": ("forks", 90),
    "RACES": ("races", 200),
    "DIR_CUTS": ("dir_crashes", 12_000),
    "DIR_SYNCS": ("dir_syncs", 80),
    "DIR_FAULTS": ("dir_faults", 0),
    "PG_S": ("pg_chaos", 120),
    "ENGINE_KILLS": ("engine_kills", 0),
    "ENGINE_STOPS": ("engine_stops", 0),
    "ENGINE_ANSWERS": ("engine_answers", 400),
    "ENGINE_RUNS": ("engine_workers", 2000),
    "FORMATS_ROUNDS": ("formats_claims", 10_000),
    "FORMATS_BESIDE": ("formats_beside", 10_000),
    "FORMATS_CUTS": ("formats_cuts", 20_000),
    "ATTACK": ("attack", 20_000),
}


_MACHINE: Final = 1000
_MACHINES: Final = (
    "tests/store/test_stateful.py",
    "tests/store/directory/test_directory_stateful.py",
    "tests/store/postgres/test_postgres_stateful.py",
)


def main(arguments: list[str]) -> int:
    """Run what the arguments ask for."""
    given = dict(argument.partition("=")[::2] for argument in arguments)
    unknown = given.keys() - {*_AMOUNTS, "SEED", "ONLY", "MACHINE"}
    only = given.get("ONLY", "").split(",") if given.get("ONLY") else [*HARNESSES, "machine"]
    unknown |= set(only) - {*HARNESSES, "machine"}
    if unknown:
        print(__doc__, "\nThere is no", ", ".join(sorted(unknown)))
        return 2
    seed = int(given.get("SEED") or random.SystemRandom().randrange(1_000_000))
    amounts = {name: float(given.get(key) or amount) for key, (name, amount) in _AMOUNTS.items()}
    print(f"seed {seed}", flush=True)
    wrong = 0
    for name in only:
        if name == "machine":
            wrong += _machine(int(given.get("MACHINE") or _MACHINE), seed)
        else:
            wrong += _run(HARNESSES[name], amounts[name], seed)
    print("all is well" if not wrong else f"{wrong} harnesses found something wrong", f"(seed {seed})", flush=True)
    return 1 if wrong else 0


def _run(harness: Harness, amount: float, seed: int) -> bool:
    """Run a harness and its mutants; whether anything is wrong."""
    _progress(f"{harness.name} …")
    start = time.monotonic()
    whole = int(amount) if amount == int(amount) else amount
    figures = harness.run(whole, seed, timeout_s=24 * 3600)
    survivors = []
    for mutant in harness.mutants:
        _progress(f"{harness.name} against {mutant} …")
        caught, _found = harness.catches(mutant, seed)
        if not caught:
            survivors.append(mutant)
    count = len(harness.mutants)
    _progress("")
    print(
        f"{figures.line()}, mutants caught {count - len(survivors)}/{count}, {time.monotonic() - start:.0f} s",
        flush=True,
    )
    for problem in figures.problems:
        print(f"    {problem}")
    for mutant in survivors:
        print(f"    the mutant {mutant} was not caught")
    return bool(figures.problem_count or survivors)


def _machine(examples: int, seed: int) -> bool:
    """Run the state machine with so many random sequences on each store; whether it found anything."""
    _progress("machine …")
    start = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", f"--hypothesis-seed={seed}", *_MACHINES]
    environment = {**os.environ, "HOLDFAST_MACHINE_EXAMPLES": str(examples)}
    more = ["-o", "timeout=0"]
    ran = subprocess.run([*command, *more], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    _progress("")
    outcome = "differences from the model " + ("0" if ran.returncode == 0 else "found")
    print(f"{'machine':<28} sequences {examples:,} on each store, {outcome}, {time.monotonic() - start:.0f} s")
    if ran.returncode:
        print(ran.stdout[-4000:])
    return ran.returncode != 0


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Attack from the command line: `python -m tests.attack --seed 7 --count 100 --store sqlite`."""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
import time
from collections import Counter

from tests.attack.attack import Outcome, attack
from tests.attack.deployment import STORES, Scratch, scratch
from tests.attack.generator import FEATURES, Case, case_of
from tests.attack.shrink import shrunk

_HANG_S = 120


def main() -> int:
    """Run the cases the arguments ask for."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--store", default="memory", choices=[*STORES, "all"])
    parser.add_argument("--without", default="", help="features to leave out, with commas between: " + ", ".join(sorted(FEATURES)))
    parser.add_argument("--case", help="a case as JSON, as printed for a failure")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    parser.add_argument("--no-shrink", action="store_true")
    given = parser.parse_args()
    found: Counter[str] = Counter()
    start = time.monotonic()
    with scratch() as place:
        cases = [json.loads(given.case)] if given.case else _cases(given)
        for case in cases:
            faulthandler.dump_traceback_later(_HANG_S, exit=True)
            outcome = attack(case, place)
            if outcome.problems:
                found[outcome.problems[0][0]] += 1
                faulthandler.cancel_dump_traceback_later()
                report(case, outcome, place, shrink=not given.no_shrink)
                if not given.keep_going:
                    break
        faulthandler.cancel_dump_traceback_later()
    print(f"{len(cases)} cases, {time.monotonic() - start:.1f} s, problems: {dict(found) or 'none'}")
    return 1 if found else 0


def _cases(given: argparse.Namespace) -> list[Case]:
    stores = STORES if given.store == "all" else (given.store,)
    without = [name for name in given.without.split(",") if name]
    return [
        case_of(seed, store, without) for seed in range(given.seed, given.seed + given.count) for store in stores
    ]


def report(case: Case, outcome: Outcome, place: Scratch, *, shrink: bool) -> None:
    """Print a failure so that it can be repeated."""
    print(f"seed {case['seed']} on {case['store']}: python -m tests.attack --seed {case['seed']} --store {case['store']}")
    for kind, text in outcome.problems:
        print(f"    {kind}: {text}")
    if shrink:
        small, found = shrunk(case, outcome, place)
        print("  shrunk: " + "; ".join(f"{kind}: {text}" for kind, text in found.problems[:2]))
        for node in small["program"]:
            print(f"    node   {json.dumps(node)}")
        for action in found.settled:
            print(f"    action {json.dumps(action)}")
        print(f"  python -m tests.attack --case '{json.dumps(small)}'", flush=True)


if __name__ == "__main__":
    sys.exit(main())

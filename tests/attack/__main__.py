"""Attack from the command line: `python -m tests.attack --seed 7 --count 100 --store sqlite`."""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
import time
from collections import Counter

from tests.attack.campaign import silence
from tests.attack.comparison import attack
from tests.attack.deployment import STORES, scratch
from tests.attack.generator import FEATURES, Case, case_of
from tests.attack.shrink import explain

_HANG_S = 120


def main() -> int:
    """Run the cases the arguments ask for."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--store", default="memory", choices=[*STORES, "all"])
    features = ", ".join(sorted(FEATURES))
    parser.add_argument("--without", default="", help=f"features to leave out, with commas between: {features}")
    parser.add_argument("--case", help="a case as JSON, as printed for a failure")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--shrink-s", type=float, default=60.0, help="how long to look for a smaller case")
    given = parser.parse_args()
    found: Counter[str] = Counter()
    start = time.monotonic()
    with scratch() as place, silence():
        cases = [json.loads(given.case)] if given.case else _cases(given)
        for case in cases:
            faulthandler.dump_traceback_later(_HANG_S, exit=True)
            outcome = attack(case, place)
            if outcome.problems:
                found[outcome.problems[0][0]] += 1
                faulthandler.cancel_dump_traceback_later()
                print(explain(case, outcome, place, 0.0 if given.no_shrink else given.shrink_s), flush=True)
                if not given.keep_going:
                    break
        faulthandler.cancel_dump_traceback_later()
    print(f"{len(cases)} cases, {time.monotonic() - start:.1f} s, problems: {dict(found) or 'none'}")
    return 1 if found else 0


def _cases(given: argparse.Namespace) -> list[Case]:
    stores = STORES if given.store == "all" else (given.store,)
    without = [name for name in given.without.split(",") if name]
    return [case_of(seed, store, without) for seed in range(given.seed, given.seed + given.count) for store in stores]


if __name__ == "__main__":
    sys.exit(main())

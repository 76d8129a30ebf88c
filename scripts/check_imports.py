"""Holds what the command loads to a number of modules: a verb that only reads must start quickly.

Counts do not depend on the load of the machine, as times do. Modules of Python and of libraries differ between
versions, so only those of this package are counted, and the others that no verb needs are listed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from typing import Final

VERBS: Final = {("list",): 64, ("show", "order-1"): 84, ("gates",): 82, ("--help",): 6}
"""How many modules of this package each verb may load."""
FORBIDDEN: Final = (
    "asyncio",
    "click",
    "concurrent.futures",
    "email",
    "hashlib",
    "importlib.metadata",
    "importlib.resources",
    "logging",
    "pathlib",
    "rich",
    "shutil",
    "tempfile",
    "backports.zstd",
    "holdfast.engine.commands",
    "holdfast.engine.execution",
    "holdfast.forms.build",
    "holdfast.operations.store",
    "holdfast.operations.write",
    "holdfast.runtime",
    "holdfast.state.chunker",
    "holdfast.state.encoder",
)
"""Modules that no verb that reads may load."""

_MAKE: Final = """
import sys, holdfast
app = holdfast.App(sys.argv[1])
@app.workflow
def refund(run, order):
    return run.ask("Refund this order?", {"approve": bool}, show=run.step(len, order))
app.start(refund, "A-1", run_id="order-1")
"""
_RUN: Final = """
import sys
before = set(sys.modules)
from holdfast.__main__ import main
code = main()
sys.stderr.write("\\n" + " ".join(sorted(set(sys.modules) - before)))
sys.exit(code)
"""


def loaded(verb: tuple[str, ...], url: str) -> list[str]:
    """The modules that a verb loads."""
    options = [] if verb[0] == "--help" else ["--store", url]
    done = subprocess.run([sys.executable, "-c", _RUN, *verb, *options], capture_output=True, text=True, check=True)
    return done.stderr.rpartition("\n")[2].split()


def main() -> int:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:{folder}/runs.db"
        subprocess.run([sys.executable, "-c", _MAKE, url], check=True)
        for verb, budget in VERBS.items():
            modules = loaded(verb, url)
            name = " ".join(verb)
            found += [f"holdfast {name} loads {each}" for each in FORBIDDEN if each in modules]
            own = [each for each in modules if each.partition(".")[0] == "holdfast"]
            if len(own) > budget:
                found.append(f"holdfast {name} loads {len(own)} modules of this package, at most {budget}")
    sys.stderr.write("".join(f"{problem}\n" for problem in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""Test each adapter with its framework, in an environment of its own: `make test-adapters`.

    python scripts/test_adapters.py [--oldest] [--lock] [NAME …]

The newest supported release of each framework is locked in requirements/adapters; `--lock` writes these files, and
`--oldest` installs the oldest release that the extra allows. An environment is kept in .venv-adapters and made again
when its requirements change.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PLACE: Final = ROOT / ".venv-adapters"
LOCKS: Final = ROOT / "requirements" / "adapters"
TESTED: Final = (
    "pytest>=8.3 pytest-timeout>=2.3 pytest-xdist>=3.6 hypothesis>=6.100 httpx>=0.28 pydantic>=2.9 mypy>=1.15"
)
BUILT: Final = "editables>=0.5 hatchling>=1.27,<2"
MORE: Final = {"pydantic_ai": ("pydantic-ai-slim[mcp]",)}
"""What the tests of an adapter need beside its framework."""
OUTSIDE: Final = ("langgraph", "shared", "__init__", "__pycache__")
"""Not tested here: `make test` does that."""
UV: Final = str(Path(sys.executable).with_name("uv"))


def adapters() -> dict[str, list[str]]:
    """What each adapter needs: the package, its framework, and the tools of the tests."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]
    names = {path.stem for path in (ROOT / "src" / "holdfast" / "adapters").iterdir()} - set(OUTSIDE)
    own = [*project["dependencies"], *extras["cli"], *extras["web"], *TESTED.split(), *BUILT.split()]
    found = {name: extras[name.replace("_", "-")] for name in sorted(names) if name.replace("_", "-") in extras}
    return {name: [*wanted, *MORE.get(name, ()), *own] for name, wanted in found.items()}


def lock(name: str, wanted: list[str]) -> None:
    """Write the exact versions for an adapter, with hashes."""
    LOCKS.mkdir(parents=True, exist_ok=True)
    options = ["--quiet", "--universal", "--python-version", "3.11", "--generate-hashes", "--no-annotate", "--upgrade"]
    command = [
        UV,
        "pip",
        "compile",
        *options,
        "--custom-compile-command",
        "make lock",
        "-o",
        str(LOCKS / f"{name}.txt"),
    ]
    subprocess.run([*command, "-"], cwd=ROOT, input="\n".join(wanted), text=True, check=True, stdout=subprocess.DEVNULL)


def prepare(name: str, wanted: list[str], *, oldest: bool) -> Path:
    """Make the environment of an adapter, and return its interpreter."""
    place = PLACE / (f"{name}-oldest" if oldest else name)
    locked = LOCKS / f"{name}.txt"
    facts = "\n".join([*wanted, "" if oldest else locked.read_text("utf-8"), sys.version])
    mark = hashlib.sha256(facts.encode()).hexdigest()
    python, ready = place / "bin" / "python", place / ".ready"
    if ready.exists() and ready.read_text("utf-8") == mark:
        return python
    _call(UV, "venv", "--quiet", "--clear", "--python", sys.executable, str(place))
    install = [UV, "pip", "install", "--quiet", "--python", str(python)]
    if oldest:
        framework, *others = wanted
        lowest = framework.partition(">=")[2].partition(",")[0]
        _call(*install, f"{framework.partition('>=')[0]}=={lowest}.*", *others)
    else:
        _call(*install, "--require-hashes", "-r", str(locked))
    _call(*install, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    ready.write_text(mark, "utf-8")
    return python


def test(name: str, python: Path) -> bool:
    """Check the types of an adapter and run its tests; whether all passed."""
    own, story = f"tests/adapters/{name}", "tests/adapters/test_story.py"
    sources = [path for path in (ROOT / "src" / "holdfast" / "adapters").iterdir() if _adapter_of(path) == name]
    strict = [
        "--config-file=",
        "--strict",
        "--explicit-package-bases",
        "--namespace-packages",
        "--follow-imports=silent",
    ]
    environment = {**os.environ, "MYPYPATH": "src"}
    checked = [str(python), "-m", "mypy", *strict, *map(str, sources)]
    tested = [str(python), "-m", "pytest", "-q", "-n", "2", own, story, "tests/adapters/test_documents.py", "-k", name]
    codes = [
        subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode for command in (checked, tested)
    ]
    return not any(codes)


def _adapter_of(path: Path) -> str:
    """The adapter that a module or package belongs to: `pydantic_ai_errors` is a part of `pydantic_ai`."""
    return max((name for name in adapters() if f"{path.stem}_".startswith(f"{name}_")), key=len, default="")


def _call(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True)


def main() -> int:
    """Test the adapters that the arguments name, or all."""
    known = adapters()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(known)}; all by default")
    parser.add_argument("--oldest", action="store_true", help="the oldest release that the extra allows")
    parser.add_argument("--lock", action="store_true", help="write requirements/adapters and test nothing")
    given = parser.parse_args()
    unknown = set(given.names) - set(known)
    if unknown:
        parser.error(f"there is no adapter {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    failed = []
    for name in given.names or known:
        began = time.monotonic()
        if given.lock:
            lock(name, known[name])
            continue
        print(f"--- {name}", flush=True)
        passed = test(name, prepare(name, known[name], oldest=given.oldest))
        print(f"--- {name}: {'passed' if passed else 'failed'}, {time.monotonic() - began:.0f} s", flush=True)
        failed += [] if passed else [name]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

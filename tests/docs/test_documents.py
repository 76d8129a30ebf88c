"""What the documents say is true: every example runs, every promise has its test, every link leads somewhere."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import holdfast
from holdfast import errors, limits
from holdfast.operations import archive, claims, fork, prune, read, verify, write
from holdfast.operations.store import Claim, Store

ROOT = Path(__file__).parents[2]
ADAPTERS = ROOT / "docs" / "adapters"  # tests/adapters/test_documents.py executes these with their frameworks
DOCUMENTS = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent != ADAPTERS)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_example_in_a_document_runs(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("example")  # so that what an example defines can be imported, as from a script
    monkeypatch.setitem(sys.modules, "example", module)
    for name, text in re.findall(r"```yaml\n# (\S+\.yaml)\n(.*?)```", document.read_text("utf-8"), re.DOTALL):
        Path(name).write_text(text)
    for example in re.findall(r"```python\n(.*?)```", document.read_text("utf-8"), re.DOTALL):
        exec(compile(example, str(document), "exec", dont_inherit=True), vars(module))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_in_a_document_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text("utf-8")):
        assert target.startswith("http") or (document.parent / target).exists(), target


def verbs() -> dict[str, Any]:
    """Every documented thing of the public API that has an example."""
    found: dict[str, Any] = {"holdfast": holdfast, "open": holdfast.open, "Store": Store, "Claim": Claim}
    verbs = {name: getattr(Store, name) for name in dir(Store) if name[0] != "_"}
    found |= {f"Store.{name}": value for name, value in verbs.items() if callable(value)}
    for module in (write, claims, read, prune, fork, archive, verify):
        found |= {
            f"Store.{name}": value
            for name, value in vars(module).items()
            if inspect.isfunction(value) and f"Store.{name}" in found and name != "load"
        }
    return {name: value for name, value in found.items() if name not in ("Store.close", "Store.url")}


def example_of(thing: Any) -> str:
    """What follows "Example:" in a docstring."""
    return textwrap.dedent((inspect.getdoc(thing) or "").partition("Example:\n")[2])


@pytest.mark.parametrize("name", verbs())
def test_every_verb_has_an_example_and_it_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = example_of(verbs()[name])
    assert example.strip(), f"{name} has no example"
    monkeypatch.chdir(tmp_path)
    with holdfast.open("memory:") as store:
        store.append("run-1", [{"kind": "note"}])
        first = store.save("run-1", {"messages": []}, workflow="triage", metadata={"team": "a"})
        store.save("run-1", {"messages": ["hi"]})
        data = store.export_run("run-1")
        names = {
            "store": store,
            "holdfast": holdfast,
            "Keep": holdfast.Keep,
            "checkpoint_id": first.checkpoint_id,
            "data": data,
        }
        exec(compile(example, name, "exec"), names)


def test_everything_public_is_documented() -> None:
    names = {name: getattr(holdfast, name) for name in holdfast.__all__}
    for name, thing in (names | {name: getattr(errors, name) for name in errors.__all__}).items():
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing):
            undocumented = [
                key
                for key, value in vars(thing).items()
                if not key.startswith("_")
                and (inspect.isfunction(value) or isinstance(value, property))
                and not value.__doc__
            ]
            assert undocumented == [], (name, undocumented)


def test_every_promise_names_tests_that_are_there() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
    named = set(re.findall(r"`(test_\w+)`", text))
    assert len(named) > 40
    sources = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "src" / "holdfast" / "testing").rglob("*.py")]
    there = set(re.findall(r"def (test_\w+)", "\n".join(path.read_text("utf-8") for path in sources)))
    assert named - there == set()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) < 180


def test_the_demo_shows_what_it_says() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.demo"], capture_output=True, text=True, timeout=120, check=True
    )
    assert "was killed (SIGKILL)" in done.stdout
    assert "(checked)" in done.stdout
    assert done.stdout.count("reference") == 1
    assert "Paid once" in done.stdout


def test_a_durable_pause_and_resume_take_seven_lines() -> None:
    first = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)[0]
    lines = [line for line in first.splitlines() if line.strip()]
    assert len(lines) <= 7
    assert "run.ask(" in first
    assert "app.answer(" in first


def test_the_quick_start_prints_something_can_be_run_twice_and_leaves_only_the_store(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    for name, text in (("quick.py", examples[0]), ("both.py", "\n".join(examples[:2]))):
        (tmp_path / name).write_text(text)
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, name], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", ""), done
    left = {path.name for path in tmp_path.iterdir()} - {"quick.py", "both.py"}
    assert left <= {"runs.db", "runs.db-wal", "runs.db-shm"}


def test_importing_holdfast_loads_no_driver_and_nothing_heavy() -> None:
    script = "import sys, holdfast; print(' '.join(sys.modules))"
    loaded = set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )
    for heavy in (
        "apsw",
        "sqlite3",
        "asyncio",
        "concurrent.futures",
        "pydantic",
        "hypothesis",
        "pytest",
    ):
        assert heavy not in loaded, heavy


def test_nothing_committed_names_a_machine_or_a_registry() -> None:
    hosts = ["py" + "pi.org", "python" + "hosted"]
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix in (".png",) or not path.is_file():
            continue
        text = path.read_text("utf-8", errors="replace")
        assert not any(host in text for host in hosts), name
        assert not re.search(r"/(?:home|root|work)/\w", text), name


def constants(module: ModuleType) -> dict[str, str]:
    """The constants of a module with their docstrings."""
    body = ast.parse(Path(module.__file__ or "").read_text("utf-8")).body
    found = {}
    for node, told in itertools.pairwise(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id not in _UNITS:
            assert isinstance(told, ast.Expr), f"{node.target.id} has no docstring"
            assert isinstance(told.value, ast.Constant)
            found[node.target.id] = " ".join(str(told.value.value).split())
    return found


_UNITS = ("KIB", "MIB")


def shown_limit(name: str, value: float) -> str:
    """A limit as the table shows it."""
    if "BYTES" in name:
        sizes = [(f"{value // size:g} {unit}", size) for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))]
        return next((text for text, size in sizes if value % size == 0), f"{value} bytes")
    return f"{value:,g} s" if "_S_" in name else f"{value:,}"


def test_the_table_of_limits_says_what_the_code_says() -> None:
    table = (ROOT / "docs" / "limits.md").read_text("utf-8")
    expected = [
        f"| `{name}` | {shown_limit(name, getattr(limits, name))} | {told} |"
        for name, told in constants(limits).items()
    ]
    assert re.findall(r"^\| `.*\|$", table, re.MULTILINE) == expected

"""`import holdfast` gives every name and loads next to nothing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import traceback
from pathlib import Path

import pytest

import holdfast
from holdfast import errors
from holdfast.errors import store, workflow


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_every_public_name_is_there_and_listed() -> None:
    assert all(getattr(holdfast, name) is not None for name in holdfast.__all__)
    assert set(holdfast.__all__) <= set(dir(holdfast))
    assert len(set(holdfast.__all__)) == len(holdfast.__all__)


def test_the_root_has_the_errors_people_catch_and_errors_has_all() -> None:
    at_root = [name for name in errors.__all__ if name in holdfast.__all__]
    assert 10 <= len(at_root) <= 16
    assert all(getattr(holdfast, name) is getattr(errors, name) for name in at_root)
    assert len(holdfast.__all__) <= 40


def test_a_new_error_needs_its_class_and_its_line_in_the_tree() -> None:
    drawn: dict[str, str] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"    ((?:[│ ]   )*)(?:[├└]── )?([A-Z]\w+)", line)
        if found is None:
            continue
        depth = 0 if line[4] not in "│├└ " else len(found[1]) // 4 + 1
        above[depth:] = [found[2]]
        drawn[found[2]] = above[depth - 1] if depth else ""
    classes = {name: getattr(errors, name) for name in errors.__all__}
    kinds = {
        name: next((base.__name__ for base in kind.__mro__[1:] if base.__name__ in classes), "")
        for name, kind in classes.items()
    }
    assert drawn == kinds
    defined = {
        name: kind
        for module in (store, workflow)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, BaseException) and kind.__module__ == module.__name__
    }
    assert defined == classes


def test_the_extra_all_is_the_union_of_the_others() -> None:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8"))["project"]
    extras = dict(project["optional-dependencies"])
    (everything,) = extras.pop("all")
    found = re.fullmatch(r"holdfast\[(.*)\]", everything)
    assert found is not None
    assert sorted(found[1].split(",")) == ["cli", "langgraph", "mcp", "postgres", "web"]
    modules = (Path(__file__).parent.parent / "src/holdfast/adapters").iterdir()
    adapters = {path.stem.replace("_", "-") for path in modules}
    assert set(extras) - set(found[1].split(",")) <= adapters, "all other extras are of adapters"


def test_names_can_be_imported_all_at_once() -> None:
    assert run("from holdfast import *; print(App.__name__, open.__module__, RunFailed.__name__)") == (
        "App holdfast.open_store RunFailed"
    )


@pytest.mark.parametrize(
    "part", ["clock", "errors", "fork_safety", "ids", "limits", "model", "open_store", "operations", "store"]
)
def test_its_modules_can_be_used_without_importing_each(part: str) -> None:
    assert run(f"import holdfast; print(holdfast.{part}.__name__)") == f"holdfast.{part}"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = holdfast.nothing  # type: ignore[attr-defined]


def test_importing_it_loads_neither_drivers_nor_the_engine() -> None:
    heavy = ("msgspec", "apsw", "asyncio", "typing", "holdfast.runtime", "holdfast.engine", "holdfast.errors")
    assert run(f"import sys, holdfast; print([name for name in {heavy!r} if name in sys.modules])") == "[]"
    assert run("import sys, holdfast; holdfast.open('memory:'); print('holdfast.engine' in sys.modules)") == "False"


RACE = """
import random, sys, threading, holdfast
from importlib import import_module
names = ["App", "open", "Form", "RunFailed", "Keep", "Worker", "Retry"]
modules = ["holdfast.engine.scope", "holdfast.operations.context", "holdfast.errors", "holdfast.runtime.replay"]
work = [lambda n=n: getattr(holdfast, n) for n in names] + [lambda m=m: import_module(m) for m in modules]
random.Random(int(sys.argv[1])).shuffle(work)
threads = [threading.Thread(target=each) for each in work]
for thread in threads: thread.start()
for thread in threads: thread.join(240)
print(sum(thread.is_alive() for thread in threads), holdfast.App("memory:").store.url)
"""


@pytest.mark.parametrize("seed", range(4))
def test_threads_that_load_names_and_modules_at_once_do_not_wait_for_each_other_for_ever(seed: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RACE, str(seed)], capture_output=True, text=True, check=True, timeout=240
    )  # fmt: skip
    assert done.stdout.strip() == "0 memory:"


FORK = """
import faulthandler, os, signal, sys, threading, time, holdfast
thread = threading.Thread(target=lambda: holdfast.App)
thread.start()
time.sleep(float(sys.argv[1]))
child = os.fork()
if not child:
    faulthandler.dump_traceback_later(100)
    signal.alarm(120)
    holdfast.App("memory:").close()
    os._exit(0)
thread.join()
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.005, 0.01, 0.02, 0.05])
def test_a_process_forked_while_a_name_is_loaded_can_load_it_too(after_s: float) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, str(after_s)], capture_output=True, text=True, check=True, timeout=240
    )  # fmt: skip
    assert done.stdout.strip() == "0", done.stderr


FORK_BESIDE_A_LOGGER = """
import os, threading, time, holdfast, logging
from holdfast import fork_safety
held, made = threading.Event(), []

def load():
    with fork_safety.loading:
        held.set()
        time.sleep(0.5)  # the fork begins meanwhile
        made.append(logging.getLogger("late"))

thread = threading.Thread(target=load)
thread.start()
held.wait()
child = os.fork()
if not child:
    logging.getLogger("later")
    os._exit(0 if made else 1)
thread.join()
print(os.waitpid(child, 0)[1])
"""


def test_a_fork_waits_for_an_import_that_makes_a_logger() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK_BESIDE_A_LOGGER], capture_output=True, text=True, check=True, timeout=240
    )  # fmt: skip
    assert done.stdout.strip() == "0", done.stderr


def test_an_app_whose_store_cannot_be_opened_can_be_shown_in_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(holdfast.HoldfastError) as caught:
        holdfast.App(f"sqlite:{tmp_path / 'file' / 'holdfast.db'}")
    apps = [
        frame.f_locals["self"]
        for frame, _ in traceback.walk_tb(caught.tb)
        if type(frame.f_locals.get("self")) is holdfast.App
    ]
    assert [repr(app) for app in apps] == ["<holdfast.App without a store>"]

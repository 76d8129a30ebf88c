"""Which store and which app a command uses, and that it says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import holdfast
from tests.cli.processes import command as run

MAKE = "tests.cli.shop:make"


def stores(folder: Path, *names: str) -> None:
    """Stores that each have a run of their own name."""
    for name in names:
        with holdfast.open(f"sqlite:{folder / name}.db") as store:
            store.save(name, {})


def pyproject(folder: Path, **settings: str) -> None:
    lines = "\n".join(f'{name} = "{value}"' for name, value in settings.items())
    (folder / "pyproject.toml").write_text(f"[tool.holdfast]\n{lines}\n")


def used(folder: Path, *arguments: str, **env: str) -> tuple[str, str]:
    """The store a failing command says it used, and where that came from."""
    done = run("pause", "nobody", "--json", *arguments, cwd=folder, **env)
    assert done.code == 4, done
    assert f"store: {done.data['store']} ({done.data['source']})" in done.err
    return done.data["store"], done.data["source"]


def test_the_store_comes_from_the_option_the_environment_the_project_or_is_the_default(tmp_path: Path) -> None:
    stores(tmp_path, "holdfast", "project", "variable", "option")
    assert used(tmp_path) == ("sqlite:holdfast.db", "default")
    pyproject(tmp_path, store="sqlite:project.db")
    assert used(tmp_path) == ("sqlite:project.db", "[tool.holdfast] in pyproject.toml")
    assert used(tmp_path, HOLDFAST_STORE="sqlite:variable.db") == ("sqlite:variable.db", "HOLDFAST_STORE")
    given = used(tmp_path, "--store", "sqlite:option.db", HOLDFAST_STORE="sqlite:variable.db")
    assert given == ("sqlite:option.db", "--store")


def test_options_may_stand_before_the_verb(tmp_path: Path) -> None:
    stores(tmp_path, "option")
    done = run("--store=sqlite:option.db", "--json", "pause", "nobody", cwd=tmp_path)
    assert done.data["source"] == "--store"


def test_a_project_is_found_from_the_directories_below_it(tmp_path: Path) -> None:
    stores(tmp_path, "project")
    pyproject(tmp_path, store="sqlite:project.db")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert used(below) == ("sqlite:../../project.db", "[tool.holdfast] in ../../pyproject.toml")


@pytest.mark.parametrize("text", ["[tool.holdfast", "[tool.holdfast]\nstore = 7\n", "[tool]\nholdfast = 3\n"])
def test_a_project_file_that_cannot_be_read_is_wrong_usage(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    done = run("pause", "nobody", cwd=tmp_path)
    assert done.code == 2
    assert "pyproject.toml" in done.err


def test_a_setting_there_is_not_is_wrong_usage_and_those_there_are_are_named(tmp_path: Path) -> None:
    stores(tmp_path, "holdfast")
    pyproject(tmp_path, stor="sqlite:other.db", App="x:y")
    done = run("list", cwd=tmp_path)
    assert done.code == 2
    assert (
        "[tool.holdfast] in pyproject.toml has 'App', 'stor', which is not a setting; "
        "the settings are store, app, web and notifications" in done.err
    )


@pytest.mark.parametrize("url", ["sqlite:none.db", "dir:none"])
def test_looking_for_a_run_makes_no_store(tmp_path: Path, url: str) -> None:
    done = run("pause", "x", "--store", url, cwd=tmp_path)
    assert done.code == 4
    assert f"there is no store at {url} yet" in done.err
    assert f"store: {url} (--store)" in done.err
    assert os.listdir(tmp_path) == []


def test_a_store_of_another_program_is_an_error_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").write_bytes(b"something else entirely, and long enough " * 100)
    done = run("pause", "x", cwd=tmp_path)
    assert done.code == 1
    assert "Traceback" not in done.err
    assert "store: sqlite:holdfast.db (default)" in done.err
    done = run("list", cwd=tmp_path)
    assert done.code == 1
    assert done.err.count("holdfast.db is damaged") == 1
    assert "load(" not in done.err


def test_a_url_no_store_has_is_wrong_usage(tmp_path: Path) -> None:
    assert run("pause", "x", "--store", "ftp://x", cwd=tmp_path).code == 2


def test_an_app_is_found_by_module_by_file_and_in_the_project(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:{tmp_path / 'holdfast.db'}") as store:
        store.save("x", {})
    (tmp_path / "mine.py").write_text("from tests.cli.shop import make\n")
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps" / "queue.py").write_text("from tests.cli.shop import make\n")
    for given in ("mine:make", "mine.py:make", "./mine.py:make", MAKE, "apps/queue.py:make"):
        assert run("pause", "x", "--app", given, cwd=tmp_path).code == 0
    pyproject(tmp_path, app="mine:make")
    below = tmp_path / "below"
    below.mkdir()
    done = run("pause", "x", "--store", "sqlite:../holdfast.db", cwd=below)
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("nothing", "does not name an app"),
        ("no_such_module:app", "was not found in"),
        ("no_such.py:app", "no_such.py does not exist"),
        ("tests.cli.shop:no_such", "has no 'no_such'"),
        ("tests.cli.shop:not_an_app", "neither a holdfast.App nor a function"),
        ("tests.cli.shop:broken", "RuntimeError: no such shop"),
        ("torn:app", "SyntaxError"),
    ],
)
def test_what_is_no_app_is_wrong_usage(tmp_path: Path, given: str, words: str) -> None:
    stores(tmp_path, "holdfast")
    (tmp_path / "torn.py").write_text("def (:\n")
    done = run("pause", "holdfast", "--app", given, cwd=tmp_path)
    assert done.code == 2
    assert words in done.err
    assert "Traceback" not in done.err


def test_an_app_brings_its_own_store_and_another_one_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import holdfast\napp = holdfast.App('sqlite:own.db')\n")
    done = run("pause", "nobody", "--app", "mine:app", "--json", cwd=tmp_path)
    assert (done.code, done.data["store"], done.data["source"]) == (4, "sqlite:own.db", "the app mine:app")
    same = run("pause", "nobody", "--app", "mine:app", "--store", f"sqlite:{tmp_path / 'own.db'}", cwd=tmp_path)
    assert same.code == 4
    other = run("pause", "nobody", "--app", "mine:app", "--store", "sqlite:other.db", cwd=tmp_path)
    assert other.code == 2
    assert "uses the store sqlite:own.db" in other.err


def test_an_app_is_not_loaded_to_find_a_store_that_is_named(tmp_path: Path) -> None:
    stores(tmp_path, "named")
    done = run("export", "named", "--store", "sqlite:named.db", "--json", cwd=tmp_path, HOLDFAST_APP="torn:app")
    assert done.code == 0, done.err
    assert run("export", "named", cwd=tmp_path, HOLDFAST_APP="torn:app").code == 2

"""Store URLs: what is accepted, the right spelling of near misses, and that nothing shown holds a password."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import InvalidInput
from holdfast.open_store import StoreUrl, hide_password, parse_store_url
from tests.cli.processes import command as run

HOME = os.path.expanduser("~")
BOTH = "write sqlite:x.db for a file in the current directory, or sqlite:/x.db for that absolute path"
NEAR_MISSES = [
    ("sqlite:///x.db", BOTH),
    ("sqlite3:///x.db", BOTH),
    ("sqlite+aiosqlite:///x.db", BOTH),
    ("sqlite:////tmp/x.db", "write sqlite:/tmp/x.db"),
    ("sqlite://x.db", "write sqlite:x.db"),
    ("sqlite3:x.db", "write sqlite:x.db"),
    ("SQLite:x.db", "write sqlite:x.db"),
    ("sqlite: x.db", "write sqlite:x.db"),
    (" sqlite:x.db", "write sqlite:x.db"),
    ("sqlite:x.db?mode=ro", "sqlite: takes no options; write sqlite:x.db"),
    ("sqlite:~/x.db", f"write sqlite:{HOME}/x.db"),
    ("file:x.db", "write sqlite:x.db"),
    ("file:///tmp/x.db", "write sqlite:/tmp/x.db"),
    ("file:x.db?mode=rwc&cache=shared", "write sqlite:x.db"),
    ("x.db", "write sqlite:x.db"),
    ("./x.db", "write sqlite:./x.db"),
    ("/tmp/x.sqlite3", "write sqlite:/tmp/x.sqlite3"),
    ("runs/", "write dir:runs/"),
    ("runs", "write sqlite:runs for a file, or dir:runs for a directory of files"),
    ("dir://runs", "write dir:runs"),
    ("dir:///runs", "write dir:runs for a directory in the current directory, or dir:/runs for that absolute path"),
    ("directory:runs", "write dir:runs"),
    ("mem:", "write memory:"),
    (":memory:", "write memory:"),
    ("sqlite::memory:", "write memory:"),
    ("sqlite:///:memory:", "write memory:"),
    ("memory", "write memory:"),
    ("memory://", "write memory:"),
    ("memory:x", "write memory:"),
    ("pg://ana:s3cret@db/runs", "write postgresql://ana:…@db/runs"),
    ("postgresql+psycopg://ana:s3cret@db:5433/runs?schema=a", "write postgresql://ana:…@db:5433/runs?…"),
    ("psql:runs", "write postgresql://user@host:port/database"),
    ("postgresql:runs", "write postgresql://user@host:port/database"),
    ("host=db dbname=runs password=s3cret", "write postgresql://user@host:port/database"),
    ("mysql://ana:s3cret@db/runs", "for example sqlite:runs.db"),
    ("", "for example sqlite:runs.db"),
    ("sqlite:", "for example sqlite:runs.db"),
]


@pytest.mark.parametrize(("url", "spelling"), NEAR_MISSES)
def test_a_near_miss_is_refused_with_the_right_spelling_and_creates_nothing(
    url: str, spelling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for opened in (holdfast.open, holdfast.App):
        with pytest.raises(InvalidInput) as caught:
            opened(url)
        assert spelling in str(caught.value)
        assert "s3cret" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("url", "verb"),
    [
        ("sqlite:///x.db", ("list",)),
        ("sqlite:///x.db", ("doctor",)),
        ("sqlite:///x.db", ("migrate",)),
        ("x.db", ("run", "refund", "-i", "order=A-17", "--app", "tests.cli.shop:make")),
        ("pg://ana:s3cret@db/runs", ("worker", "--app", "tests.cli.shop:make")),
        ("postgresql+psycopg://ana:s3cret@db/runs", ("gates",)),
    ],
)
def test_the_command_refuses_near_misses_as_the_library_does(url: str, verb: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_store_url(url)
    done = run(*verb, "--store", url, cwd=tmp_path)
    assert done.code == 2, done
    assert str(caught.value) in done.err
    assert "(--store)" in done.err
    assert "s3cret" not in done.err + done.out
    assert not list(tmp_path.iterdir())


def test_the_four_forms_are_accepted_as_they_stand() -> None:
    assert parse_store_url("memory:") == StoreUrl("memory", "")
    assert parse_store_url("sqlite:a b/x.db") == StoreUrl("sqlite", "a b/x.db")
    assert parse_store_url("sqlite:/x@y:z.db") == StoreUrl("sqlite", "/x@y:z.db")
    assert parse_store_url("dir:../runs") == StoreUrl("dir", "../runs")
    for url in ("postgresql://ana@db/runs", "postgres:///runs"):
        assert parse_store_url(url) == StoreUrl("postgresql", url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("pg://ana:s3cret@db/runs", "pg://ana:…@db/runs"),
        ("pg://ana:s3@cr/et@db/runs", "pg://ana:…@db/runs"),
        ("pg:ana:s3cret@db/runs", "pg:ana:…@db/runs"),
        ("pg://db/runs?password=s3cret", "pg://db/runs?…"),
        ("pg://ana@db/runs", "pg://ana@db/runs"),
        ("user=ana password=s3cret", "…"),
        ("ana:s3cret@db/runs", "ana:…@db/runs"),
        ("pg://db/runs&password=s3cret", "pg://db/runs?…"),
        ("pg://db/runs;password=s3cret", "pg://db/runs?…"),
        ("sqlite:x.db", "sqlite:x.db"),
    ],
)
def test_a_refused_url_is_shown_without_a_password(url: str, shown: str) -> None:
    assert hide_password(url) == shown


@pytest.mark.parametrize("url", ["postgresql://ana@db/runs&password=s3cret", "postgresql://db/runs;password=s3cret"])
def test_options_behind_the_wrong_sign_are_not_taken_for_a_name(url: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        holdfast.open(url)
    assert "s3cret" not in str(raised.value)


def test_a_directory_and_a_text_file_are_not_taken_for_a_store(tmp_path: Path) -> None:
    with pytest.raises(holdfast.StorageError, match="is a directory; sqlite: needs the path of a file"):
        holdfast.open(f"sqlite:{tmp_path}")
    text = tmp_path / "notes.txt"
    text.write_text("not a database " * 100)
    with pytest.raises(holdfast.DamagedData, match="of another program, choose another path"):
        holdfast.open(f"sqlite:{text}")

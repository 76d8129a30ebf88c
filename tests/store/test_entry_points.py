"""Stores of other packages are found by their entry points."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import holdfast
from holdfast import open_store
from holdfast.errors import InvalidInput
from holdfast.store.memory import MemoryStore

MODULE = """
from holdfast.clock import SystemClock
from holdfast.store.memory import MemoryStore

def open_acme(url, *, clock, timeout_s, reserve_bytes):
    clock = clock or SystemClock()
    port = MemoryStore(clock)
    port.url = url
    return port, clock
"""


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed distribution with a store for `acme:`."""
    (tmp_path / "acme_store.py").write_text(MODULE)
    info = tmp_path / "acme_store-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-store\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[holdfast.stores]\nacme = acme_store:open_acme\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("acme")
def test_a_store_of_another_package_is_opened_by_its_scheme() -> None:
    with holdfast.open("acme://host/x") as store:
        assert isinstance(store.port, MemoryStore)
        assert store.url == "acme://host/x"
        store.save("run", 1)


@pytest.mark.usefixtures("acme")
def test_an_unknown_scheme_names_what_is_known_and_what_to_install() -> None:
    with pytest.raises(InvalidInput, match=r"other packages provide acme:; for mysql: install a package") as caught:
        holdfast.open("mysql://host/x")
    assert "sqlite:PATH" in str(caught.value)


def test_without_that_package_its_scheme_is_unknown() -> None:
    with pytest.raises(InvalidInput, match="for acme: install a package with the entry point 'acme'"):
        holdfast.open("acme://host/x")


def test_the_built_in_table_is_what_the_package_declares() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    declared = {
        scheme: EntryPoint(scheme, value, "holdfast.stores").load()
        for scheme, value in project["entry-points"]["holdfast.stores"].items()
    }
    assert declared == open_store._FACTORIES

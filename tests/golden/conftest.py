"""Every test of golden data runs for every version there is, and on every store that has files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.folders import quick_folder
from tests.golden.stores import KINDS, Opened, opened

HOME = Path(__file__).parent
VERSIONS = sorted(path.name for path in HOME.iterdir() if path.name[0].isdigit())


def expected(folder: Path) -> Any:
    """What the version that wrote the data read from it."""
    return json.loads((folder / "expected.json").read_text("utf-8"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A place for copies."""
    with quick_folder("golden") as found:
        yield found


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> Path:
    """The golden data of one version."""
    return HOME / request.param  # type: ignore[no-any-return]


@pytest.fixture(params=KINDS)
def golden(request: pytest.FixtureRequest, version: Path, folder: Path) -> Iterator[Opened]:
    """A copy of one golden store, open, with the workflows of its runs."""
    with opened(request.param, version / request.param, folder / "copy", expected(version)["now_us"]) as found:
        yield found

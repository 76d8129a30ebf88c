"""Names that are on disk stay what they are. A new name is added to names.json; none is changed or taken away."""

from __future__ import annotations

from pathlib import Path

from tests.folders import quick_folder
from tests.golden.coverage import NAMES, read_names
from tests.golden.names import collect_names


def test_the_names_on_disk_are_those_of_the_committed_list() -> None:
    with quick_folder("names") as folder:
        found = collect_names(folder)
    assert sorted(found) == sorted(NAMES)
    for place, names in NAMES.items():
        assert found[place] == names, f"{place}: these names are stored and may not change"


def test_no_name_of_an_earlier_version_was_changed_or_moved(version: Path) -> None:
    for place, names in read_names(version).items():
        now = NAMES[place]
        if place == "sqlite pragmas":  # the version of the schema grows; an older file is migrated when it is opened
            assert (now[0], now[2]) == (names[0], names[2])
            assert now[1] >= names[1]
            continue
        if place == "directory mark":  # likewise
            assert now[0] == {**names[0], "version": now[0]["version"]}
            continue
        assert [name for name in now if name in names] == names, place
        if place == "archive" or "seal" in names:  # read by position: new fields come last
            assert now[: len(names)] == names, place

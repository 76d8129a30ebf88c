"""The explorer of interleavings itself: it tries every order, and finds what only one order shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.files.os_files import SystemFiles
from tests.formats.interleaving import Outcome, Steps, every_interleaving, finish


def _prepare(place: Path) -> None:
    (place / "a").write_bytes(b"1")


def _read_and_replace(place: Path, files: SystemFiles) -> bytes:
    """Ours, with a lost update in it: read, write beside, rename."""
    found = files.read(str(place / "a"))
    handle = files.create(str(place / "b"))
    files.write(handle, found + b"2")
    files.close(handle)
    files.rename(str(place / "b"), str(place / "a"))
    return found


def _append(place: Path) -> Steps[str]:
    """The original: read, then write."""
    yield
    found = (place / "a").read_bytes()
    yield
    (place / "a").write_bytes(found + b"3")
    return "done"


def test_every_order_of_both_programs_is_tried_once(tmp_path: Path) -> None:
    seen: list[tuple[str, ...]] = []

    def check(place: Path, outcome: Outcome) -> None:
        seen.append(outcome.trace)
        assert outcome.theirs == "done"

    count = every_interleaving(tmp_path, _prepare, _read_and_replace, _append, check)
    assert count == 15  # four calls of ours and two of theirs: 6! / (4! 2!)
    assert len(set(seen)) == count


def test_the_order_that_loses_an_update_is_found(tmp_path: Path) -> None:
    left: set[bytes] = set()
    every_interleaving(
        tmp_path, _prepare, _read_and_replace, _append, lambda place, _: left.add((place / "a").read_bytes())
    )
    assert left == {b"123", b"132", b"12", b"13"}


def test_the_original_may_die_before_each_call(tmp_path: Path) -> None:
    dead: list[bytes] = []

    def check(place: Path, outcome: Outcome) -> None:
        if outcome.is_dead:
            dead.append((place / "a").read_bytes())

    every_interleaving(tmp_path, _prepare, _read_and_replace, _append, check, may_die=True)
    assert set(dead) == {b"12"}


def test_a_failed_check_names_the_order(tmp_path: Path) -> None:
    def check(place: Path, outcome: Outcome) -> None:
        assert (place / "a").read_bytes() != b"12"

    with pytest.raises(AssertionError) as raised:
        every_interleaving(tmp_path, _prepare, _read_and_replace, _append, check)
    assert "original: call 2" in raised.value.__notes__[0]


def test_an_original_runs_alone_to_its_end(tmp_path: Path) -> None:
    _prepare(tmp_path)
    assert finish(_append(tmp_path)) == "done"
    assert (tmp_path / "a").read_bytes() == b"13"

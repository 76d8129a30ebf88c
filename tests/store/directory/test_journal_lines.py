"""Lines: what was written is read, and whatever else is found is a torn tail or damage, never an accident."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import DamagedData
from holdfast.model.commit import Commit, NewCheckpoint, NewEntry, NewRun
from holdfast.model.rows import TimerRow
from holdfast.store.decide import decide
from holdfast.store.directory.change_codec import read_change, write_change
from holdfast.store.directory.paths import run_stem
from holdfast.store.directory.run_journal import read_lines, write_line
from holdfast.store.folded_run import Change, FoldedRun, change_of
from holdfast.testing import ManualClock

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
CONTENTS = st.lists(st.dictionaries(st.sampled_from(["run", "at", "é\u2028", "sum2"]), JSON, max_size=3), max_size=4)


class _Numbers:
    """Gives the first run its number; nothing else is asked about a run that is only now created."""

    def new_run(self) -> int:
        return 1

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is asked about a new run")


def made(run_id: str) -> Any:
    clock = ManualClock()
    commit = Commit(
        run_id, b"commit00", create=NewRun(), metadata=(("k", b"\x01"),), entries=(NewEntry("a", b"\x00\xa1x"),),
        checkpoints=(NewCheckpoint("c", b"\x01\x01", "side"),),
    )  # fmt: skip
    decision: Any = decide(None, commit, clock.now_us(), clock.lease_time, _Numbers())
    return change_of(decision, commit)


@settings(max_examples=200, deadline=None)
@given(contents=CONTENTS)
def test_what_was_written_is_read(contents: list[dict[str, Any]]) -> None:
    data = b"".join(write_line(number, content) for number, content in enumerate(contents, start=1))
    found = read_lines(data, "file")
    assert (found.size, found.damage) == (len(data), None)
    assert [{k: v for k, v in line.items() if k not in ("sum", "n")} for line in found.objects] == contents


@settings(max_examples=300, deadline=None)
@given(
    contents=CONTENTS, tail=st.binary(max_size=40), cut=st.integers(0, 400), at=st.integers(0), bit=st.integers(0, 7)
)
def test_whatever_is_found_is_whole_lines_and_a_tail_or_damage(
    contents: list[dict[str, Any]], tail: bytes, cut: int, at: int, bit: int
) -> None:
    lines = [write_line(number, content) for number, content in enumerate(contents, start=1)]
    data = bytearray(b"".join(lines))
    if data and at % 3:
        data[at % len(data)] ^= 1 << bit
    broken = bytes(data[: max(0, len(data) - cut)]) + tail
    found = read_lines(broken, "file")
    assert broken[: found.size] == b"".join(lines)[: found.size]
    assert found.size in {sum(map(len, lines[:count])) for count in range(len(lines) + 1)}
    if found.damage is not None:
        assert found.damage.place == f"file line {len(found.objects) + 1}"


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_line_that_makes_no_sense_is_damage_and_nothing_else(data: st.DataObject) -> None:
    """Its checksum holds: somebody, or another program, wrote it so."""
    content = write_change(made("run"), None, None)
    place: Any = content
    for _ in range(data.draw(st.integers(0, 3))):
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], (dict, list)) or not place[key]:
            break
        place = place[key]
    key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    place[key] = data.draw(JSON)
    with contextlib.suppress(DamagedData):
        run_stem(FoldedRun(read_change(content, None, "file line 1")).row.run_id)


def test_a_change_comes_back_as_it_was() -> None:
    change = made("é/../😀")
    assert listed(read_change(write_change(change, None, None), None, "")) == listed(change)
    later = Change(change.run, timers=[TimerRow("t", 7)], pruned=[1], sent=[2], drop_timers=["t"])
    assert listed(read_change(write_change(later, change.run, None), change.run, "")) == listed(later)


def listed(change: Change) -> list[Any]:
    """All of it, whether it is in lists or tuples."""
    run, *rest = (getattr(change, name) for name in Change.__struct_fields__)
    return [run, *map(list, rest)]

"""Our calls between the file calls of Clawdia's own stores, in every order: what is lost, and what cannot be helped.

Clawdia appends in three or four calls (it reads all, makes the file, writes the line, writes the line's end) and saves
a checkpoint in two (it empties the file, and writes it), without a lock. `may_die` lets it die between any two of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.files.os_files import SystemFiles
from holdfast.formats import clawdia
from holdfast.formats.clawdia.run_directory import checkpoint_name, segment
from tests.faults.core.scratch import scratch
from tests.formats import originals
from tests.formats.interleaving import Outcome, Part, Steps, every_interleaving, finish
from tests.formats.sample_files import covering, record

RUN = Path("runs") / segment("run.a")
JOURNAL = RUN / "journal.ndjson"
PARTS = 8
EVERYTHING = clawdia.PrunePolicy(prune_covered_before=9)


@pytest.fixture
def fast() -> Iterator[Path]:
    """A directory in memory: there are thousands of orders."""
    with scratch(fast=True) as place:
        yield place


def appending(seq: int) -> Callable[[Path], Steps[str]]:
    """Clawdia appends a record of this number."""

    def steps(place: Path) -> Steps[str]:
        new = {**record(seq), "record_id": "theirs"}
        yield
        known = originals.clawdia_records(place / JOURNAL) if (place / JOURNAL).exists() else []
        if known and seq <= known[-1]["journal_seq"]:
            return "refused"
        if not (place / JOURNAL).exists():  # opening one that is there changes nothing
            yield
            (place / RUN).mkdir(parents=True, exist_ok=True)
            (place / JOURNAL).open("ab").close()
        for data in (json.dumps(new).encode(), b"\n"):
            yield
            with (place / JOURNAL).open("ab") as file:
                file.write(data)
        return f"journal.{seq}"

    return steps


def saving(checkpoint: dict[str, Any]) -> Callable[[Path], Steps[str]]:
    """Clawdia saves a checkpoint."""

    def steps(place: Path) -> Steps[str]:
        name = checkpoint_name(checkpoint["covers_journal_seq"], checkpoint["checkpoint_id"], bare=False)
        path = place / RUN / "checkpoints" / name
        yield
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        yield
        path.write_text(json.dumps(checkpoint, indent=2))
        return str(checkpoint["checkpoint_id"])

    return steps


def prepare(place: Path) -> None:
    """Two records and two checkpoints that Clawdia wrote."""
    for seq in (1, 2):
        finish(appending(seq)(place))
        (place / JOURNAL).write_bytes((place / JOURNAL).read_bytes().replace(b'"theirs"', b'"record.%d"' % seq))
        finish(saving(covering(seq, seq))(place))


def ids(place: Path) -> list[str]:
    """The records that Clawdia's own reader finds, in the order of the file."""
    return [found["record_id"] for found in originals.clawdia_records(place / JOURNAL)]


def append(*names: str) -> Callable[[Path, SystemFiles], list[str]]:
    """We append records, one after the other, through one object."""

    def ours(place: Path, files: SystemFiles) -> list[str]:
        runs = clawdia.Directory(place, files=files)
        made = [runs.append({**record(None), "record_id": name}) for name in names]
        runs.close()
        return made

    return ours


class Unsynced(SystemFiles):
    """Files that are not synced."""

    def sync(self, handle: int) -> None:
        pass


def check_journal(place: Path, outcome: Outcome, names: list[str]) -> bool:
    """Nothing is lost, all can be read and appended to. Whether two records have one number."""
    found = ids(place)
    assert isinstance(outcome.ours, list), outcome.ours
    assert [name for name in found if name.startswith("ours")] == names
    assert outcome.is_dead or outcome.theirs in ("refused", "journal.3"), "Clawdia could read it at every moment"
    assert found.count("theirs") == (outcome.theirs == "journal.3") or outcome.is_dead
    assert not list(place.glob(".holdfast/torn/*"))
    seqs = [one["journal_seq"] for one in originals.clawdia_records(place / JOURNAL)]
    runs = clawdia.Directory(place, files=Unsynced())
    assert runs.append({**record(None), "record_id": "later"}) == f"journal.{max(seqs) + 1}"
    runs.close()
    return len(set(seqs)) < len(seqs)


def test_no_append_loses_a_record_or_makes_the_journal_unreadable(fast: Path) -> None:
    def check(place: Path, outcome: Outcome) -> None:
        if check_journal(place, outcome, ["ours"]):
            assert _could_not_be_seen(outcome.trace, 1, 2)

    every_interleaving(fast, prepare, append("ours"), appending(3), check, may_die=True)


@pytest.mark.torture(daily=1)
@pytest.mark.parametrize("number", range(PARTS))
def test_no_first_append_loses_a_record_or_makes_the_journal_unreadable(fast: Path, number: int) -> None:
    """There is no journal yet. These are more orders than all others together: one part each day."""

    def begin(place: Path) -> None:
        (place / RUN).mkdir(parents=True)

    def check(place: Path, outcome: Outcome) -> None:
        check_journal(place, outcome, ["ours"])

    part = Part(number, PARTS)
    every_interleaving(fast, begin, append("ours"), appending(3), check, may_die=True, part=part)


def test_a_record_that_came_between_two_of_ours_is_seen(fast: Path) -> None:
    """Clawdia has read the journal before."""
    numbers: set[bool] = set()

    def theirs(place: Path) -> Steps[str]:
        steps = appending(3)(place)
        for _ in range(2):
            next(steps)
        return (yield from _rest(steps))

    def check(place: Path, outcome: Outcome) -> None:
        is_twice = check_journal(place, outcome, ["ours.1", "ours.2"])
        assert not is_twice or _could_not_be_seen(outcome.trace, 0, 1)
        numbers.add(is_twice)

    every_interleaving(fast, prepare, append("ours.1", "ours.2"), theirs, check, may_die=True)
    assert numbers == {True, False}, "without a lock that both know, two may take one number"


def _rest(steps: Steps[str]) -> Steps[str]:
    """The rest of a program that stands before a call."""
    yield
    return (yield from steps)


def _could_not_be_seen(trace: tuple[str, ...], reads: int, writes: int) -> bool:
    """Whether Clawdia read before one of our writes and wrote behind it, or wrote between our last look and write."""
    ours = [at for at, call in enumerate(trace) if call.startswith("ours:")]
    read = trace.index(f"original: call {reads}") if reads else -1
    wrote = trace.index(f"original: call {writes}")
    for number, at in enumerate(ours):
        if trace[at] == "ours: write journal.ndjson":
            calls = [trace[before].split()[1] for before in ours[number - 3 : number]]
            assert calls == ["stat", "stat", "open"], "the last look is the third call before the write"
            if read < at < wrote or ours[number - 3] < wrote < at:
                return True
    return False


READS: dict[str, Callable[[clawdia.Directory], Any]] = {
    "load_latest": lambda runs: runs.load_latest("run.a"),
    "load_at_or_before": lambda runs: runs.load_at_or_before("run.a", 2),
    "records": lambda runs: len(runs.records("run.a")),
    "save": lambda runs: runs.save(covering(2, 3)).checkpoint_ref,
    "prune": lambda runs: runs.prune("run.a", EVERYTHING).pruned_count,
}
BESIDE_AN_APPEND: dict[str, tuple[Any, ...]] = {
    "load_latest": (covering(2, 2),), "load_at_or_before": (covering(2, 2),), "records": (2, 3),
    "save": ("checkpoint.3",), "prune": (1,),
}  # fmt: skip


@pytest.mark.parametrize("verb", READS)
def test_no_verb_is_disturbed_by_an_append_or_disturbs_it(fast: Path, verb: str) -> None:
    def check(place: Path, outcome: Outcome) -> None:
        assert outcome.ours in BESIDE_AN_APPEND[verb], outcome.ours
        assert outcome.is_dead or outcome.theirs == "journal.3"
        assert ids(place) == ["record.1", "record.2"] + (["theirs"] if _wrote(outcome, 2) else [])

    every_interleaving(fast, prepare, _verb(verb), appending(3), check, may_die=True)


def _verb(name: str) -> Callable[[Path, SystemFiles], Any]:
    def ours(place: Path, files: SystemFiles) -> Any:
        runs = clawdia.Directory(place, files=files)
        try:
            return READS[name](runs)
        finally:
            runs.close()

    return ours


def _wrote(outcome: Outcome, call: int) -> bool:
    return f"original: call {call}" in outcome.trace


def latest(place: Path) -> dict[str, Any] | None:
    return clawdia.Directory(place).load_latest("run.a")


@pytest.mark.parametrize("verb", ["load_latest", "load_at_or_before", "prune", "save"])
def test_a_checkpoint_half_saved_hides_no_other(fast: Path, verb: str) -> None:
    """Clawdia saves a new one."""
    new = covering(3, 9)
    whole = {"load_latest": (covering(2, 2), new), "load_at_or_before": (covering(2, 2),), "prune": (1, 2),
             "save": ("checkpoint.3",)}  # fmt: skip

    def check(place: Path, outcome: Outcome) -> None:
        assert outcome.ours in whole[verb], outcome.ours
        expected = [new] if not outcome.is_dead else [covering(2, 3) if verb == "save" else covering(2, 2)]
        assert latest(place) in expected

    every_interleaving(fast, prepare, _verb(verb), saving(new), check, may_die=True)


@pytest.mark.parametrize("verb", ["load_latest", "prune", "save"])
def test_a_checkpoint_saved_again_is_never_pruned_for_what_it_was(fast: Path, verb: str) -> None:
    """Clawdia saves the older one again, with another number that it covers: another file."""
    again = {**covering(7, 1), "created_at_millis": 1_800_000_000_000}

    def check(place: Path, outcome: Outcome) -> None:
        assert not isinstance(outcome.ours, Exception)
        if outcome.theirs is not None:
            assert latest(place) == again

    every_interleaving(fast, prepare, _verb(verb), saving(again), check)


def test_what_cannot_be_helped_is_that_clawdia_dies_while_it_overwrites_the_checkpoint_that_prune_keeps(
    fast: Path,
) -> None:
    left: set[bool] = set()

    def check(place: Path, outcome: Outcome) -> None:
        assert isinstance(outcome.ours, int)
        if latest(place) is None:
            assert outcome.is_dead
            calls = [call for call in outcome.trace if "checkpoint.2" in call or call == "original: call 1"]
            assert calls[0].startswith("ours:"), "prune has read it whole before"
        left.add(latest(place) is None)

    every_interleaving(fast, prepare, _verb("prune"), saving(covering(2, 2)), check, may_die=True)
    assert left == {True, False}

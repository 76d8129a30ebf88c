"""The defects of Clawdia's stores that are about its journal and its checkpoints, named as in test_seed_defects.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import InvalidCursor
from holdfast.formats import clawdia
from holdfast.formats.clawdia.run_directory import segment
from tests.formats import originals
from tests.formats.sample_files import covering, ending, intent, record


@pytest.mark.parametrize("make", [clawdia.Directory, lambda _: clawdia.Memory()], ids=["directory", "memory"])
def test_cursor_zero(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    """A cursor that cannot be read is an error, not the beginning."""
    runs = make(tmp_path)
    runs.save(covering(0), 0)
    for cursor in ("", "garbage", "journal.x", "seq.1", "journal.18446744073709551616"):
        with pytest.raises(InvalidCursor):
            runs.load_at_or_before("run.a", cursor)
    assert runs.load_at_or_before("run.a", "journal.0") == covering(0)


@pytest.mark.parametrize("make", [clawdia.Directory, lambda _: clawdia.Memory()], ids=["directory", "memory"])
@pytest.mark.parametrize(
    "state", ["terminal:completed", "Terminal:failed", "completed", "failed", "cancelled", "terminal"]
)
def test_terminal_mismatch_across_backends(tmp_path: Path, make: Callable[[Path], Any], state: str) -> None:
    """Terminal is the same for saving and pruning, in files and in memory."""
    runs = make(tmp_path)
    assert runs.save(covering(1, 1, loop_state=state, pending_approvals=["a"]), 9).terminal_checkpoint
    assert not runs.save(covering(2, 2, loop_state="awaiting_terminal"), 9).terminal_checkpoint
    assert not runs.save(covering(9, 9), 9).terminal_checkpoint
    report = runs.prune("run.a", clawdia.PrunePolicy(prune_covered_before=9, preserve_latest_terminal=True))
    assert report.preserved_terminal_checkpoint == "checkpoint.1"
    assert [found["checkpoint_id"] for found in runs.list("run.a")] == ["checkpoint.1", "checkpoint.9"]


def test_torn_journal_tail(tmp_path: Path) -> None:
    """A torn last record hides none before it, can be appended to, and is kept beside."""
    path = tmp_path / "runs" / segment("run.a") / "journal.ndjson"
    for tail in (b'{"journal_seq": 3, "rec', b"\0\0\0\0", b'{"torn"\n\xff\n'):
        runs = clawdia.Directory(tmp_path)
        before = runs.latest_journal_seq("run.a")
        runs.append(record(before + 1))
        path.write_bytes(path.read_bytes() + tail)
        runs = clawdia.Directory(tmp_path)
        assert runs.records("run.a")[-1]["journal_seq"] == before + 1
        assert runs.append(record(before + 2)) == f"journal.{before + 2}"
        assert [r["journal_seq"] for r in originals.clawdia_records(path)] == list(range(1, before + 3))
        kept = {found.read_bytes() for found in (tmp_path / ".holdfast" / "torn").iterdir()}
        assert tail in kept
    path.write_bytes(path.read_bytes()[:-1])  # the original writes the line's end by itself
    assert clawdia.Directory(tmp_path).append(record(7)) == "journal.7"
    assert [r["journal_seq"] for r in originals.clawdia_records(path)] == list(range(1, 8))


def test_replay_of_a_complete_run(tmp_path: Path) -> None:
    """A run that ended is replayed from beginning to end, whatever came behind its end."""
    runs = clawdia.Directory(tmp_path)
    runs.append(record(1, "run"))
    runs.append(ending(9))
    runs.append(record(10, "turn"))
    found = clawdia.replay(runs.records("run.a"))
    assert (found.status, found.terminal_status, found.latest_journal_seq) == ("complete", "completed", 10)
    assert not found.resume_allowed


def test_idempotent_pending_allowed(tmp_path: Path) -> None:
    """An effect in doubt that has a key to do it again under does not stop the run; one without does."""
    runs = clawdia.Directory(tmp_path)
    runs.append(intent(1, "mail", idempotency_key="k"))
    found = clawdia.replay(runs.records("run.a"))
    assert (found.resume_allowed, found.retry, found.unsafe) == (True, ("mail",), ())
    runs.append(intent(2, "pay"))
    found = clawdia.replay(runs.records("run.a"))
    assert (found.resume_allowed, found.retry, found.unsafe) == (False, ("mail",), ("pay",))

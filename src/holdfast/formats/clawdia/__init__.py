"""Clawdia's agent SDK: a journal per run, and checkpoints that cover it.

`Directory` and `Memory` have its operations. Records and checkpoints are dicts; `holdfast.formats.clawdia.run_records`
has their schemas.

Example:
    from holdfast.formats import clawdia

    runs = clawdia.Memory()
    runs.save(checkpoint, latest_journal_seq=1)
    assert runs.load_at_or_before("run.a", "journal.1") == checkpoint
"""

from holdfast.formats.clawdia.operations import Memory, PrunePolicy, PruneReport, SaveOutcome
from holdfast.formats.clawdia.replay import Replay, replay
from holdfast.formats.clawdia.run_directory import Directory

__all__ = ["Directory", "Memory", "PrunePolicy", "PruneReport", "Replay", "SaveOutcome", "replay"]

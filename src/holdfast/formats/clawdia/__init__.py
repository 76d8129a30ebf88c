"""Clawdia's agent SDK: a journal per run, and checkpoints that cover it.

`Directory` and `Memory` have its verbs; records and checkpoints are dicts. What they must have is
`holdfast.formats.clawdia.shape`.

Example:
    from holdfast.formats import clawdia

    runs = clawdia.Memory()
    runs.save(checkpoint, latest_journal_seq=1)
    assert runs.load_at_or_before("run.a", "journal.1") == checkpoint
"""

from holdfast.formats.clawdia.directory import Directory
from holdfast.formats.clawdia.memory import Memory
from holdfast.formats.clawdia.replay import Replay, replay
from holdfast.formats.clawdia.verbs import PrunePolicy, PruneReport, SaveOutcome

__all__ = ["Directory", "Memory", "PrunePolicy", "PruneReport", "Replay", "SaveOutcome", "replay"]

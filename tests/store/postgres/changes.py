"""Changes of every kind, with what is true afterwards if they happened exactly once.

They are made to a run that has three entries and three checkpoints.
"""

from __future__ import annotations

from typing import Any

import holdfast

CHANGES: dict[str, Any] = {
    "mark_done": (lambda s: s.mark_done("run", "key", result=1), lambda s: len(s.effects("run")) == 1),
    "attach": (lambda s: s.attach("run", "c", "k", 1) is None, lambda s: s.attachments("run", "c") == {"k": 1}),
    "new run": (lambda s: s.save("new", 1), lambda s: len(list(s.history("new"))) == 1),
    "named": (lambda s: s.save("run", 7, checkpoint_id="c7"), lambda s: len(list(s.history("run"))) == 4),
    "claim": (lambda s: s.claim("run", "w1"), lambda s: s.port.run("run").fence == 1),
    "complete": (
        lambda s: s.claim("run", "w1").complete() is None,
        lambda s: (s.port.run("run").status, s.port.run("run").owner) == ("completed", ""),
    ),
    "fork": (lambda s: s.fork("run", "fork"), lambda s: len(list(s.history("fork"))) == 1),
    "prune": (
        lambda s: len(s.prune("run", holdfast.Keep(last=1)).removed) == 2,
        lambda s: len(list(s.history("run"))) == 1,
    ),
    "prune the newest": (
        lambda s: len(s.port.prune("run", lambda rows, _effects: [rows[-1].number])) == 1,
        lambda s: (len(list(s.history("run"))), s.load("run").step) == (2, 2),
    ),
    "prune_entries": (
        lambda s: s.port.prune_entries("run", lambda _run, _checkpoints: [(1, 2)]) == 2,
        lambda s: [(e.position, e.kind) for e in s.journal("run")] == [(1, "pruned"), (3, "n")],
    ),
    "delete": (lambda s: s.delete("run"), lambda s: s.port.run("run") is None),
    "claim_ready": (
        lambda s: [c.run_id for c in s.claim_ready("w1")] == ["run"],
        lambda s: s.port.run("run").fence == 1,
    ),
}

"""`holdfast web`, killed when it records an answer: `python -m tests.web.dying_server before web …`.

`before`: nothing of the request is stored. `after`: the answer is stored, and its response is never sent.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from holdfast.__main__ import main
from holdfast.model.commit import Commit
from holdfast.store.directory.directory_store import DirectoryStore
from holdfast.store.sqlite.sqlite_store import SqliteStore


def _is_answer(commit: Commit) -> bool:
    return bool(commit.gates) or any(item.kind == "answer" for item in commit.deliver)


def die_at_answers(store: Any, moment: str) -> None:
    """Kill this process `before` or `after` a store of this kind commits an answer."""
    commit = store.commit

    def deadly(this: Any, commits: Sequence[Commit]) -> Any:
        if not any(map(_is_answer, commits)):
            return commit(this, commits)
        if moment == "after":
            commit(this, commits)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    store.commit = deadly


if __name__ == "__main__":
    when = sys.argv.pop(1)
    for kind in (SqliteStore, DirectoryStore):
        die_at_answers(kind, when)
    sys.exit(main())

"""Moving LangGraph's own databases into Holdfast.

    source.py            what is read, and sqlite.py and postgres.py how
    parts.py             checkpoints taken apart, without making objects of what is in them
    stored.py            what of it goes into the store
    moving.py            one thread, several checkpoints in a commit
    marks.py             what it leaves in the run's metadata
    verifying.py         what was moved, read back and compared
    running.py           all threads
    report.py, progress.py

How a later call knows what an earlier one has done, and what it must leave alone:

Every commit of a migration writes a mark into the run's metadata, together with the checkpoints it moves. The mark
counts the run's checkpoints, attachments and rewrites as this very commit leaves them. Whatever anybody else stores in
the thread makes one of these counts larger, so as long as the mark fits the run, all that is in it came from the
migration, and the migration may go on, wherever it was killed. If it does not fit, somebody has continued the thread;
it belongs to them now, and is left as it is. Counts are used, and not the id of the last commit, because claims, sweeps
and the recovery of dead owners change a run without adding to it. While a thread takes more than one commit it is
claimed, so nobody comes in between.

The mark also names the last checkpoint moved. A source that does not have it is another database, or another thread of
the same name, and nothing is mixed. And once a thread is moved whole, verified and without a problem, the mark says how
the thread looked in the source (counts, sizes and the newest row), so that an unchanged thread costs one look.

Where the source has grown, its checkpoints are compared with those in the store, and only what differs is written. A
checkpoint that would come to lie before others of its namespace is not moved: what is newest must stay newest.
"""

from __future__ import annotations

from holdfast.adapters.langgraph.migrating.report import Migrated
from holdfast.adapters.langgraph.migrating.running import migrate

__all__ = ["Migrated", "migrate"]

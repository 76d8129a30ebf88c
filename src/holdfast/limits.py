"""Every limit, in one place. Exceeding one is a typed error before anything is written.

Limits on writing are stricter than on reading, so nothing can be saved that cannot be loaded.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

ID_BYTES_MAX: Final = 512
"""Run, checkpoint, gate, owner and effect ids, lanes, workflow and node names, in UTF-8."""

STATE_BYTES_MAX: Final = 64 * MIB
"""One state, encoded and uncompressed."""

STATE_READ_BYTES_MAX: Final = 2 * STATE_BYTES_MAX
"""What a reader will expand; also the guard against crafted compression and repetition."""

DEPTH_MAX: Final = 250
"""How deep containers may surely lie in one another. The encoder refuses at about this depth, a large state cut into
pieces at twice it at the latest; the decoder takes 1,000."""

LEVELS_MAX: Final = 4_000
"""How deep chunks may link to chunks before a reader takes them for a trap."""

NESTING_MAX: Final = 30
"""How many tuples and sets may lie in one another."""

INT_BYTES_MAX: Final = 4 * KIB
"""A big integer, as bytes: about 9,800 decimal digits."""

METADATA_BYTES_MAX: Final = 16 * KIB
"""Metadata given at once, or of a checkpoint, encoded."""

RUN_METADATA_BYTES_MAX: Final = 64 * KIB
"""Metadata of a run, merged from all that was given, encoded."""

VALUE_BYTES_MAX: Final = 256 * MIB
"""One journal entry, effect result, inbox item or gate, encoded and uncompressed."""

VALUE_READ_BYTES_MAX: Final = 2 * VALUE_BYTES_MAX
"""What a reader expands of one value; also the guard against crafted compression."""

ARCHIVE_BYTES_MAX: Final = 16 * VALUE_BYTES_MAX
"""What an importer expands of one archive: a run with all its values and states."""

COMMIT_BATCH_BYTES: Final = 64 * MIB
"""Commits that wait together are committed together; once they have this size, the others wait for the next batch."""

SHOWN_BYTES_MAX: Final = 64 * KIB
"""What an imported gate shows beside its question, as JSON; a larger state is left out there."""

ENTRIES_PER_COMMIT_MAX: Final = 10_000
"""Journal entries in one append."""

ATTACHMENTS_PER_COMMIT_MAX: Final = 1_000
"""Attachments in one attach_all."""

BRANCHES_MAX: Final = 10_000
"""Branches of one map or gather."""

CHILDREN_DEPTH_MAX: Final = 100
"""How deep children may lie in one another for a copy or an archive to take them along."""

CLAIMS_PER_COMMIT_MAX: Final = 1_000
"""Ready runs claimed at once."""

RUNS_PAGE_MAX: Final = 1_000
"""Runs in one page of a list."""

NUMBER_MAX: Final = 2**32 - 1
"""Checkpoints, journal positions, effects and inbox items of one run are each numbered up to this."""

STEP_MAX: Final = 2**53
"""The largest step a caller may give: a whole number everywhere, with room to count on."""

LEASE_S_MIN: Final = 0.001
"""The shortest lease of a claim, in seconds."""

LEASE_S_MAX: Final = 7 * 24 * 3600.0
"""The longest lease of a claim, in seconds."""

MEMO_BYTES_MAX: Final = 64 * MIB
"""What a store remembers of the last saves, to find out what changed."""

RESERVE_BYTES: Final = 16 * MIB
"""Free space kept on the disk: saves are refused with StorageFull before it is used up, so prune has room."""

GRAPH_BYTES_MAX: Final = 1 * MIB
"""The file of a declared workflow."""

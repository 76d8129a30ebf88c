"""All limits. Exceeding one raises LimitExceeded before anything is written.

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
TRACKED_STATE_BYTES_MAX: Final = 512 * MIB
"""Likewise, if the state is tracked, so that a save costs only its change."""
STATE_READ_BYTES_MAX: Final = 2 * STATE_BYTES_MAX
"""What a reader expands of one chunk or file at most; it guards against crafted compression."""
TRACKED_STATE_READ_BYTES_MAX: Final = 2 * TRACKED_STATE_BYTES_MAX
"""What a reader joins to one state at most; it guards against crafted repetition."""
STATE_PIECES_MAX: Final = TRACKED_STATE_BYTES_MAX // 128
"""The number of pieces of such a state; it guards against many empty ones. Pieces have 128 bytes or more on average."""
DEPTH_MAX: Final = 250
"""The nesting of containers that is always accepted. The encoder refuses slightly deeper values, and for a large state
that is split into chunks values of twice this depth at the latest; the decoder accepts 1,000."""
LEVELS_MAX: Final = 4_000
"""How deep chunks may link to chunks; a reader refuses deeper links as crafted data."""
NESTING_MAX: Final = 30
"""How deep tuples and sets may be nested."""
INT_BYTES_MAX: Final = 4 * KIB
"""A big integer, as bytes: about 9,800 decimal digits."""
METADATA_BYTES_MAX: Final = 16 * KIB
"""Metadata of one call, or of a checkpoint, encoded."""
RUN_METADATA_BYTES_MAX: Final = 64 * KIB
"""Metadata of a run, merged from all calls, encoded."""
VALUE_BYTES_MAX: Final = 256 * MIB
"""One journal entry, effect result, inbox item or gate, encoded and uncompressed."""
VALUE_READ_BYTES_MAX: Final = 2 * VALUE_BYTES_MAX
"""What a reader expands of one value at most; it guards against crafted compression."""
ARCHIVE_BYTES_MAX: Final = 16 * VALUE_BYTES_MAX
"""What an import expands of one archive at most: a run with all its values and states."""
COMMIT_BATCH_BYTES: Final = 64 * MIB
"""The size of a batch of commits; further commits wait for the next batch."""
SHOWN_BYTES_MAX: Final = 64 * KIB
"""What an imported gate shows with its question, as JSON; a larger state is omitted."""
ENTRIES_PER_COMMIT_MAX: Final = 10_000
"""Journal entries in one append."""
ATTACHMENTS_PER_COMMIT_MAX: Final = 1_000
"""Attachments in one attach_all."""
BRANCHES_MAX: Final = 10_000
"""Branches of one map or gather."""
CHILDREN_DEPTH_MAX: Final = 100
"""How deep children may be nested for a copy or an archive to include them."""
CLAIMS_PER_COMMIT_MAX: Final = 1_000
"""Ready runs claimed at once."""
RUNS_PAGE_MAX: Final = 1_000
"""Runs in one page of a list."""
APPROVALS_MAX: Final = 20
"""How many people may have to approve a gate."""
ESCALATIONS_MAX: Final = 20
"""Levels of escalation of a gate."""
ASSIGNMENTS_MAX: Final = 100
"""How often the people that may answer a gate can be changed."""
CATALOG_ENTRY_BYTES_MAX: Final = 1 * MIB
"""One published workflow, encoded."""
NUMBER_MAX: Final = 2**32 - 1
"""Checkpoints, journal positions, effects and inbox items of one run are each numbered up to this."""
STEP_MAX: Final = 2**53
"""The largest step a caller may set: an exact integer in every format, with a margin to count further."""
LEASE_S_MIN: Final = 0.001
"""The shortest lease of a claim, in seconds."""
LEASE_S_MAX: Final = 7 * 24 * 3600.0
"""The longest lease of a claim, in seconds."""
PACK_CHUNKS_MAX: Final = 256
"""Chunks in one pack."""
PACK_BYTES_MAX: Final = 1 * MIB
"""The plain bytes of one pack."""
PACKS_READ_BYTES_MAX: Final = 16 * MIB
"""What a reader keeps of decompressed packs while it reads one state."""
MEMO_BYTES_MAX: Final = 64 * MIB
"""What a store caches of the last saves, to detect what changed."""
RESERVE_BYTES: Final = 16 * MIB
"""Free space kept on the disk: saves are refused with StorageFull before it is used up, so prune can work."""
GRAPH_BYTES_MAX: Final = 1 * MIB
"""The file of a declared workflow."""
FIELDS_MAX: Final = 100
"""Fields of a form, and of each object inside it."""
FORM_NESTING_MAX: Final = 20
"""How deep the parts of a form may be nested."""
ANSWER_NESTING_MAX: Final = 32
"""How deep the containers of an answer may be nested; more than a form's, for answers of any type."""
SCHEMA_NESTING_MAX: Final = 4 * FORM_NESTING_MAX
"""How deep the containers of a JSON Schema may be nested: a part of a form takes several of them."""
CHECK_DEPTH_MAX: Final = 3 * ANSWER_NESTING_MAX
"""How many parts of a schema may be open at once while checking: a guard against circular references."""
CHECK_PARTS_MAX: Final = 200_000
"""How often one check may apply a part of a schema to a part of an answer: a guard against branching cycles."""
PROBLEMS_MAX: Final = 1_000
"""Problems listed for one answer."""
PATTERN_CHARS_MAX: Final = 200
"""A regular expression in a form. Short ones can be slow, too, but they come from the workflow's author."""
PATTERN_TEXT_CHARS_MAX: Final = 10_000
"""Text that a regular expression is applied to."""
INTEGER_BITS_MAX: Final = 4_096
"""A whole number in an answer, so that it can always be written as decimal digits."""

"""Every verb of the command, with the line its help begins with. The order is that of `holdfast --help`.

This table is all that `holdfast --help` loads; a test compares it with the commands' own helps.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, which is not loaded for this
if TYPE_CHECKING:
    from typing import Final

GROUPS: Final = (
    (
        "Look",
        (
            ("list", "List runs: newest first, by status, workflow or metadata."),
            ("show", "Show one run: its timeline, where it stands, what to type next."),
            ("log", "Print a run's journal, or with --graph its family of forks."),
            ("diff", "Show what changed in the state between two checkpoints."),
            ("gates", "List the questions that wait for an answer."),
            ("effects", "List a run's side effects and what became of each."),
        ),
    ),
    (
        "Act",
        (
            ("run", "Start a workflow and answer its questions here."),
            ("answer", "Answer a question a run waits for."),
            ("send", "Send an event to a run."),
            ("pause", "Ask a run to stop before its next call."),
            ("resume", "Let a paused run go on, or take up one whose process died."),
            ("retry", "Let a failed run go on from what failed."),
            ("cancel", "Cancel a run for good."),
            ("rollback", "Take a run back, undoing what it did since."),
            ("fork", "Start a new run from where another stood."),
            ("worker", "Move ready runs on until told to stop."),
        ),
    ),
    (
        "Keep",
        (
            ("prune", "Remove checkpoints and runs that are not needed any more."),
            ("delete", "Remove one run for good."),
            ("verify", "Check every stored byte and report damage."),
            ("doctor", "Say what is wrong or unwise about a store and its runs."),
            ("migrate", "Bring a store's schema up to date, or print how."),
            ("export", "Write runs to an archive or as another system's files."),
            ("import", "Read runs from an archive or from another system's files."),
            ("langgraph", "Move LangGraph threads here, list them, thin them out."),
        ),
    ),
    (
        "Build",
        (
            ("graph", "Draw or check a declared workflow."),
            ("check", "Replay stored runs against the code as it is now."),
            ("demo", "Watch a run survive the death of its process."),
            ("completions", "Print the completion script of a shell."),
        ),
    ),
)
"""Topic, then its verbs with their helps."""

HELPS: Final = {verb: line for _, verbs in GROUPS for verb, line in verbs}

MODULES: Final = {verb: "import_" if verb == "import" else verb for verb in HELPS}
"""The module of `holdfast.cli.commands` each verb is in."""

EXITS: Final = "0 ok, 1 error, 2 wrong usage, 3 waiting for an answer, 4 not found, 5 conflict"

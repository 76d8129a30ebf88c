"""The verbs of the command line: the table of them, and a module for each subject.

The click command of VERB is `VERB_command` in its module. The table has the first line of each verb's help, in the
order of `holdfast --help`, which loads nothing else. A test compares the lines with the help of each command.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, which is not loaded for this
if TYPE_CHECKING:
    from typing import Final

GROUPS: Final = (
    (
        "Inspect",
        (
            ("list", "List runs, newest first, by status, workflow or metadata."),
            ("show", "Show the timeline of a run, its status and the next commands."),
            ("log", "Print a run's journal, or with --graph its family of forks."),
            ("diff", "Show what changed in the state between two checkpoints."),
            ("gates", "List the gates that wait for an answer."),
            ("effects", "List a run's side effects and their outcomes."),
            ("schedules", "List schedules, with their next ticks and last runs."),
        ),
    ),
    (
        "Control",
        (
            ("run", "Start a workflow and answer its questions here."),
            ("answer", "Answer a gate of a run."),
            ("reassign", "Change the people that may answer a gate."),
            ("send", "Send an event to a run."),
            ("pause", "Ask a run to stop before its next call."),
            ("resume", "Continue a paused run, or one whose process died."),
            ("retry", "Continue a failed run with the call that failed."),
            ("cancel", "Cancel a run."),
            ("rollback", "Roll a run back and undo its later effects."),
            ("fork", "Start a new run from a checkpoint or position of another."),
            ("worker", "Execute ready runs until stopped."),
            ("web", "Serve the page: inbox, runs and a JSON API."),
            ("mcp", "Serve runs and gates to the client of a model (MCP)."),
        ),
    ),
    (
        "Maintain",
        (
            ("prune", "Remove old checkpoints and runs."),
            ("delete", "Remove a run."),
            ("verify", "Check every stored byte and report damage."),
            ("doctor", "Report problems and risks of a store and its runs."),
            ("migrate", "Migrate a store's schema, or print the SQL that does it."),
            ("export", "Write runs to an archive or as another system's files."),
            ("import", "Read runs from an archive or from another system's files."),
            ("langgraph", "Import, list and prune LangGraph threads."),
            ("notifications", "Test targets of notifications, and list undelivered ones."),
        ),
    ),
    (
        "Develop",
        (
            ("graph", "Draw or check a declared workflow."),
            ("check", "Replay stored runs with the present code."),
            ("demo", "Watch a run survive a killed process."),
            ("completions", "Print the completion script of a shell."),
        ),
    ),
)
"""Topics, each with its verbs and their help lines."""

HELPS: Final = {verb: line for _, verbs in GROUPS for verb, line in verbs}

_SHARED: Final = {
    "control": ("pause", "cancel", "resume", "retry", "send", "delete"),
    "answer": ("reassign",),
    "log": ("diff", "effects"),
    "rollback": ("fork",),
    "migrate": ("langgraph",),
    "run": ("worker", "demo", "completions"),
    "doctor": ("verify", "check"),
    "archive": ("export", "import"),
}
"""Modules that define verbs other than the one of their own name."""

MODULES: Final = {verb: verb for verb in HELPS} | {verb: name for name, verbs in _SHARED.items() for verb in verbs}
"""The module of `holdfast.cli.commands` that defines each verb."""

EXITS: Final = "0 ok, 1 error, 2 wrong usage, 3 waiting for an answer, 4 not found, 5 conflict"

"""Errors of runs: what a workflow did, what became of it, and why something cannot be done to it."""

from __future__ import annotations

from typing import Any

from holdfast.errors.stored import Conflict, HoldfastError, InvalidInput, NotFound

__all__ = [
    "ChildFailed",
    "DefinitionChanged",
    "Diverged",
    "EffectFailed",
    "EffectInDoubt",
    "GateExpired",
    "InDoubt",
    "InputConflict",
    "InvalidAnswer",
    "InvalidGraph",
    "KeyReused",
    "MissingAwait",
    "NotFinished",
    "RollbackFailed",
    "RollbackRefused",
    "RunCancelled",
    "RunError",
    "RunFailed",
    "StageFailed",
    "StepFailed",
    "UnknownWorkflow",
]


class InvalidAnswer(InvalidInput):
    """An answer does not fit its gate, which stays open. `problems` lists all that is wrong with it."""

    def __init__(self, run_id: str, gate: str, problems: list[str]) -> None:
        super().__init__(
            f"the answer to gate {gate!r} of run {run_id!r} was not taken, the gate is still open: "
            + "; ".join(problems)
        )
        self.run_id = run_id
        self.gate = gate
        self.problems = problems


class KeyReused(InvalidInput):
    """An effect's explicit key was given again with other arguments, so it cannot mean the same effect."""

    def __init__(self, run_id: str, key: str, changed: str = "") -> None:
        super().__init__(
            (f"{changed}: " if changed else "")
            + f"run {run_id!r} has already used the effect key {key!r} with other arguments; "
            "a key names one effect with its arguments, so use another key"
        )
        self.run_id = run_id
        self.key = key
        self.changed = changed


class InvalidGraph(InvalidInput):
    """A declared workflow is not sound. `problems` lists all that is wrong with it."""

    def __init__(self, name: str, problems: list[str]) -> None:
        super().__init__(f"the declared workflow {name!r} cannot be used: " + "; ".join(problems))
        self.name = name
        self.problems = problems


def close_matches(name: str, known: list[str]) -> list[str]:
    """The known names that resemble a mistyped one."""
    from difflib import get_close_matches  # loaded by those who mistype

    return get_close_matches(name, sorted(known))


class UnknownWorkflow(NotFound):
    """This process has no workflow of that name. `close_matches` lists names that resemble it."""

    def __init__(self, workflow: str, known: list[str]) -> None:
        self.workflow = workflow
        self.close_matches = close_matches(workflow, known)
        meant = f"did you mean {' or '.join(map(repr, self.close_matches))}? " if self.close_matches else ""
        super().__init__(
            f"this app has no workflow {workflow!r}: {meant}it has {', '.join(sorted(known)) or 'none'}; "
            "import the module that registers it, or pass enqueue=True if a worker knows it"
        )


class InputConflict(Conflict):
    """A run of this id was started with other input."""

    def __init__(self, run_id: str, differs: str) -> None:
        super().__init__(
            f"run {run_id!r} was already started with another {differs}; "
            "the same run_id means the same run, so use another"
        )
        self.run_id = run_id


def _described(failure: dict[str, Any]) -> str:
    """A recorded error in one sentence, with what to do about it if that is known."""
    return f"{failure['type']}: {failure['message']}" + (f"; {failure['hint']}" if failure.get("hint") else "")


def traceback_text(failure: dict[str, Any]) -> str:
    """The traceback of a recorded failure and of its causes, innermost first, as Python prints them."""
    found: list[str] = []
    cause: dict[str, Any] | None = failure
    while isinstance(cause, dict):
        trace = str(cause.get("trace", "")).rstrip()
        found += [trace] if trace else []
        cause = cause.get("cause")
    return "\n\nThe above exception was the cause of the following exception:\n\n".join(reversed(found))


class RunError(HoldfastError):
    """Base of what can happen to or in a run."""


class StepFailed(RunError):
    """A step raised. `error_type`, `error_message`, `trace` and `causes` say what, as it was recorded.

    Raised the same way when it happens and whenever the run is replayed; only then is `__cause__` not the error itself.
    """

    what = "step"

    def __init__(self, call: str, failure: dict[str, Any], attempts: int = 1) -> None:
        times = f" after {attempts} attempts" if attempts > 1 else ""
        super().__init__(f"{self.what} {call!r} failed{times}: {_described(failure)}")
        self.call = call
        self.failure = failure
        self.attempts = attempts
        self.error_type: str = failure["type"]
        self.error_message: str = failure["message"]
        self.trace: str = failure.get("trace", "")

    @property
    def causes(self) -> list[dict[str, Any]]:
        """The failures that led to this one, nearest first."""
        found, failure = [], self.failure.get("cause")
        while failure:
            found.append(failure)
            failure = failure.get("cause")
        return found


class MissingAwait(RunError, AttributeError):
    """A call of an `async def` workflow's run was used or dropped without `await`. `call` and `place` say which.

    It is an AttributeError as well, so that `hasattr` can be asked about such a call.
    """

    def __init__(self, call: str, place: str, problem: str) -> None:
        super().__init__(f"await is missing before {call} at {place}: {problem}; write `await {call}`")
        self.call = call
        self.place = place


class EffectFailed(StepFailed):
    """An effect raised, and it counts as not having happened; see `Run.effect` for what each exception means."""

    what = "effect"


class EffectInDoubt(StepFailed):
    """An effect was begun, and whether it happened is unknown. It is not an EffectFailed, which did not happen."""

    what = "effect"


class ResultLost(StepFailed):
    """An effect was performed, but its result cannot be stored. It is not an EffectFailed: do not do it in another way.

    Let the function return built-in types, a dataclass, a msgspec Struct or a Pydantic model.
    """

    what = "effect"

    def __init__(self, call: str, failure: dict[str, Any], attempts: int = 1) -> None:
        super().__init__(call, failure, attempts)
        self.args = (f"effect {call!r} was performed, but its result cannot be stored: {_described(failure)}",)


class InDoubt(RunError):
    """For an effect's own function to raise: it cannot tell whether it happened. `in_doubt=` decides what follows.

    Example:
        raise holdfast.InDoubt("the bank accepted the transfer, but did not confirm it")
    """


class ChildFailed(StepFailed):
    """A child run failed or was cancelled."""

    what = "child run"


class StageFailed(RunError):
    """A stage of a declared workflow failed, and so did the run. `failure` is its error as data."""

    def __init__(self, stage: str, failure: dict[str, Any], then: str = "") -> None:
        super().__init__(f"stage {stage!r} failed: {_described(failure)}" + (then and f"; {then}"))
        self.stage = stage
        self.failure = failure


class GateExpired(RunError):
    """Nobody answered in time, and the gate was declared to fail then."""

    def __init__(self, run_id: str, gate: str) -> None:
        super().__init__(f"nobody answered gate {gate!r} of run {run_id!r} in time")
        self.run_id = run_id
        self.gate = gate


class Diverged(RunError):
    """The code does not do what the journal says it did. The run is paused, nothing is lost.

    `changed` names the argument that changed, if it is the same call with other arguments; else it is empty.
    """

    def __init__(
        self, run_id: str, expected: str, found: str, position: int, hint: str = "", changed: str = ""
    ) -> None:
        hint = hint or (
            "run it with the code it was started with, branch on run.version(…) so that old runs take the old way, "
            "or roll it back to before the change"
        )
        what = f"recorded there is {expected}, the code now does {found}"
        if changed:
            what = f"recorded there is {expected}, with other arguments"
        super().__init__(
            (f"{changed}: " if changed else "")
            + f"run {run_id!r} has diverged from its journal at position {position}: {what}; {hint}"
        )
        self.run_id = run_id
        self.expected = expected
        self.found = found
        self.position = position
        self.hint = hint
        self.changed = changed


class DefinitionChanged(RunError):
    """The declared workflow is not the one the run goes by. The run is paused, nothing is lost. `changes` says how."""

    def __init__(self, run_id: str, workflow: str, changes: list[str]) -> None:
        super().__init__(
            f"run {run_id!r} goes by another definition of {workflow!r} than this process has: "
            + "; ".join(changes)
            + "; resume it with its own definition, or let it go on with this one by app.migrate(run_id)"
        )
        self.run_id = run_id
        self.workflow = workflow
        self.changes = changes


_IN_DOUBT = 'and asks a person whether it happened, unless its check knows or it is declared in_doubt="retry"'


class RunFailed(RunError):
    """The workflow raised. `failure` is its error as data: type, message, trace, cause.

    `trace` is the recorded traceback with its causes; Python prints it as a note below the error.
    """

    def __init__(self, run_id: str, failure: dict[str, Any]) -> None:
        is_doubtful = failure["type"] == EffectInDoubt.__name__
        super().__init__(
            f"run {run_id!r} failed: {failure['type']}: {failure['message']}; "
            f"app.retry(run_id) goes on from there {_IN_DOUBT if is_doubtful else 'once the cause is fixed'}"
        )
        self.run_id = run_id
        self.failure = failure
        self.trace = traceback_text(failure)
        if self.trace:
            self.add_note(self.trace)


class RunCancelled(RunError):
    """The run was cancelled."""

    def __init__(self, run_id: str, by: str) -> None:
        super().__init__(f"run {run_id!r} was cancelled" + (f" by {by}" if by else ""))
        self.run_id = run_id
        self.by = by


class NotFinished(RunError, TimeoutError):
    """The run has not ended in the time given."""

    def __init__(self, run_id: str, status: str, detail: str = "") -> None:
        super().__init__(f"run {run_id!r} is still {status}{detail}")
        self.run_id = run_id
        self.status = status


class RollbackRefused(RunError):
    """Something cannot be undone. `plan` says what; `force=True` goes back all the same."""

    def __init__(self, run_id: str, plan: Any, problems: list[str]) -> None:
        super().__init__(
            f"run {run_id!r} was not rolled back: " + "; ".join(problems) + "; force=True leaves these as they are"
        )
        self.run_id = run_id
        self.plan = plan
        self.problems = problems


class RollbackFailed(RunError):
    """An undo raised. What was undone stays undone; call rollback again to go on."""

    def __init__(self, run_id: str, key: str, failure: dict[str, Any]) -> None:
        super().__init__(
            f"rolling back run {run_id!r} stopped: undoing effect {key!r} raised {failure['type']}: "
            f"{failure['message']}; call rollback again to try once more, or with force=True to leave that effect"
        )
        self.run_id = run_id
        self.key = key
        self.failure = failure

"""Errors of runs and workflows, and the interrupts that stop a workflow."""

from __future__ import annotations

from typing import Any, TypeAlias

from holdfast.errors.store import Conflict, HoldfastError, InvalidInput, NotFound, close_matches, did_you_mean

Failure: TypeAlias = dict[str, Any]
"""A recorded error: type, message, and if known trace, hint and cause."""


class InvalidAnswer(InvalidInput):
    """An answer does not fit its gate, which stays open. `problems` lists everything wrong with it."""

    def __init__(self, run_id: str, gate: str, problems: list[str]) -> None:
        super().__init__(
            f"the answer to gate {gate!r} of run {run_id!r} was rejected; the gate is still open: "
            + "; ".join(problems)
        )
        self.run_id = run_id
        self.gate = gate
        self.problems = problems


class KeyReused(InvalidInput):
    """An effect's explicit key was used again with other arguments, so it is not the same effect."""

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
    """A declared workflow is invalid. `problems` lists everything wrong with it."""

    def __init__(self, name: str, problems: list[str]) -> None:
        super().__init__(f"the declared workflow {name!r} cannot be used: " + "; ".join(problems))
        self.name = name
        self.problems = problems


class UnknownWorkflow(NotFound):
    """This process has no workflow of that name. `close_matches` lists names that resemble it."""

    hint_code = "name_app"

    def __init__(self, workflow: str, known: list[str], *, may_enqueue: bool = False) -> None:
        self.workflow = workflow
        self.close_matches = close_matches(workflow, known)
        names = did_you_mean(self.close_matches, f"it has {', '.join(sorted(known)) or 'none'}")
        super().__init__(
            f"this app has no workflow {workflow!r}: {names}",
            "import the module that registers it"
            + (", or pass enqueue=True if a worker knows it" if may_enqueue else ""),
        )


class InputConflict(Conflict):
    """A run of this id was started with other input."""

    def __init__(self, run_id: str, differs: str) -> None:
        super().__init__(
            f"run {run_id!r} was already started with another {differs}; "
            "a run_id names one run with one input, so use another"
        )
        self.run_id = run_id


def _describe(failure: Failure) -> str:
    """A recorded error in one sentence, with its hint if it has one."""
    return f"{failure['type']}: {failure['message']}" + (f"; {failure['hint']}" if failure.get("hint") else "")


def traceback_text(failure: Failure) -> str:
    """The traceback of a recorded failure and of its causes, innermost first, as Python prints them."""
    found: list[str] = []
    cause: Failure | None = failure
    while isinstance(cause, dict):
        trace = str(cause.get("trace", "")).rstrip()
        found += [trace] if trace else []
        cause = cause.get("cause")
    return "\n\nThe above exception was the cause of the following exception:\n\n".join(reversed(found))


class RunError(HoldfastError):
    """Base of the errors of runs."""


class StepFailed(RunError):
    """A step raised. `error_type`, `error_message`, `trace` and `causes` describe the recorded error.

    A replay raises the same error; only its `__cause__` is not the original exception.
    """

    what = "step"

    def __init__(self, call: str, failure: Failure, attempts: int = 1) -> None:
        times = f" after {attempts} attempts" if attempts > 1 else ""
        super().__init__(f"{self.what} {call!r} failed{times}: {_describe(failure)}")
        self.call = call
        self.failure = failure
        self.attempts = attempts
        self.error_type: str = failure["type"]
        self.error_message: str = failure["message"]
        self.trace: str = failure.get("trace", "")

    @property
    def causes(self) -> list[Failure]:
        """The failures that led to this one, nearest first."""
        found, failure = [], self.failure.get("cause")
        while failure:
            found.append(failure)
            failure = failure.get("cause")
        return found


class MissingAwait(RunError, AttributeError):
    """A call of an `async def` workflow's run was used or dropped without `await`. `call` and `place` name it.

    It is an AttributeError as well, so that `hasattr` works on such a call.
    """

    def __init__(self, call: str, place: str, problem: str) -> None:
        super().__init__(f"await is missing before {call} at {place}: {problem}; write `await {call}`")
        self.call = call
        self.place = place


class EffectFailed(StepFailed):
    """An effect raised, and is treated as not having happened; `Run.effect` lists what each exception means.

    `is_proven`: the exception proves that nothing happened.
    """

    what = "effect"
    is_proven = False


class EffectInDoubt(StepFailed):
    """It is unknown whether an effect happened. (An EffectFailed did not happen.)"""

    what = "effect"


class ResultLost(StepFailed):
    """An effect was performed, but its result cannot be stored. Do not perform it in another way.

    Let the function return built-in types, a dataclass, a msgspec Struct or a Pydantic model.
    """

    what = "effect"

    def __init__(self, call: str, failure: Failure, attempts: int = 1) -> None:
        super().__init__(call, failure, attempts)
        self.args = (f"effect {call!r} was performed, but its result cannot be stored: {_describe(failure)}",)


class InDoubt(RunError):
    """Raised by an effect's own function if it does not know whether it happened. `in_doubt=` decides what follows.

    Example:
        raise holdfast.InDoubt("the bank accepted the transfer, but did not confirm it")
    """


class ChildFailed(StepFailed):
    """A child run failed or was cancelled."""

    what = "child run"


class StageFailed(RunError):
    """A stage of a declared workflow failed, and so did the run. `failure` is its error as data."""

    def __init__(self, stage: str, failure: Failure, then: str = "") -> None:
        super().__init__(f"stage {stage!r} failed: {_describe(failure)}" + (then and f"; {then}"))
        self.stage = stage
        self.failure = failure


class GateExpired(RunError):
    """A gate that was declared to fail on expiry got no answer in time."""

    def __init__(self, run_id: str, gate: str) -> None:
        super().__init__(f"gate {gate!r} of run {run_id!r} got no answer in time")
        self.run_id = run_id
        self.gate = gate


class Diverged(RunError):
    """The code does not do what the journal recorded. The run is paused, nothing is lost.

    `changed` names the argument that changed, if it is the same call with other arguments; otherwise it is empty.
    """

    def __init__(
        self, run_id: str, expected: str, found: str, position: int, hint: str = "", changed: str = ""
    ) -> None:
        hint = hint or (
            "run it with the code it was started with, branch on run.version(…) so that old runs follow the old path, "
            "or roll it back to before the change"
        )
        what = f"the journal has {expected}, the code now has {found}"
        if changed:
            what = f"the journal has {expected}, with other arguments"
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
    """The declared workflow differs from the run's own. The run is paused, nothing is lost. `changes` lists how."""

    def __init__(self, run_id: str, workflow: str, changes: list[str]) -> None:
        super().__init__(
            f"run {run_id!r} has another definition of {workflow!r} than this process: " + "; ".join(changes),
            f"resume it with its own definition, or change it to this one with app.migrate({run_id!r})",
            hint_code="migrate_run",
        )
        self.run_id = run_id
        self.workflow = workflow
        self.changes = changes


_IN_DOUBT = 'and asks a person whether it happened, unless its check knows or it is declared in_doubt="retry"'


class RunFailed(RunError):
    """The workflow raised. `failure` is the recorded error: type, message, trace, cause.

    `trace` is the recorded traceback with its causes; Python prints it as a note below the error.
    """

    def __init__(self, run_id: str, failure: Failure) -> None:
        is_doubtful = failure["type"] == EffectInDoubt.__name__
        super().__init__(
            f"run {run_id!r} failed: {failure['type']}: {failure['message']}",
            f"app.retry({run_id!r}) continues from there {_IN_DOUBT if is_doubtful else 'once the cause is fixed'}",
            hint_code="retry_in_doubt" if is_doubtful else "retry_run",
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
    """Something cannot be undone. `plan` lists it; `force=True` rolls back anyway."""

    def __init__(self, run_id: str, plan: Any, problems: list[str]) -> None:
        super().__init__(
            f"run {run_id!r} was not rolled back: " + "; ".join(problems),
            "force=True leaves these as they are",
            hint_code="force_rollback",
        )
        self.run_id = run_id
        self.plan = plan
        self.problems = problems


class RollbackFailed(RunError):
    """An undo raised. What was undone stays undone; call rollback again to continue."""

    def __init__(self, run_id: str, key: str, failure: Failure) -> None:
        super().__init__(
            f"rolling back run {run_id!r} stopped: undoing effect {key!r} raised {failure['type']}: "
            f"{failure['message']}",
            "call rollback again to retry, or with force=True to skip that effect",
            hint_code="repeat_rollback",
        )
        self.run_id = run_id
        self.key = key
        self.failure = failure


class Interrupt(BaseException):
    """Base of what stops a workflow from outside. Do not catch it: `finally` blocks run as usual."""


class Suspended(Interrupt):
    """The run waits, was paused, or its worker stops. It continues later, perhaps in another process."""


class Cancelled(Interrupt):
    """The run was cancelled. Raised once in each branch; then `finally` blocks have some time for their steps."""


class LeaseLost(Interrupt):
    """Another owner has the run. This process cannot record anything more for it."""


class Halted(Interrupt):
    """The store failed in the middle of a run. `__cause__` is the error; the run can be resumed."""

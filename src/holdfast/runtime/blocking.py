"""The blocking driver: carries out a plan on the calling thread."""

from __future__ import annotations

import contextvars
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.engine.commands import Branch, Call, Raised, TimedOut, Together, Wait
from holdfast.errors import Interrupt, InvalidInput
from holdfast.model.commit import Commit
from holdfast.runtime.carrier import Carrier
from holdfast.runtime.current_run import as_current
from holdfast.runtime.moving import Invoke, Moved, Passing, Settle, is_passing, move, told
from holdfast.runtime.run import Run
from holdfast.runtime.starting import Acts, Move

if TYPE_CHECKING:
    from holdfast.runtime.core import AppCore

R = TypeVar("R")

_SLICE_S = 0.1


class BlockingDriver:
    """Carries out plans, on whatever thread calls it."""

    def __init__(self, app: AppCore) -> None:
        self.app = app
        self._commit = app.core.committer.commit
        self._do: dict[type, Callable[[Any, Carrier | None], Any]] = {
            Call: self._call,
            Wait: self._wait,
            Together: self._together,
            Invoke: self._invoke,
            Settle: self._settle,
            Move: lambda command, _: self.move(command),
        }

    def run(self, plan: Acts[R], carrier: Carrier | None = None) -> R:
        """Carry out the plan; `carrier` if it is of an execution."""
        try:
            step = next(plan)
            while True:
                try:
                    kind = type(step)
                    result: Any
                    if kind is Commit:
                        result = self._commit(step)
                    elif kind in self._do:
                        result = self._do[kind](step, carrier)
                    else:
                        result = step()
                except BaseException as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(result)
                    result = None  # as in Carrier.carry
        except StopIteration as done:
            value: R = done.value
            return value

    def move(self, command: Move) -> Moved:
        """Move a run on: here, or on the loop's thread if its workflow is async."""
        workflow = self.app.known(command.claimed.row.workflow)
        if workflow is not None and workflow.is_async:
            return self.app.loop.move(self.app, command)
        return self.run(move(self.app, command.claimed))

    def _invoke(self, command: Invoke, _: Carrier | None) -> Any:
        run = Run(self, command.carrier, command.carrier.exe.root)
        try:
            with as_current(run):
                return command.workflow.fn(run, *command.args, **command.kwargs)
        except BaseException as error:
            if is_passing(error):
                raise Passing from error
            raise

    def _settle(self, command: Settle, _: Carrier | None) -> None:
        while command.carrier.exe.root.flying:
            time.sleep(0.002)

    # --- the user's functions ----------------------------------------------------------------------------------------

    def _call(self, command: Call, _: Carrier | None) -> Any:
        began = time.perf_counter_ns()
        try:
            if command.timeout_s is not None:
                return self._in_time(command)
            result = command.fn(*command.args, **command.kwargs)
            return self.app.loop.run(result) if inspect.isawaitable(result) else result
        except BaseException as error:
            found = told(error)
            if found is error:
                raise
            raise found from error
        finally:
            command.took_us = (time.perf_counter_ns() - began) // 1000

    def _in_time(self, command: Call) -> Any:
        """On a thread of its own, which is left behind when the time is up; its late result is dropped."""
        outcome: list[Any] = []
        context = contextvars.copy_context()

        def work() -> None:
            try:
                result = command.fn(*command.args, **command.kwargs)
                if inspect.isawaitable(result):
                    result = self.app.loop.run(result, command.timeout_s)
                outcome.append(result)
            except BaseException as error:
                outcome.append(Raised(error))

        thread = threading.Thread(target=context.run, args=(work,), name="holdfast-step", daemon=True)
        thread.start()
        thread.join(command.timeout_s)
        if not outcome:
            raise TimedOut
        if isinstance(outcome[0], Raised):
            raise outcome[0].error
        return outcome[0]

    def _wait(self, command: Wait, carrier: Carrier | None) -> None:
        clock = self.app.core.clock
        while (left_us := command.until_us - clock.now_us()) > 0:
            if carrier is not None and (carrier.exe.give_way or carrier.exe.stopped is not None):
                return
            time.sleep(min(_SLICE_S, left_us / 1e6))

    # --- side by side ------------------------------------------------------------------------------------------------

    def _together(self, command: Together, carrier: Carrier | None) -> list[Any]:
        assert carrier is not None
        branches = command.branches
        results: list[Any] = [None] * len(branches)
        todo = deque(range(len(branches)))

        def work() -> None:
            while True:
                try:
                    index = todo.popleft()
                except IndexError:
                    return
                results[index] = found = self._branch(branches[index], carrier)
                if isinstance(found, Raised) and not isinstance(found.error, (Exception, Interrupt)):
                    todo.clear()  # the process is being ended: nothing more is begun

        context = contextvars.copy_context()
        threads = [
            threading.Thread(target=context.copy().run, args=(work,), name=f"holdfast-branch-{number}", daemon=True)
            for number in range(min(command.limit, len(branches)) - 1)
        ]
        for thread in threads:
            thread.start()
        work()
        for thread in threads:
            thread.join()
        return results

    def _branch(self, branch: Branch, carrier: Carrier) -> Any:
        try:
            if branch.plan is not None:
                return self.run(carrier.carry(branch.plan), carrier)
            assert branch.fn is not None
            if inspect.iscoroutinefunction(branch.fn):
                raise InvalidInput(
                    "an async branch belongs into an async def workflow; here it must be a plain function"
                )
            run = Run(self, carrier, branch.scope)
            with as_current(run):
                return branch.fn(run)
        except BaseException as error:
            return Raised(error)

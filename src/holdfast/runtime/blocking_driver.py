"""The blocking driver of an app.

It calls the user's functions on the calling thread, branches on threads of their own, and a call with a time
limit on a thread that it abandons when the time is up.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

from holdfast.drivers import BlockingDriver, Handler
from holdfast.engine.commands import Branch, BranchError, Call, TimedOut
from holdfast.errors import HoldfastError, Interrupt, InvalidInput, StoreClosed
from holdfast.operations.claims import release
from holdfast.runtime.execute import Invoke, ProcessExiting, WaitInFlight, execute_run, is_exit, normalize_error
from holdfast.runtime.interpreter import Interpreter, RunBranches, WaitUntil
from holdfast.runtime.run import Run
from holdfast.runtime.run_base import as_current
from holdfast.runtime.start import Execute

if TYPE_CHECKING:
    from holdfast.runtime.app_core import AppCore
    from holdfast.runtime.execute import ExecutionResult

R = TypeVar("R")

_SLICE_S = 0.1


class BlockingAppDriver(BlockingDriver):
    """Executes the plans of an app and of its runs, on the calling thread."""

    def __init__(self, app: AppCore) -> None:
        handlers: dict[type, Handler[object]] = {
            Call: self._call,
            WaitUntil: self._wait,
            RunBranches: self._run_branches,
            Invoke: self._invoke,
            WaitInFlight: self._wait_in_flight,
            Execute: self.execute,
        }
        super().__init__(app.core.committer.commit, handlers)
        self.app = app

    def execute(self, command: Execute) -> ExecutionResult:
        """Execute a run: here, or on the loop's thread if its workflow is async."""
        workflow = self.app.known(command.claimed.row.workflow)
        if workflow is not None and workflow.is_async:
            return self._execute_on_loop(command)
        return self.run(execute_run(self.app, command.claimed))

    def _execute_on_loop(self, command: Execute) -> ExecutionResult:
        claimed = command.claimed
        try:
            return self.app.loop.execute(self.app, command)
        except BaseException as error:
            # The execution may not have begun, and then it did not release the run.
            if isinstance(error, StoreClosed) or claimed.row.nonce in self.app.nonces:
                self.app.nonces.discard(claimed.row.nonce)
                with contextlib.suppress(HoldfastError):
                    self.app.core.committer.commit(release(claimed.access, claimed.row.run_id))
            raise

    def _invoke(self, command: Invoke) -> object:
        exe = command.interpreter.exe
        run, exe.handled = Run(self, command.interpreter, exe.root), sys.exception()
        try:
            with as_current(run):
                return command.workflow.fn(run, *command.args, **command.kwargs)
        except BaseException as error:
            if is_exit(error):
                raise ProcessExiting from error
            raise

    def _wait_in_flight(self, command: WaitInFlight) -> None:
        """Wait for calls in other threads. Ctrl-C in the moment a call ends may have left its name behind."""
        interpreter, me = command.interpreter, threading.get_ident()
        while interpreter.exe.root.in_flight:
            alive = {thread.ident for thread in threading.enumerate()} - {me}
            if not any(count and ident in alive for ident, count in list(interpreter.threads.items())):
                return
            time.sleep(0.002)

    # --- the user's functions ----------------------------------------------------------------------------------------

    def _call(self, command: Call) -> object:
        began = time.perf_counter_ns()
        try:
            if command.timeout_s is not None:
                return self._call_on_thread(command)
            result = command.fn(*command.args, **command.kwargs)
            return self._await_on_loop(result) if inspect.isawaitable(result) else result
        except BaseException as error:
            normalized = normalize_error(error)
            if normalized is error:
                raise
            raise normalized from error
        finally:
            command.took_us = (time.perf_counter_ns() - began) // 1000

    def _await_on_loop(self, work: Awaitable[object], timeout_s: float | None = None) -> object:
        """Await what a function returned. If the app is closed meanwhile, the run stops; its step did not fail."""
        try:
            return self.app.loop.run(work, timeout_s)
        except StoreClosed as error:
            if not self.app.is_closed:
                raise
            if inspect.iscoroutine(work):
                work.close()
            raise ProcessExiting from error

    def _call_on_thread(self, command: Call) -> object:
        """Call with a time limit, on a thread that is abandoned when the time is up; a late result is dropped."""
        outcome: list[object] = []
        context = contextvars.copy_context()

        def work() -> None:
            try:
                result = command.fn(*command.args, **command.kwargs)
                if inspect.isawaitable(result):
                    result = self._await_on_loop(result, command.timeout_s)
                outcome.append(result)
            except BaseException as error:
                outcome.append(BranchError(error))

        thread = threading.Thread(target=context.run, args=(work,), name="holdfast-step", daemon=True)
        thread.start()
        thread.join(command.timeout_s)
        if not outcome:
            raise TimedOut
        return unwrap_error(outcome[0])

    def _wait(self, command: WaitUntil) -> None:
        clock = self.app.core.clock
        while (left_us := command.until_us - clock.now_us()) > 0 and not command.interpreter.must_stop:
            time.sleep(min(_SLICE_S, left_us / 1e6))

    # --- branches ----------------------------------------------------------------------------------------------------

    def _run_branches(self, command: RunBranches) -> list[object]:
        branches = command.branches
        results: list[object] = [None] * len(branches)
        todo = deque(range(len(branches)))

        def work() -> None:
            while True:
                try:
                    index = todo.popleft()
                except IndexError:
                    return
                results[index] = result = self._run_branch(branches[index], command.interpreter)
                if isinstance(result, BranchError) and not isinstance(result.error, (Exception, Interrupt)):
                    todo.clear()  # the process is exiting: no further branch begins

        context = contextvars.copy_context()
        threads = [
            threading.Thread(target=context.copy().run, args=(work,), name=f"holdfast-branch-{number}", daemon=True)
            for number in range(min(command.limit, len(branches)) - 1)
        ]
        exiting: BaseException | None = None
        for thread in threads:
            thread.start()
        while todo or any(thread.is_alive() for thread in threads):
            try:
                work()
                for thread in threads:
                    thread.join()
            except BaseException as error:  # Ctrl-C between two branches, or in a join: the others end first
                exiting = exiting or error
                todo.clear()
        if exiting is not None:
            raise exiting
        return results

    def _run_branch(self, branch: Branch, interpreter: Interpreter) -> object:
        try:
            if branch.plan is not None:
                return self.run(interpreter.translate(branch.plan))
            assert branch.fn is not None
            if inspect.iscoroutinefunction(branch.fn):
                raise InvalidInput("an async branch belongs in an async def workflow; pass a plain function here")
            run = Run(self, interpreter, branch.scope)
            with as_current(run):
                return branch.fn(run)
        except BaseException as error:
            return BranchError(error)


def unwrap_error(result: R | BranchError) -> R:
    """Return a result, or raise the error in place of it."""
    if isinstance(result, BranchError):
        raise result.error
    return result

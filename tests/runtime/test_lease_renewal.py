"""The renewer renews claims on a thread of its own; what it meets must not be mistaken for a loss."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.model.commit import Commit


def finish(run: holdfast.Run) -> int:
    return run.step(int, 3)


def pause(run: holdfast.Run) -> Any:
    return run.ask("Well?", {"yes": bool})["yes"]


@pytest.mark.parametrize(("workflow", "status"), [(finish, "completed"), (pause, "waiting")])
def test_a_renewal_that_comes_just_after_the_run_was_given_back_is_no_loss(workflow: Any, status: str) -> None:
    with holdfast.App("memory:") as app:
        app.workflow(workflow)
        renewer, commit = app._core.lease_renewer, app._driver._commit

        def commit_and_renew(this: Commit) -> Any:
            outcome = commit(this)
            if this.release:  # nobody in this process knows yet
                for interpreter in list(renewer._held):
                    renewer._renew(interpreter)
            return outcome

        app._driver._commit = commit_and_renew
        assert app.start(workflow, run_id="one").status() == status

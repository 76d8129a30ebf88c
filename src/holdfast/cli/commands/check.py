"""`holdfast check`: replay stored runs against the code as it is now."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import exits
from holdfast.cli.acting import runs_argument
from holdfast.cli.naming import adopt
from holdfast.cli.selecting import selected
from holdfast.cli.session import Session
from holdfast.errors import DefinitionChanged, Diverged, HoldfastError, StorageError
from holdfast.model.status import STATUSES

if TYPE_CHECKING:
    from holdfast.model.views import RunInfo
    from holdfast.runtime.app import App


@click.command()
@runs_argument
@click.option("--all", "every", is_flag=True, help="All runs.")
@click.option("--workflow", metavar="NAME", help="With --all: only runs of this workflow.")
@click.option(
    "--status", multiple=True, type=click.Choice(sorted(STATUSES)), help="Only runs of this status; may be repeated."
)
@click.pass_obj
def command(session: Session, runs: tuple[str, ...], every: bool, workflow: str | None, status: tuple[str, ...]) -> int:
    """Replay stored runs against the code as it is now.

    Nothing is called, written or changed. A run whose code would do something else than its journal says has diverged;
    then the exit code is 5. Runs of workflows that the app does not know are listed as skipped.

    \b
    Examples:
      holdfast check --all --app shop:app
      holdfast check order-17 --app shop:app
      holdfast check --all --status waiting --workflow refund --json
    """
    if session.app_named() is None:
        raise click.UsageError("the code to check against is an app: --app module:name")
    app = session.app()
    chosen = selected(session, runs, every=every, workflow=workflow, status=status or None)
    with session.out.progress("replaying", len(chosen)) as progress:
        found = []
        for info in chosen:
            adopt(session, info.run_id)
            found.append(_checked(app, info))
            progress.advance()
    counts = {name: sum(each["outcome"] == name for each in found) for name in ("ok", "diverged", "skipped", "failed")}
    if session.json:
        session.out.give({"runs": found, **counts})
    else:
        _tell(session, found, counts)
    if counts["diverged"]:
        return exits.CONFLICT
    return exits.ERROR if counts["failed"] else exits.OK


def _tell(session: Session, found: list[dict[str, Any]], counts: dict[str, int]) -> None:
    told = [each for each in found if each["outcome"] in ("diverged", "failed")]
    if told:
        rows = [(each["run_id"], each["status"], each["outcome"], each["detail"]) for each in told]
        session.out.table(("RUN", "STATUS", "OUTCOME", "DETAIL"), rows, status=1)
    for detail, number in Counter(each["detail"] for each in found if each["outcome"] == "skipped").items():
        session.say(f"skipped {number}: {detail}")
    session.say(", ".join(f"{number} {name}" for name, number in counts.items()))


def _checked(app: App, info: RunInfo) -> dict[str, Any]:
    from holdfast.runtime.rehearsal import replay

    outcome, detail, position = "ok", None, None
    try:
        if app.knows(info.workflow):
            replay(app, info.run_id)
        else:
            outcome, detail = "skipped", f"the app has no workflow {info.workflow!r}"
    except Diverged as error:
        outcome, detail, position = "diverged", str(error), error.position
    except DefinitionChanged as error:
        outcome, detail = "diverged", str(error)
    except StorageError:
        raise
    except HoldfastError as error:
        outcome, detail = "failed", str(error)
    return {
        "run_id": info.run_id, "workflow": info.workflow, "status": info.status, "outcome": outcome,
        "position": position, "detail": detail,
    }  # fmt: skip

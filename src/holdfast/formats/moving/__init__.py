"""From the five systems' directories into ordinary runs, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.formats.moving.driver import Imported, export_run, import_dir

if TYPE_CHECKING:
    from holdfast.runtime.app import App

__all__ = ["Imported", "export_run", "import_dir", "register_car"]


def register_car(app: App) -> None:
    """Let an app go on with CAR workflows that were imported: from the answer through the rest of their stages.

    Their agents and tools are functions of the app: `car.pattern`, `car.proposal`, `car.deliver`, …, each called with
    `step`, as it stands in the file, and `state`. If stages have compensations, `car.compensate` must be an undo.

    Example:
        formats.register_car(app)

        @app.function(name="car.pattern")
        def pattern(step, state):
            return f"did {step['task']}"
    """
    from holdfast.formats.moving.car_flow import register  # only who goes on with one needs the engine

    register(app)

"""CAR, the Common Agent Runtime: workflows paused at an approval, one file each.

`Directory` has CAR's operations. A paused workflow is a dict; `holdfast.formats.car.workflow_records` has its schema.

Example:
    from holdfast.formats import car

    runs = car.Directory("workflow-runs")
    runs.save(paused)
    assert runs.list() == ["run-1"]
"""

from holdfast.formats.car.workflow_directory import Claimed, Directory, Recovered

__all__ = ["Claimed", "Directory", "Recovered"]

"""CAR, the Common Agent Runtime: workflows paused at an approval, one file each.

`Directory` has its verbs. A paused workflow is a dict; what it must have is `holdfast.formats.car.shape`.

Example:
    from holdfast.formats import car

    runs = car.Directory("workflow-runs")
    runs.save(paused)
    assert runs.list() == ["run-1"]
"""

from holdfast.formats.car.directory import Claimed, Directory, Recovered

__all__ = ["Claimed", "Directory", "Recovered"]

"""The files of five other systems: reading, writing, import and export.

    car            paused workflows of CAR               <run_id>.json, <run_id>.inflight
    simple_agents  checkpoints of SimpleAgents           <run_id>.json
    brainwires     finished tool calls of Brainwires     <task>.json
    mur            steps of MUR Commander                <execution>/<step>.json
    clawdia        journals and checkpoints of Clawdia   runs/<run>/journal.ndjson, runs/<run>/checkpoints/…

Each has a `Directory` with the operations of that system, which may share a directory with the original program. Among
processes of this library, defects of the originals are fixed; docs/moving-here.md lists what holds beside a running
original.

Example:
    from holdfast import formats

    report = formats.import_dir("car", "workflow-runs", store, progress=print)
    formats.export_run("car", store, report.runs[0], "exported")
"""

from holdfast.formats import brainwires, car, clawdia, mur, simple_agents
from holdfast.formats.convert import Imported, export_run, import_dir, register_car

__all__ = [
    "Imported",
    "brainwires",
    "car",
    "clawdia",
    "export_run",
    "import_dir",
    "mur",
    "register_car",
    "simple_agents",
]

"""Settings that all tests share, and the daily selection of tests that are marked `torture`."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from itertools import groupby
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from tests.rotation import DAYS, ROTATED
from tests.today import TODAY, select_daily

pytest.register_assert_rewrite("holdfast.testing.contract")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell starts background jobs so, and the processes of the tests would inherit it: Ctrl-C could not be tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_MEMORY_DISK = "/dev/shm"
_MEMORY_DISK_BYTES_MIN = 8 << 30

if (
    "TMPDIR" not in os.environ
    and os.access(_MEMORY_DISK, os.W_OK)
    and shutil.disk_usage(_MEMORY_DISK).free >= _MEMORY_DISK_BYTES_MIN
):
    # No test cuts the power of this machine, so syncs to its disk only cost time. The processes that tests start
    # inherit the variable. TMPDIR=/tmp uses the disk.
    os.environ["TMPDIR"] = tempfile.tempdir = _MEMORY_DISK

# How fast inputs are made depends on the machine, and a test must pass on one that is busy.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")


def pytest_report_header() -> str:
    return f"holdfast: the selection of day {TODAY} (HOLDFAST_TEST_DAY)"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to `make torture` what is not for today; `-m` and a test named on the command line are respected.

    `torture` marks what only `make torture` runs. `torture(daily=n)` keeps about n of the cases of a test, others every
    day; with `by="name"`, all cases that have one of n values of that parameter.
    """
    _rotate(items)
    if config.option.markexpr:
        return
    left: set[pytest.Item] = set()
    for _, group in groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        cases = [case for case in group if not any(name in case.nodeid for name in config.args if "::" in name)]
        left.update(case for case in cases if any(not mark.kwargs for mark in case.iter_markers("torture")))
        cases = [case for case in cases if case not in left]
        for mark in cases[0].iter_markers("torture") if cases else ():
            part_of = {case: _part_of(case, mark.kwargs.get("by")) for case in cases}
            chosen = set(select_daily(list(dict.fromkeys(part_of.values())), mark.kwargs["daily"]))
            left.update(case for case in cases if part_of[case] not in chosen)
    config.hook.pytest_deselected(items=list(left))
    items[:] = [item for item in items if item not in left]


def _rotate(items: list[pytest.Item]) -> None:
    """Mark the expensive tests, so that each day has a third of them; see `tests.rotation`."""
    for name, group in groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        file, _, test = name.partition("::")
        if test not in ROTATED.get(file, ()):
            continue
        cases = list(group)
        if any(True for _ in cases[0].iter_markers("torture")):
            continue
        if len(cases) > 1:
            mark = pytest.mark.torture(daily=-(-len(cases) // DAYS))
        elif (TODAY + crc32(name.encode())) % DAYS:
            mark = pytest.mark.torture
        else:
            continue
        for case in cases:
            case.add_marker(mark)


def _part_of(case: pytest.Item, name: str | None) -> object:
    assert isinstance(case, pytest.Function)
    return case.callspec.params[name] if name else case.nodeid

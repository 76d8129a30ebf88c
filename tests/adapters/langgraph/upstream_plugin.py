"""A pytest plugin that puts HoldfastSaver in the place of LangGraph's savers, in LangGraph's own tests.

upstream.py loads it into a run of those tests; nothing else imports it. The tests keep their names, so a run with our
savers can be compared with a run without them, and their stored snapshots fit.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from holdfast.adapters.langgraph import HoldfastSaver

_STORE = os.environ.get("UPSTREAM_STORE", "")
"""A store's URL with {} where tests differ; empty for LangGraph's own savers."""
_SLOTS = {"memory": "_checkpointer_memory", "sqlite_aes": "_checkpointer_sqlite_aes"}
"""The parameters of LangGraph's fixtures that are run, and the functions that make savers for them."""
_FIXTURES = ("sync_checkpointer", "async_checkpointer")
_count = itertools.count()
_outcomes: dict[str, str] = {}


@contextlib.contextmanager
def _make_saver(serde: Any = None) -> Iterator[HoldfastSaver]:
    with HoldfastSaver(_STORE.format(f"{os.getpid()}_{next(_count)}"), serde=serde) as saver:
        yield saver


@contextlib.contextmanager
def _make_encrypted_saver() -> Iterator[HoldfastSaver]:
    with _make_saver(EncryptedSerializer.from_pycryptodome_aes(key=b"1234567890123456")) as saver:
        yield saver


def pytest_configure(config: pytest.Config) -> None:
    """Replace the functions that make savers, before the tests' conftest imports them."""
    if not _STORE:
        return
    makers = importlib.import_module("tests.conftest_checkpointer")
    for name, make in zip(_SLOTS.values(), (_make_saver, _make_encrypted_saver), strict=True):
        if hasattr(makers, name):
            setattr(makers, name, make)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that are given a saver, once for each kind of saver that is replaced."""
    left_out = [item for item in items if not _is_given_a_saver(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if _is_given_a_saver(item)]


def _is_given_a_saver(item: Any) -> bool:
    given = getattr(getattr(item, "callspec", None), "params", {})
    return any(given.get(fixture) in _SLOTS for fixture in _FIXTURES)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how the test ended; a failure before or after it counts as well."""
    if report.when == "call" or report.outcome != "passed":
        before = _outcomes.get(report.nodeid, "passed")
        _outcomes[report.nodeid] = report.outcome if before == "passed" else before


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the outcomes, in the process that has them all."""
    if not hasattr(session.config, "workerinput"):
        Path(os.environ["UPSTREAM_OUTCOMES"]).write_text(json.dumps(_outcomes))

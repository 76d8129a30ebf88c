"""docs/web-api.md: its examples are executed by a shell, against a server and workers that run as processes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import holdfast
from holdfast.web.api import requests
from holdfast.web.api.failure import STATUSES
from holdfast.web.api.operation import describe
from holdfast.web.api.operation_table import OPERATIONS
from tests.cli.processes import environment
from tests.web.processes import WebProcess

DOCUMENT = Path(__file__).parents[2] / "docs" / "web-api.md"
TEXT = DOCUMENT.read_text("utf-8")
EXAMPLES = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_examples_of_the_api_do_what_the_document_says(tmp_path: Path) -> None:
    [program] = re.findall(r"```python\n(# shop.py\n.*?)```", TEXT, re.DOTALL)
    (tmp_path / "shop.py").write_text(program)
    tools = tmp_path / "tools"
    tools.mkdir()
    command = tools / "holdfast"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m holdfast "$@"\n')
    command.chmod(0o755)
    (tmp_path / ".curlrc").write_text("fail-with-body\nmax-time = 240\n")
    with WebProcess(tmp_path, "--app", "shop:app") as server:
        env = environment(XDG_STATE_HOME=str(tmp_path / "state"), CURL_HOME=str(tmp_path))
        env["PATH"] = f"{tools}:{env['PATH']}"
        script = "set -e\n" + "\n".join(EXAMPLES).replace("127.0.0.1:8484", f"127.0.0.1:{server.port}")
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=280, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    with holdfast.open(f"sqlite:{tmp_path}/holdfast.db") as store:
        found = {run.run_id: run.status for run in store.runs()}
        kinds = [entry.kind for entry in store.journal("order-17")]
    assert found["order-17"] == "completed"  # the rollback returned the event to its inbox
    assert found["order-17b"] == "waiting"
    assert found["order-18"] in ("cancelled", "completed")
    assert "rolled_back" in kinds
    assert "event: changed" in done.stdout


def test_the_table_of_errors_has_every_status() -> None:
    rows = re.findall(r"^\| ([\d, ]+) \|", TEXT, re.MULTILINE)
    assert [int(status) for row in rows for status in row.split(",")] == sorted(STATUSES)


def test_every_operation_has_an_example() -> None:
    text = "\n".join(EXAMPLES).replace("$LAST", "{checkpoint_id}")
    used = re.sub(r"order-1[789]b?", "{run_id}", text).replace("gates/approve", "gates/{gate}")
    for operation in OPERATIONS:
        assert re.search(rf"\$API{re.escape(operation.path)}(?![\w/-])", used), operation.path


def test_a_field_that_is_missing_or_unknown_is_named_first() -> None:
    for given, kind, said in (
        ({}, requests.AnswerBody, "'answer' is missing"),
        ({"answer": 1, "x": 2}, requests.AnswerBody, "'x' is not a field"),
        ({"answer": 1, "gate": ""}, requests.RunAnswerBody, "gate: expected str of length >= 1"),
    ):
        with pytest.raises(msgspec.ValidationError) as error:
            msgspec.convert(given, kind)
        assert describe(error.value) == said

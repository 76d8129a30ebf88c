"""A declared workflow in real processes that are killed: every stage is done, and nothing is done twice."""

from __future__ import annotations

import collections
import json
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

import holdfast
from tests.cli.processes import command, environment
from tests.fork_server import COMMAND, start

FLOW = """\
id: batch
input: {items: list}
variables: {round: 0}
stages:
  - {id: open, type: effect, function: note, with: {what: open}, in_doubt: retry, output_key: opened}
  - id: each
    type: for_each
    items_from: input.items
    max_concurrent: 3
    body: {type: effect, function: note, with: {what: "item {{ item }}"}, in_doubt: retry}
    output_key: done
  - {id: count, type: call, function: count, with: {n: "{{ round }}"}, output_key: round}
  - {id: close, type: effect, function: note, with: {what: close}, in_doubt: retry}
  - {id: end, type: end, result: {round: "{{ round }}", done: "{{ done }}"}}
edges:
  - {from: open, to: each}
  - {from: each, to: count}
  - {from: count, to: count, conditions: [{key: round, operator: lt, value: 15}]}
  - {from: count, to: close, default: true}
  - {from: close, to: end}
"""

APP = """\
import json, os, time
import holdfast

def note(what, idempotency_key):
    with open("world.jsonl", "a") as file:
        file.write(json.dumps([what, idempotency_key]) + "\\n")
        file.flush()
        os.fsync(file.fileno())
    time.sleep(0.01)
    return what

def count(n):
    time.sleep(0.005)
    return n + 1

def make(url):
    app = holdfast.App(url)
    app.function(note)
    app.function(count)
    return app
"""


@pytest.mark.parametrize("url", ["sqlite:runs.db", "dir:runs"])
def test_a_flow_that_is_killed_again_and_again_is_done_once(tmp_path: Path, url: str) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "app.py").write_text(APP)
    items = [f"i{number}" for number in range(8)]
    arguments = ("run", "flow.yaml", "--app", "app.py:make", "--store", url, "-i", f"items={json.dumps(items)}",
                 "--run-id", "r", "--json")  # fmt: skip
    kills = _killed(tmp_path, arguments)
    done = command(*arguments, cwd=tmp_path)
    assert done.data["result"] == {"round": 15, "done": [f"item {item}" for item in items]}, done.err
    assert kills >= 2, "it was too fast to be killed"
    lines = [json.loads(line) for line in (tmp_path / "world.jsonl").read_text().splitlines()]
    keys = collections.defaultdict(set)
    for what, key in lines:
        keys[what].add(key)
    assert set(keys) == {"open", "close", *(f"item {item}" for item in items)}
    assert all(len(found) == 1 for found in keys.values()), "an effect in doubt is tried again under its own key"
    scheme, _, path = url.partition(":")
    with holdfast.open(f"{scheme}:{tmp_path / path}") as store:
        assert store.verify().ok
        turns = [entry["turn"] for entry in store.journal("r") if entry.kind == "turn"]
        assert turns == list(range(1, 19))
        assert [effect.state for effect in store.effects("r")] == ["done"] * 10


def _killed(folder: Path, arguments: tuple[str, ...]) -> int:
    """Start the command and kill it as soon as the world has so many lines, again and again; how often it was."""
    chance = random.Random(7)
    world, kills = folder / "world.jsonl", 0
    for lines in (1, 2, 5, 8, 10):
        quiet = subprocess.DEVNULL
        process = start(COMMAND, *arguments, cwd=folder, env=environment(), stdout=quiet, stderr=quiet)
        until = time.monotonic() + 60
        while process.poll() is None and (not world.exists() or len(world.read_text().splitlines()) < lines):
            assert time.monotonic() < until, "it does nothing"
            time.sleep(0.001)
        time.sleep(chance.random() * 0.02)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    return kills

"""Flows of CrewAI on Holdfast: what is stored, feedback, claims, processes that die, growth."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import random
import string
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("crewai")

from crewai.flow import Flow, persist, start
from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.flow import FlowState
from crewai.flow.persistence.sqlite import SQLiteFlowPersistence
from pydantic import BaseModel

import holdfast
from holdfast.adapters.crewai import HoldfastFlowPersistence
from holdfast.errors import InvalidInput, RunClaimed, WorkflowConflict
from tests.adapters import bank
from tests.adapters.crewai import payer

ROOT: Final = Path(__file__).parents[3]
PATIENCE_S: Final = 240.0
KB: Final = 1024

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of CrewAI's own dependencies
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def persistence() -> Iterator[HoldfastFlowPersistence]:
    with HoldfastFlowPersistence("memory:") as found:
        yield found


def _context(flow_id: str, message: str = "Pay?") -> PendingFeedbackContext:
    return PendingFeedbackContext(
        flow_id=flow_id, flow_class="tests.PayOrder", method_name="quote", method_output={"amount": 40}, message=message
    )


# --- what is stored ---------------------------------------------------------------------------------------------------


class Item(BaseModel):
    """A model inside a state."""

    name: str


def test_the_newest_state_is_loaded_as_json(persistence: HoldfastFlowPersistence) -> None:
    number, now = uuid.uuid4(), dt.datetime.now(dt.UTC)
    persistence.save_state("f", "first", {"n": 1})
    persistence.save_state("f", "second", {"n": 2, "item": Item(name="a"), "tags": {"x"}, "at": now, "id": number})
    found = persistence.load_state("f")
    assert found == {"n": 2, "item": {"name": "a"}, "tags": ["x"], "at": now.isoformat(), "id": str(number)}
    assert persistence.load_state("g") is None
    assert [info.metadata["method"] for info in persistence.store.history("f")] == ["first", "second"]


def test_a_flow_is_restored_from_its_state(persistence: HoldfastFlowPersistence) -> None:
    class Counter(FlowState):
        n: int = 0

    @persist(persistence)
    class Counts(Flow[Counter]):
        @start()
        def count(self) -> None:
            self.state.n += 1

    kind: Any = Counts
    first = kind(persistence=persistence, suppress_flow_events=True)
    first.kickoff()
    again = kind(persistence=persistence, suppress_flow_events=True)
    again.kickoff(inputs={"id": first.state.id})
    assert again.state.n == 2
    (run,) = persistence.store.runs(workflow="crewai")
    assert (run.run_id, run.status) == (first.state.id, "waiting")


def test_feedback_is_pending_until_it_is_cleared(persistence: HoldfastFlowPersistence) -> None:
    assert persistence.load_pending_feedback("f") is None
    persistence.clear_pending_feedback("f")
    assert persistence.store.runs() == [], "nothing was written for a flow that waits for nothing"
    persistence.save_pending_feedback("f", _context("f"), {"n": 1})
    persistence.save_state("f", "other", {"n": 2})
    found = persistence.load_pending_feedback("f")
    assert found is not None
    assert found[0] == {"n": 1}
    assert (found[1].message, found[1].method_output) == ("Pay?", {"amount": 40})
    assert persistence.load_state("f") == {"n": 2}
    persistence.clear_pending_feedback("f")
    assert persistence.load_pending_feedback("f") is None
    assert persistence.load_state("f") == {"n": 2}


def test_inside_a_claim_feedback_is_cleared_when_the_claim_ends_well(persistence: HoldfastFlowPersistence) -> None:
    persistence.save_pending_feedback("f", _context("f"), {"n": 1})

    def fail() -> None:
        with persistence.claim("f"):
            persistence.clear_pending_feedback("f")
            assert persistence.load_pending_feedback("f") is None
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert persistence.load_pending_feedback("f") is not None, "the flow did not act on the feedback"
    with persistence.claim("f"):
        persistence.clear_pending_feedback("f")
        persistence.save_pending_feedback("f", _context("f", "And now?"), {"n": 2})
    found = persistence.load_pending_feedback("f")
    assert found is not None
    assert found[1].message == "And now?", "a flow that waits again keeps its new question"
    with persistence.claim("f"):
        persistence.clear_pending_feedback("f")
    assert persistence.load_pending_feedback("f") is None


def test_crewai_can_create_the_persistence_again_from_its_fields(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'flows.db'}"
    with HoldfastFlowPersistence(url) as persistence:
        persistence.save_state("f", "m", {"n": 1})
        fields = persistence.model_dump()
    assert fields["persistence_type"] == "HoldfastFlowPersistence"
    with HoldfastFlowPersistence.model_validate(fields) as again:
        assert again.load_state("f") == {"n": 1}


def test_wrong_types_and_runs_of_workflows_are_refused() -> None:
    with pytest.raises(InvalidInput, match="a store or its URL"):
        HoldfastFlowPersistence()
    with holdfast.App("memory:") as app, HoldfastFlowPersistence(app.store) as persistence:
        with pytest.raises(InvalidInput, match="must be a dict or a Pydantic model, not list"):
            persistence.save_state("f", "m", [1])  # type: ignore[arg-type]
        app.store.save("r", {"n": 1}, workflow="triage")
        with pytest.raises(InvalidInput, match="not a flow of CrewAI"):
            persistence.load_state("r")
        with pytest.raises(WorkflowConflict):
            persistence.save_state("r", "m", {"n": 2})


def test_a_claim_excludes_others_also_when_it_is_awaited(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'flows.db'}"

    async def main() -> None:
        with HoldfastFlowPersistence(url) as mine, HoldfastFlowPersistence(url) as other:
            async with mine.claim("f") as claim:
                await asyncio.to_thread(mine.save_state, "f", "m", {"n": 1})  # as CrewAI saves
                assert claim.fence > 0
                with pytest.raises(RunClaimed):
                    other.save_state("f", "m", {"n": 2})
                with pytest.raises(RunClaimed):
                    async with other.claim("f"):
                        pass
            async with other.claim("f"):
                other.save_state("f", "m", {"n": 3})
            assert mine.load_state("f") == {"n": 3}

    asyncio.run(main())


# --- processes --------------------------------------------------------------------------------------------------------


class Scene:
    """A flow that waits for feedback, the file of the outside world, and the processes that resume it."""

    def __init__(self, place: Path) -> None:
        self.url = f"sqlite:{place / 'flows.db'}"
        self.log = place / "world.jsonl"
        self.go = place / "go"

    def begin(self, how: str, *, kill: str = "", wait: bool = False) -> subprocess.Popen[str]:
        environment = {**os.environ, bank.LOG: str(self.log), bank.KILL: kill, payer.GO: str(self.go) if wait else ""}
        command = [sys.executable, "-m", "tests.adapters.crewai.payer", self.url, how]
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)

    def end(self, process: subprocess.Popen[str]) -> str:
        """Wait for a process; returns its last line, or its signal."""
        out, _ = process.communicate(timeout=PATIENCE_S)
        return out.splitlines()[-1].strip() if process.returncode == 0 else str(process.returncode)

    def paid(self) -> int:
        return len(bank.lines(self.log, "pay"))

    def receipt(self) -> str:
        with HoldfastFlowPersistence(self.url) as persistence:
            return str((persistence.load_state(payer.FLOW_ID) or {})["receipt"])


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    found = Scene(tmp_path)
    monkeypatch.setenv("CREWAI_STORAGE_DIR", str(tmp_path))
    monkeypatch.setenv(bank.LOG, str(found.log))
    payer.main(found.url, "start")
    return found


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_of_two_processes_that_resume_a_flow_one_pays(scene: Scene) -> None:
    first = scene.begin("claim", wait=True)
    _until(lambda: scene.paid() == 1)
    with HoldfastFlowPersistence(scene.url) as persistence:
        assert persistence.load_pending_feedback(payer.FLOW_ID) is not None
        with pytest.raises(RunClaimed), persistence.claim(payer.FLOW_ID):
            pass
    scene.go.touch()
    assert scene.end(first) == "ok"
    assert scene.end(scene.begin("aclaim")) == "ValueError", "nothing is pending any more"
    assert scene.paid() == 1
    assert scene.receipt() == "paid 40 for A-17"


def test_without_a_claim_both_pay(scene: Scene) -> None:
    """A limit: CrewAI loads the pending feedback in both, and saves after the methods."""
    both = [scene.begin("plain", wait=True) for _ in range(2)]
    _until(lambda: scene.paid() == 2)
    scene.go.touch()
    assert [scene.end(process) for process in both] == ["ok", "ok"]


def test_after_a_kill_the_flow_still_waits_and_an_effect_is_not_repeated(scene: Scene) -> None:
    assert scene.end(scene.begin("workflow", kill="after-pay")) == "-9"
    assert (scene.paid(), scene.receipt()) == (1, "")
    assert scene.end(scene.begin("workflow")) == "ok"
    assert (scene.paid(), scene.receipt()) == (1, "paid 40 for A-17")
    assert len(bank.lines(scene.log, "look")) == 1, "the method before the feedback is not repeated"


# --- growth -----------------------------------------------------------------------------------------------------------


def _converse(persistence: Any, turns: int) -> None:
    chance = random.Random(17)
    messages: list[dict[str, str]] = []
    for _ in range(turns):
        texts = ["".join(chance.choices(string.ascii_letters, k=KB)) for _ in range(2)]
        messages += [{"role": role, "content": text} for role, text in zip(("user", "assistant"), texts, strict=True)]
        persistence.save_state("f", "turn", {"id": "f", "messages": messages})


def test_bytes_grow_with_the_conversation_and_not_with_its_square(tmp_path: Path) -> None:
    sizes = []
    for turns in (40, 80):
        place = tmp_path / f"{turns}.db"
        with HoldfastFlowPersistence(f"sqlite:{place}") as persistence:
            _converse(persistence, turns)
        sizes.append(place.stat().st_size)
    theirs = tmp_path / "theirs.db"
    _converse(SQLiteFlowPersistence(str(theirs)), 80)
    assert sizes[1] < 2.6 * sizes[0]
    assert 10 * sizes[1] < sum(file.stat().st_size for file in tmp_path.glob("theirs.db*"))

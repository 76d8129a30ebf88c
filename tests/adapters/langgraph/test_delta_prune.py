"""Prunes of threads with delta channels, by the store and by the command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AnyMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.message import _messages_delta_reducer

import holdfast
from holdfast import Keep
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.langgraph.retention import fold
from holdfast.errors import Conflict, DamagedData, ParentRemoved
from holdfast.inspect.health import health
from holdfast.model.rows import AttachmentRow, CheckpointRow
from holdfast.operations.checkpoint_needs import may_need_ancestors
from tests.adapters.langgraph.material import (
    Delta,
    Plain,
    chat,
    checkpoint,
    config,
    delta_described,
    described,
    id_of,
    said,
    texts,
)
from tests.cli.processes import command, environment
from tests.folders import quick_folder
from tests.fork_server import LANGGRAPH, run
from tests.store.postgres import shared_servers

TURNS = 5
SAID = [text for turn in range(TURNS) for text in (f"m{turn}", f"re: m{turn}")]
_READ = """
import json, sys
from holdfast.adapters.langgraph import HoldfastSaver
from tests.adapters.langgraph.material import Delta, chat, config, texts
with HoldfastSaver(sys.argv[1]) as saver:
    found = [one.values.get("messages", []) for one in chat(saver, Delta).get_state_history(config(sys.argv[2]))]
    print(json.dumps([texts(messages) for messages in found]))
"""


def _talk(saver: HoldfastSaver, thread: str, state: type = Delta) -> None:
    graph = chat(saver, state)
    for turn in range(TURNS):
        graph.invoke(said(f"m{turn}"), config(thread))


def _texts(saver: HoldfastSaver, thread: str) -> list[Any]:
    return texts(chat(saver, Delta).get_state(config(thread)).values["messages"])


def _rows(saver: HoldfastSaver, thread: str) -> list[CheckpointRow]:
    run = saver.store.port.run(thread)
    assert run is not None
    return saver.store.port.rows(CheckpointRow, run.run)


def _read_elsewhere(url: str, thread: str) -> list[list[Any]]:
    """What a process of its own reads of every checkpoint of a thread, newest first."""
    done = run("-c", _READ, url, thread, loaded=LANGGRAPH, env=environment())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.fixture(params=["sqlite", "dir", "postgres"])
def own_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty store that other processes can use."""
    if request.param == "postgres":
        yield shared_servers.new_url()
        return
    with quick_folder("delta") as folder:
        yield f"{request.param}:{folder / 'threads'}"


@pytest.fixture(params=["memory", "sqlite", "dir", "postgres"])
def saver(request: pytest.FixtureRequest) -> Iterator[HoldfastSaver]:
    """A saver on an empty store: what other tests damage on purpose is not in it."""
    if request.param in ("memory", "postgres"):
        with HoldfastSaver("memory:" if request.param == "memory" else shared_servers.new_url()) as found:
            yield found
        return
    with quick_folder("delta") as folder, HoldfastSaver(f"{request.param}:{folder / 'threads'}") as found:
        yield found


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_keeps_what_delta_channels_need_and_reports_it(own_url: str, tmp_path: Path) -> None:
    with HoldfastSaver(own_url) as saver:
        _talk(saver, "delta")
        _talk(saver, "plain", Plain)
        before = len(_rows(saver, "delta"))
    arguments = ("prune", "--all", "--keep-last", "1", "--yes", "--store", own_url)
    planned = command(*arguments, "--dry-run", "--json", cwd=tmp_path)
    done = command(*arguments, "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.data["bytes_freed"] == planned.data["bytes_freed"] > 0
    lines = {line["run_id"]: line for line in done.data["runs"]}
    assert lines["plain"]["checkpoints_kept"] == 1
    assert lines["plain"]["kept_more"] == {}
    kept = lines["delta"]["checkpoints_kept"]
    assert lines["delta"]["kept_more"] == {"delta": kept - 1}
    assert 1 < kept < before  # what came before the last stored value is not needed
    assert _read_elsewhere(own_url, "delta")[0] == SAID
    assert command("verify", "--store", own_url, cwd=tmp_path).code == 0
    again = command(*arguments, cwd=tmp_path)
    assert "nothing to remove" in again.out
    assert f"{kept - 1} needed by delta channels of a kept checkpoint; --fold" in again.out


def test_the_command_folds_if_asked_to_and_keeps_one_checkpoint(own_url: str, tmp_path: Path) -> None:
    with HoldfastSaver(own_url) as saver:
        _talk(saver, "delta")
        used = saver.store.runs()[0].updated_at
    arguments = ("prune", "--all", "--keep-last", "1", "--fold", "--yes", "--json", "--store", own_url)
    planned = command(*arguments, "--dry-run", cwd=tmp_path)
    done = command(*arguments, cwd=tmp_path)
    assert done.code == 0, done.err
    assert planned.data["bytes_freed"] > 0
    assert [line["checkpoints_kept"] for line in done.data["runs"]] == [1]
    assert [line["checkpoints_kept"] for line in planned.data["runs"]] == [1]
    assert _read_elsewhere(own_url, "delta") == [SAID]
    assert command("verify", "--store", own_url, cwd=tmp_path).code == 0
    with HoldfastSaver(own_url) as saver:  # it continues from the fold, and so does a prune without folding
        assert saver.store.runs()[0].updated_at == used
        chat(saver, Delta).invoke(said("and?"), config("delta"))
        saver.store.prune("delta", Keep(last=1))
        assert _texts(saver, "delta") == [*SAID, "and?", "re: and?"]
        assert saver.store.verify().ok


def test_a_dry_run_reports_what_folding_frees(own_url: str, tmp_path: Path) -> None:
    """The folds need much of what the ancestors held, which therefore is not freed."""
    with HoldfastSaver(own_url) as saver:
        graph = chat(saver, Delta)
        for turn in range(3):
            graph.invoke(said(f"{turn} " * 2000), config("delta"))
    arguments = ("prune", "--all", "--keep-last", "1", "--fold", "--yes", "--json", "--store", own_url)
    planned = command(*arguments, "--dry-run", cwd=tmp_path).data["bytes_freed"]
    assert command(*arguments, cwd=tmp_path).data["bytes_freed"] == planned


# --- the store, on all four ------------------------------------------------------------------------------------------


def test_no_prune_removes_what_delta_channels_need(saver: HoldfastSaver, thread: str) -> None:
    _talk(saver, thread)
    planned = saver.store.prune(thread, Keep(last=2), dry_run=True)
    done = saver.store.prune(thread, Keep(last=2))
    assert (done.removed, done.kept_more) == (planned.removed, planned.kept_more)
    assert done.removed
    assert done.kept == 2 + done.kept_more["delta"]
    again = HoldfastSaver(saver.store)
    assert _texts(again, thread) == SAID
    for one in chat(again, Delta).get_state_history(config(thread)):
        assert texts(one.values["messages"]) == SAID[: len(one.values["messages"])]
    assert saver.store.verify().ok
    assert chat(again, Delta).invoke(said("x"), config(thread))["messages"][-1].content == "re: x"


def test_a_checkpoint_that_delta_channels_need_cannot_be_removed_alone(saver: HoldfastSaver, thread: str) -> None:
    _talk(saver, thread)
    rows = _rows(saver, thread)
    with pytest.raises(Conflict, match=f"delta channels of checkpoint '{rows[-1].checkpoint_id}' need it"):
        saver.store.delete_checkpoint(thread, rows[-2].checkpoint_id)
    with pytest.raises(Conflict, match="delta channels"):
        saver.store.delete_checkpoint(thread, rows[-2].checkpoint_id, dry_run=True)
    assert saver.store.delete_checkpoint(thread, rows[-1].checkpoint_id).removed
    assert saver.store.verify().ok


def test_a_parent_can_be_removed_alone_once_it_is_folded(saver: HoldfastSaver, thread: str) -> None:
    _talk(saver, thread)
    access, parent = saver.store.access, _rows(saver, thread)[-2]
    access.run(fold(access, thread, Keep(last=1)))
    assert saver.store.delete_checkpoint(thread, parent.checkpoint_id, dry_run=True).removed
    assert saver.store.delete_checkpoint(thread, parent.checkpoint_id).removed == (parent.checkpoint_id,)
    assert _texts(HoldfastSaver(saver.store), thread) == SAID
    assert saver.store.verify().ok


def test_what_delta_channels_need_is_reported_when_it_is_missing(saver: HoldfastSaver, thread: str) -> None:
    _talk(saver, thread)
    assert saver.store.verify().ok
    newest = _rows(saver, thread)[-1]
    saver.store.port.prune(thread, lambda rows, _: [row.number for row in rows[:-1]])
    problems = [problem for problem in saver.store.verify().problems if repr(thread) in problem.place]
    assert [(newest.checkpoint_id in found.place, "delta channels" in found.reason) for found in problems] == [
        (True, True)
    ]
    found = next(finding for finding in health(saver.store).findings if finding.what == "ancestors")
    assert found.level == "bad"
    assert thread in found.detail
    with pytest.raises(DamagedData):
        _texts(HoldfastSaver(saver.store), thread)
    saver.delete_thread(thread)
    assert saver.store.verify().ok


def test_forks_copies_and_archives_have_what_delta_channels_need(saver: HoldfastSaver, thread: str) -> None:
    _talk(saver, thread)
    store = saver.store
    at = _rows(saver, thread)[-2]
    store.fork(thread, f"{thread}-fork", checkpoint_id=at.checkpoint_id)
    store.copy(thread, f"{thread}-copy")
    store.import_run(store.export_run(thread), run_id=f"{thread}-moved")
    saver.delete_thread(thread)
    for name in ("fork", "copy", "moved"):  # the fork has what its last task wrote beside its checkpoint
        store.prune(f"{thread}-{name}", Keep(last=1))
        assert _texts(saver, f"{thread}-{name}") == SAID
    assert store.verify().ok


def test_a_subgraph_is_protected_like_the_graph(saver: HoldfastSaver, thread: str) -> None:
    """A lane needs only checkpoints of that lane; ids are not unique across lanes."""
    for lane in ("", "sub:1"):
        parent = config(thread, lane)
        for step in range(4):
            made = checkpoint({}, channel_versions={"d": step}, id=f"1f0-{step}")
            parent = saver.put(parent, made, delta_described(step), {"d": step})
            saver.put_writes(parent, [("d", step)], f"t{step}")
    done = saver.store.prune(thread, Keep(last=1))
    assert (done.removed, done.kept_more) == ((), {"delta": 6})
    for lane in ("", "sub:1"):
        found = saver.get_delta_channel_history(config=config(thread, lane), channels=["d"])
        assert [write[2] for write in found["d"]["writes"]] == [0, 1, 2]


# --- beside others ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late_calls", [1, 2, 9])
def test_a_checkpoint_put_while_a_prune_decides_is_protected(
    saver: HoldfastSaver, thread: str, late_calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time the prune is about to decide, another turn was saved: once, twice, and more often than it retries."""
    _talk(saver, thread)
    port, other, calls = saver.store.port, HoldfastSaver(saver.store), [0]
    prune = port.prune

    def late(run_id: str, choose: Any, *, reopen: bool = False) -> Any:
        calls[0] += 1
        if calls[0] <= late_calls:
            chat(other, Delta).invoke(said(f"late {calls[0]}"), config(thread))
        return prune(run_id, choose, reopen=reopen)

    monkeypatch.setattr(port, "prune", late)
    done = saver.store.prune(thread, Keep(last=1))
    assert done.kept == len(_rows(saver, thread))
    assert len(_texts(HoldfastSaver(saver.store), thread)) == len(SAID) + 2 * min(calls[0], late_calls)
    assert saver.store.verify().ok


def test_a_delta_checkpoint_is_refused_if_its_parent_was_pruned(saver: HoldfastSaver, thread: str) -> None:
    first = saver.put(config(thread), checkpoint({"d": 1}), described(0), {"d": 1})
    saver.put(first, checkpoint({"d": 2}), described(1), {"d": 2})
    assert saver.store.prune(thread, Keep(last=1)).removed == (id_of(first),)
    with pytest.raises(ParentRemoved):
        saver.put(first, checkpoint({}, channel_versions={"d": 3}), delta_described(2), {"d": 3})
    assert saver.store.verify().ok


def test_a_fork_is_not_made_of_what_was_removed_while_it_was_read(
    saver: HoldfastSaver, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attachments go together with their checkpoint; what was read before may be without them."""
    _talk(saver, thread)
    port, done = saver.store.port, list[int]()
    read = port.rows

    def late(kind: Any, run: int, *, keys: Any = None) -> Any:
        if kind is AttachmentRow and not done and keys is not None:
            done.append(1)
            HoldfastSaver(saver.store).prune([thread])
        return read(kind, run, keys=keys)

    monkeypatch.setattr(port, "rows", late)
    saver.store.fork(thread, f"{thread}-fork")
    assert done
    assert _texts(saver, f"{thread}-fork") == SAID


# --- what is stored --------------------------------------------------------------------------------------------------


def test_records_of_any_size_show_in_their_root_that_they_need_ancestors(saver: HoldfastSaver, thread: str) -> None:
    first = saver.put(config(thread), checkpoint({}, channel_versions={"d": 1}), delta_described(0), {"d": 1})
    channels = {f"channel-{n}": [f"{n} {item} " * 50 for item in range(40)] for n in range(60)}
    wide = delta_described(1, note="x" * 5000, counters={f"k{n}": "y" * 100 for n in range(200)})
    second = saver.put(first, checkpoint(channels), wide, dict.fromkeys(channels, 1))
    many = {f"delta-{n}": (1, 1) for n in range(500)}
    saver.put(second, checkpoint(channels), described(2, counters_since_delta_snapshot=many), {})
    plain = saver.put(config(thread, "plain"), checkpoint({"messages": ["delta"] * 900}), described(0), {})
    saver.put(plain, checkpoint({"messages": ["delta"] * 901}), described(1), {})
    rows = _rows(saver, thread)
    assert [may_need_ancestors(row) for row in rows if not row.lane][1:] == [True, True]
    done = saver.store.prune(thread, Keep(last=1))
    assert done.removed == (id_of(plain),)
    assert done.kept_more == {"delta": 2}


def test_threads_of_earlier_versions_are_protected(tmp_path: Path) -> None:
    golden = Path(__file__).parents[2] / "golden" / "0.1.0" / "langgraph" / "threads.db"
    shutil.copy(golden, tmp_path)
    with holdfast.open(f"sqlite:{tmp_path / 'threads.db'}") as store:
        names = ("delta", "delta-pruned", "delta-copied")
        before = {name: _texts(HoldfastSaver(store), name) for name in names}
        kept = {name: store.prune(name, Keep(last=1)).kept_more for name in names}
        assert kept["delta"]["delta"] > 0
        assert kept["delta-pruned"] == {}  # its fold is enough
        assert {name: _texts(HoldfastSaver(store), name) for name in names} == before
        assert store.verify().ok


def test_a_delta_channel_that_a_graph_gets_later_needs_no_removed_ancestors(saver: HoldfastSaver, thread: str) -> None:
    """What was removed before cannot have written to it."""

    class Wider(TypedDict):
        messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]
        notes: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]

    _talk(saver, thread, Plain)
    saver.prune([thread])
    graph: Any = StateGraph(Wider)
    graph.add_node("agent", lambda _: {"notes": [("user", "noted")]})
    graph.add_edge(START, "agent")
    wider = graph.compile(checkpointer=saver)
    assert texts(wider.invoke(said("x"), config(thread))["notes"]) == ["noted"]
    found = wider.get_state(config(thread)).values
    assert (texts(found["messages"]), texts(found["notes"])) == ([*SAID, "x"], ["noted"])
    assert saver.store.verify().ok


def test_the_protection_is_not_visible_in_the_metadata(saver: HoldfastSaver, thread: str) -> None:
    _talk(saver, thread)
    saver.store.prune(thread, Keep(last=1))
    for one in saver.list(config(thread)):
        assert "holdfast" not in one.metadata

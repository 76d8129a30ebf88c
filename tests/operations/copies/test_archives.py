"""Archives that come from anywhere: what is wrong with one is a typed error, and nothing of it is written."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from blake3 import blake3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import App, DamagedData, HoldfastError, Run, Store
from holdfast.errors import LimitExceeded
from holdfast.limits import CHILDREN_DEPTH_MAX
from holdfast.state import compression
from holdfast.state.values import pack, unpack
from holdfast.testing import ManualClock
from tests.folders import quick_folder

_START = b"holdfast run 3\n"
_RUN, _CHECKPOINTS, _ENTRIES, _EFFECTS, _ATTACHMENTS, _CHUNKS, _GATES, _ITEMS, _TIMERS, _MESSAGES, _CHILDREN = range(11)


def register(app: App) -> None:
    @app.workflow
    def child(run: Run) -> Any:
        return run.ask("of the child?", bool, expires=500)

    @app.workflow
    def parent(run: Run) -> Any:
        run.effect(str, 1)
        run.state["text"] = ["a long text " * 50 + str(i) for i in range(40)]
        run.checkpoint()
        run.send("nobody", "hello")
        early = run.wait_for("early")
        return [early, *run.gather(_child, _ask, _sleep)]


def _child(run: Run) -> Any:
    return run.child("child")


def _ask(run: Run) -> Any:
    return run.ask("ok?", {"ok": bool})


def _sleep(run: Run) -> None:
    run.sleep(500)


def filled(store: Store) -> App:
    """A store with a run that has something of everything."""
    app = App(store)
    register(app)
    app.start("parent", run_id="run")
    store.attach("run", store.runs()[-1].checkpoint_id or "", "note", "x" * 5000)
    app.send("run", "early", 1)
    app.send("run", "late", 2)
    return app


@cache
def content() -> Any:
    """The content of an archive, as plain lists."""
    with holdfast.open("memory:", clock=ManualClock()) as store:
        filled(store)
        archived = plain_of(store.export_run("run"))
    archived[_MESSAGES] = [[1, "nobody", "event", "hello", "key", 1, body_of("you"), 0]]
    assert all(archived[part] for part in (_CHECKPOINTS, _ENTRIES, _EFFECTS, _ATTACHMENTS, _GATES, _ITEMS, _TIMERS))
    assert archived[_CHUNKS]
    assert archived[_CHILDREN]
    return archived


def plain_of(data: bytes) -> Any:
    return msgspec.msgpack.decode(compression.plain(data[len(_START) : -32], 2**30, "it"))


def archive_of(archived: Any, start: bytes = _START) -> bytes:
    data = start + b"\x00" + msgspec.msgpack.encode(archived)
    return data + blake3(data).digest()


def body_of(value: Any) -> bytes:
    return b"\x00" + pack(value)


# --- what is fine ----------------------------------------------------------------------------------------------------


def test_the_archive_that_the_others_are_made_of_is_fine() -> None:
    with holdfast.open("memory:", clock=ManualClock()) as store:
        store.import_run(archive_of(content()))
        assert [info.run_id for info in store.runs()] == ["run", "run/gather#1[0]/child:child#1"]
        assert store.verify().problems == []
        assert sorted(gate.run_id for gate in App(store).gates()) == ["run", "run/gather#1[0]/child:child#1"]


def test_an_archive_of_the_first_version_is_read() -> None:
    with holdfast.open("memory:", clock=ManualClock()) as store:
        store.import_run(archive_of(content()[: _CHUNKS + 1], b"holdfast run 1\n"), run_id="old")
        (info,) = store.runs()
        assert (info.run_id, info.position) == ("old", len(content()[_ENTRIES]))
        assert store.verify().problems == []
        rows = store.port.run_rows("old")
        assert rows is not None
        assert [*rows.gates, *rows.items, *rows.timers, *rows.messages] == []


# --- what is wrong ---------------------------------------------------------------------------------------------------


def _set(*path: Any, value: Any) -> Callable[[Any], None]:
    def change(archived: Any) -> None:
        for part in path[:-1]:
            archived = archived[part]
        archived[path[-1]] = value

    return change


def _twice(part: int) -> Callable[[Any], None]:
    return lambda archived: archived[part].append(archived[part][0])


WRONG: dict[str, Callable[[Any], None]] = {
    "a gate without a name": _set(_GATES, 0, 0, value=""),
    "a gate in no state": _set(_GATES, 0, 1, value="ajar"),
    "a gate twice": _twice(_GATES),
    "a gate that expires after all time": _set(_GATES, 0, 3, value=2**62),
    "a gate answered at no time": _set(_GATES, 0, 1, value="answered"),
    "a gate with nothing in it": _set(_GATES, 0, 6, value=body_of(5)),
    "a gate with no form": _set(_GATES, 0, 6, value=body_of({"v": 1, "prompt": "", "form": 1, "show": 1, "who": [],
                                                            "purpose": "ask"})),
    "an item of no kind": _set(_ITEMS, 0, 1, value="wish"),
    "an item twice": _twice(_ITEMS),
    "an item that is missing": lambda archived: archived[_ITEMS].pop(0),
    "an item without a key": _set(_ITEMS, 0, 3, value=""),
    "an item that nobody can read": _set(_ITEMS, 0, 7, value=b"\x00\xc1"),
    "a timer twice": _twice(_TIMERS),
    "a timer before all time": _set(_TIMERS, 0, 1, value=-1),
    "a message to a control character": _set(_MESSAGES, 0, 1, value="a\x00b"),
    "a message of no kind": _set(_MESSAGES, 0, 2, value="answer"),
    "a message numbered too high": _set(_MESSAGES, 0, 0, value=2**40),
    "a message twice": _twice(_MESSAGES),
    "an effect twice": _twice(_EFFECTS),
    "an effect in no state": _set(_EFFECTS, 0, 2, value="perhaps"),
    "a checkpoint twice": _twice(_CHECKPOINTS),
    "a checkpoint of a time after all": _set(_CHECKPOINTS, 0, 10, value=2**63),
    "a checkpoint with no parent that could be": _set(_CHECKPOINTS, 0, 4, value="\x07"),
    "an attachment twice": _twice(_ATTACHMENTS),
    "an attachment without a key": _set(_ATTACHMENTS, 0, 3, value=""),
    "an entry that is missing": lambda archived: archived[_ENTRIES].pop(2),
    "an entry of another kind": _set(_ENTRIES, 0, 4, value=body_of({"kind": "note", "workflow": "parent", "version": 1,
                                                                    "args": [], "kwargs": {}})),
    "a run that came from nowhere": _set(_RUN, 7, value=b"\xc1"),
    "a child twice": _twice(_CHILDREN),
    "a child nobody waits for": _set(_CHILDREN, 0, _RUN, 1, value="stranger"),
    "a child of another parent": _set(_RUN, 1, value="other"),
    "a damaged child": _set(_CHILDREN, 0, _GATES, 0, 1, value="ajar"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_an_archive_is_told_before_anything_is_written(what: str, tmp_path: Path) -> None:
    archived = copy.deepcopy(content())
    WRONG[what](archived)
    for url in ("memory:", f"sqlite:{tmp_path / 'a.db'}"):
        with holdfast.open(url, clock=ManualClock()) as store:
            with pytest.raises(HoldfastError):
                store.import_run(archive_of(archived))
            assert store.runs() == []
            assert store.stats().chunks == 0


def test_an_archive_with_children_in_children_without_end_is_refused() -> None:
    archived = copy.deepcopy(content())
    deep: Any = archived[_CHILDREN][0]
    for _ in range(CHILDREN_DEPTH_MAX + 1):
        deep = [*copy.deepcopy(content()[:_CHILDREN]), [deep]]
    for levels in (deep, _nested(100_000)):
        with holdfast.open("memory:") as store:
            with pytest.raises((DamagedData, LimitExceeded)):
                store.import_run(archive_of(levels) if isinstance(levels, list) else levels)
            assert store.runs() == []


def _nested(levels: int) -> bytes:
    """An archive whose children lie in one another as deep as nobody can read."""
    inner = msgspec.msgpack.encode(content()[:_CHILDREN])
    head = bytes([0x90 | 11]) + inner[1:]
    data = _START + b"\x00" + (head + b"\x91") * (levels // 1000) + head + b"\x90"
    return data + blake3(data).digest()


_ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, -1, 0, 1, 2**31, 2**63, 2**64 - 1, True, "", "x", "\x00", "a\x7fb", "x" * 600, b"", b"\x00", b"\x00\xc1",
     b"\x01\xff", b"\xff" * 16, [], [[]], {}, "completed", "open", "run", "run/gather#1[0]/child:child#1"]
)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """The content with something in it replaced, removed or doubled, in rows or inside the values they hold."""
    archived = copy.deepcopy(content())
    for _ in range(draw(st.integers(1, 3))):
        _mutate(draw, archived)
    return archived


def _mutate(draw: st.DrawFn, part: Any) -> None:
    places = list(part) if isinstance(part, dict) else list(range(len(part)))
    if not places:
        return
    at = draw(st.sampled_from(places))
    if isinstance(part[at], (list, dict)) and part[at] and draw(st.integers(0, 9)):
        _mutate(draw, part[at])
        return
    if isinstance(part[at], bytes) and part[at][:1] in (b"\x00", b"\x01") and draw(st.booleans()):
        try:
            value = unpack(compression.plain(part[at], 2**24, "it"), "it")
        except DamagedData:
            value = None
        if isinstance(value, (list, dict)) and value:
            _mutate(draw, value)
            part[at] = body_of(value)
            return
    how = draw(st.sampled_from(["odd", "odd", "remove", "double"]))
    if how == "remove":
        del part[at]
    elif how == "double" and isinstance(part, list):
        part.insert(at, copy.deepcopy(part[at]))
    else:
        part[at] = copy.deepcopy(draw(_ODD))  # what is drawn is shared, and may be changed next


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated(), st.sampled_from([None, "new"]))
def test_a_mutated_archive_is_imported_whole_or_refused_with_a_typed_error(archived: Any, run_id: str | None) -> None:
    try:
        data = archive_of(archived)
    except (OverflowError, UnicodeEncodeError):
        return
    with quick_folder("archive") as folder:
        for url in ("memory:", f"sqlite:{folder / 'a.db'}"):
            with holdfast.open(url, clock=ManualClock()) as store:
                _import(store, data, run_id)


def _import(store: Store, data: bytes, run_id: str | None) -> None:
    try:
        info = store.import_run(data, run_id=run_id)
    except HoldfastError:
        assert store.runs() == []
        assert store.stats().chunks == 0
        return
    assert store.verify().problems == []
    assert info.run_id in [each.run_id for each in store.runs()]
    App(store).gates(state=None)
    again = store.export_run(info.run_id)
    with holdfast.open("memory:", clock=ManualClock()) as other:
        other.import_run(again)


def test_an_archive_larger_than_importers_expand_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.operations.archive.ARCHIVE_BYTES_MAX", 1000)
    with holdfast.open("memory:") as store:
        store.save("r", {"text": "x" * 2000})
        with pytest.raises(holdfast.errors.LimitExceeded, match="prune the run first"):
            store.export_run("r")

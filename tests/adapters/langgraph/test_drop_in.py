"""By default the saver reads and writes what LangGraph's own savers do: classes of the user's own, and metadata."""

from __future__ import annotations

import contextvars
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

from holdfast.adapters.langgraph import HoldfastSaver, StrictSerializer, ValueUnreadable
from holdfast.errors import InvalidInput, RunClaimed, StoreClosed
from tests.adapters.langgraph import typed_graphs
from tests.adapters.langgraph.material import checkpoint, config, delta_described, described
from tests.adapters.langgraph.sync_and_async_caller import Caller
from tests.adapters.langgraph.typed_graphs import Item, Urgency, Verdict
from tests.golden.threads import read_threads

_GOLDEN = Path(__file__).parents[2] / "golden" / "0.1.0" / "langgraph" / "threads.db"


@pytest.mark.parametrize("scenario", typed_graphs.SCENARIOS)
def test_graphs_with_classes_of_the_users_own_run_as_on_langgraphs_saver(
    caller: Caller, thread: str, scenario: str
) -> None:
    assert typed_graphs.compare(caller, scenario, f"{scenario}-{thread}")[0] != typed_graphs.FAILED


@pytest.mark.parametrize("variable", ["true", ""])
def test_langgraphs_variable_for_strictness_means_the_same_here(url: str, variable: str) -> None:
    environment = {**os.environ, "LANGGRAPH_STRICT_MSGPACK": variable}
    command = [sys.executable, "-m", "tests.adapters.langgraph.typed_graphs", url, f"strict-{variable}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


def test_the_serde_is_the_one_that_langgraphs_savers_have() -> None:
    with HoldfastSaver("memory:") as saver:
        assert saver.serde is BaseCheckpointSaver.serde
    with HoldfastSaver("memory:", strict=True) as strict:
        assert type(strict.serde) is StrictSerializer
    with HoldfastSaver("memory:", allow=[Item]) as allowing:
        assert type(allowing.serde) is StrictSerializer


def test_threads_of_strict_savers_and_others_are_the_same(caller: Caller, thread: str) -> None:
    strict = Caller(HoldfastSaver(caller.saver.store, allow=[Item, Urgency, Verdict]), caller.kind)
    values = {"items": [Item(f"item {number}", Urgency.HIGH) for number in range(20)], "verdict": None}
    for number, (writer, reader) in enumerate([(strict, caller), (caller, strict)]):
        name = f"{thread}-{number}"
        made = checkpoint(values)
        saved = writer.put(config(name), made, described(), made["channel_versions"])
        writer.put_writes(
            saved, [("verdict", Verdict(approved=True, by="bob")), ("__interrupt__", [Item("x")])], "task"
        )
        found = reader.get_tuple(config(name))
        assert found.checkpoint == made
        assert sorted(found.pending_writes) == sorted(writer.get_tuple(config(name)).pending_writes)
        assert Verdict(approved=True, by="bob") in [value for _, _, value in found.pending_writes]
    strict.close()


def test_threads_that_an_earlier_version_stored_strictly_are_read_as_they_were(folder: Path) -> None:
    with HoldfastSaver(f"sqlite:{shutil.copy(_GOLDEN, folder / 'golden-threads.db')}") as saver:
        assert type(saver.serde) is JsonPlusSerializer
        found = read_threads(saver)
        assert found == read_threads(HoldfastSaver(saver.store, strict=True))
        assert found["odd"][0]["checkpoint"]


# --- the copy that compile() makes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{"strict": True}, {"serde": JsonPlusSerializer(allowed_msgpack_modules=None)}])
def test_a_copy_with_more_types_shares_the_store_and_the_claims(how: Any, thread: str) -> None:
    with HoldfastSaver("memory:", **how) as saver:
        copy: Any = saver.with_allowlist([(Item.__module__, "Item")])
        assert copy is not saver
        assert copy.with_allowlist([(Item.__module__, "Item")]) is copy, "so graphs do not make one for every call"
        made = checkpoint({"item": Item("lamp", "x")})  # type: ignore[arg-type]
        with saver.claim(thread):
            copy.put(config(thread), made, described(), made["channel_versions"])
            with pytest.raises(RunClaimed):
                contextvars.Context().run(copy.put, config(thread), made, described(), made["channel_versions"])
        assert copy.get_tuple(config(thread)).checkpoint == made
        copy.close()
        with pytest.raises(StoreClosed):
            saver.get_tuple(config(thread))


def test_cached_messages_have_no_types_that_another_copy_may_not_read(thread: str) -> None:
    """A message may carry an enum; a strict copy that does not know the type must not be given one made before."""
    with HoldfastSaver("memory:", serde=JsonPlusSerializer(allowed_msgpack_modules=None)) as blind:
        seeing: Any = blind.with_allowlist([(Urgency.__module__, "Urgency")])
        messages = [ToolMessage("done", tool_call_id="1", artifact=[Urgency.HIGH]) for _ in range(20)]
        made = checkpoint({"messages": messages})
        seeing.put(config(thread), made, described(), made["channel_versions"])
        for _ in range(3):  # kept in mind from the second time on
            found = seeing.get_tuple(config(thread)).checkpoint["channel_values"]["messages"]
            assert found[0].artifact == [Urgency.HIGH]
        shown = blind.get_tuple(config(thread))
        assert shown is not None
        assert shown.checkpoint["channel_values"]["messages"][0].artifact == ["high"]


# --- pickle ----------------------------------------------------------------------------------------------------------


class _Reversing(CipherProtocol):
    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "reversed", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return ciphertext[::-1]


_PICKLING = JsonPlusSerializer(pickle_fallback=True)


@pytest.mark.parametrize("serde", [_PICKLING, EncryptedSerializer(_Reversing(), _PICKLING)], ids=["plain", "encrypted"])
def test_pickle_is_not_written_even_by_a_serde_that_would(caller: Caller, thread: str, serde: Any) -> None:
    caller.saver = HoldfastSaver(caller.saver.store, serde=serde)
    saved = caller.put(config(thread), checkpoint({"a": Item("lamp")}), described(), {"a": 1})
    with pytest.raises(InvalidInput, match="pickle"):
        caller.put(saved, checkpoint({"a": object()}, version=2), described(), {"a": 2})
    with pytest.raises(InvalidInput, match="pickle"):
        caller.put_writes(saved, [("a", object())], "task")
    found = caller.get_tuple(config(thread))
    assert (found.checkpoint["channel_values"], found.pending_writes) == ({"a": Item("lamp")}, [])


class _Bomb:
    def __reduce__(self) -> Any:
        return os.abort, ()


@pytest.mark.parametrize("kind", ["pickle", "pickle+aes"])
def test_stored_pickle_is_not_given_to_a_serde_that_would_load_it(
    thread: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.adapters.langgraph import messages

    with HoldfastSaver("memory:", serde=_PICKLING) as saver:
        with monkeypatch.context() as patch:  # as if another program had written it
            patch.setattr(messages, "dump_typed", lambda serde, value: (kind, pickle.dumps(_Bomb())))
            saver.put(config(thread), checkpoint({"a": 1}), described(), {"a": 1})
        with pytest.raises(ValueUnreadable, match="pickle"):
            saver.get_tuple(config(thread))
        with pytest.raises(ValueUnreadable, match="pickle"):
            list(saver.list(config(thread)))


# --- metadata and fields ---------------------------------------------------------------------------------------------


_METADATA: dict[str, Any] = {
    "pair": (1, 2), "nested": {"deep": [("a", (1,))]}, "numbers": {1: "one"}, "float": 1.5, "flag": True,
    "nothing": None, "long": ("word",) * 400, "text": "a.b", "dotted.key": "literal",
}  # fmt: skip


def test_metadata_comes_back_as_langgraphs_savers_give_it(caller: Caller, thread: str) -> None:
    made = checkpoint({"a": 1})
    with SqliteSaver.from_conn_string(":memory:") as theirs:
        theirs.put(config(thread), made, delta_described(3, **_METADATA), made["channel_versions"])
        expected = theirs.get_tuple(config(thread))
    caller.put(config(thread), made, delta_described(3, **_METADATA), made["channel_versions"])
    assert expected is not None
    assert caller.get_tuple(config(thread)).metadata == expected.metadata
    assert caller.list(config(thread))[0].metadata == expected.metadata
    assert expected.metadata["pair"] == [1, 2]  # type: ignore[typeddict-item]


@pytest.mark.parametrize("wanted", [{"pair": [1, 2]}, {"pair": (1, 2)}, {"nested": {"deep": [["a", [1]]]}},
                                    {"numbers": {"1": "one"}}, {"flag": True, "float": 1.5}])  # fmt: skip
def test_metadata_is_found_by_a_filter_of_lists(caller: Caller, thread: str, wanted: dict[str, Any]) -> None:
    made = checkpoint({"a": 1})
    caller.put(config(thread), made, described(3, **_METADATA), made["channel_versions"])
    assert len(caller.list(config(thread), filter=wanted)) == 1
    assert caller.list(config(thread), filter={**wanted, "pair": [2, 1]}) == []


def test_a_dot_in_a_filter_is_part_of_the_name(caller: Caller, thread: str) -> None:
    """As on LangGraph's PostgreSQL saver; its SQLite saver searches nested metadata (docs/langgraph.md)."""
    made = checkpoint({"a": 1})
    caller.put(config(thread), made, described(3, **_METADATA), made["channel_versions"])
    assert len(caller.list(config(thread), filter={"dotted.key": "literal"})) == 1
    assert caller.list(config(thread), filter={"nested.deep": [["a", [1]]]}) == []


@pytest.mark.parametrize("updated", [None, [], ["a"]])
def test_updated_channels_that_are_missing_stay_missing(caller: Caller, thread: str, updated: Any) -> None:
    made: Any = checkpoint({"a": 1})
    del made["updated_channels"]
    saved = caller.put(config(thread), made, described(), made["channel_versions"])
    assert caller.get_tuple(config(thread)).checkpoint == made
    there = checkpoint({"a": 1}, version=2, updated_channels=updated)
    caller.put(saved, there, described(1), there["channel_versions"])
    assert [each.checkpoint for each in caller.list(config(thread))] == [there, made]

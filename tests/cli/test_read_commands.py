"""The reading commands as users run them: list, show, log, diff, gates, effects, verify, doctor."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import holdfast
from tests.cli import shop
from tests.cli.processes import Done
from tests.cli.processes import command as run
from tests.cli.terminal import Terminal
from tests.store.postgres.shared_servers import new_url

READING = ("list", "show", "log", "diff", "gates", "effects", "verify", "doctor")
LONG = "order-with-a-very-long-id-that-nobody-may-ever-cut-because-people-copy-it-0123456789"


class Shop(NamedTuple):
    """A store with runs in every status, in a directory."""

    folder: Path
    url: str
    app: holdfast.App

    def __call__(self, *arguments: str, **env: str) -> Done:
        return run(*arguments, cwd=self.folder, HOLDFAST_STORE=self.url, **env)

    def data(self, *arguments: str) -> Any:
        done = self(*arguments, "--json")
        assert done.code == 0, done
        return done.data


@pytest.fixture(params=["sqlite", "dir", "postgres"])
def shop_at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    local = {"sqlite": f"sqlite:{tmp_path}/runs.db", "dir": f"dir:{tmp_path}/runs"}
    url = local.get(request.param) or new_url()
    with shop.make(url) as app:
        app.start("refund", "A-17", run_id="order-17", metadata={"team": "a", "n": 1})
        app.start("refund", "A-18", run_id=LONG)
        app.answer(LONG, {"approve": True, "note": "fine"}, by="ana")
        app.start("agent", 4, run_id="agent-1")
        yield Shop(tmp_path, url, app)


def test_list_filters_and_pages(shop_at: Shop) -> None:
    done = shop_at("list")
    assert done.code == 0
    assert [line.split()[:2] for line in done.out.splitlines()] == [
        ["RUN", "STATUS"], ["agent-1", "completed"], [LONG, "waiting"], ["order-17", "waiting"],
    ]  # fmt: skip
    assert "\x1b" not in done.out
    ids = [found["run_id"] for found in shop_at.data("list", "--status", "waiting", "--workflow", "refund")["runs"]]
    assert ids == [LONG, "order-17"]
    assert [found["run_id"] for found in shop_at.data("list", "--meta", "team=a", "--meta", "n=1")["runs"]] == [
        "order-17"
    ]
    assert shop_at.data("list", "--meta", 'n="1"')["runs"] == []
    page = shop_at.data("list", "--limit", "1")
    assert [found["run_id"] for found in page["runs"]] == ["agent-1"]
    page = shop_at.data("list", "--limit", "1", "--after", page["cursor"])
    assert [found["run_id"] for found in page["runs"]] == [LONG]
    assert len(shop_at.data("list", "--all")["runs"]) == 3
    assert [found["run_id"] for found in shop_at.data("list", "--prefix", "order-1")["runs"]] == ["order-17"]
    assert shop_at("list", "--status", "nonsense").code == 2
    assert shop_at("list", "--meta", "nonsense").code == 2


def test_show_tells_what_a_run_did_and_what_to_type(shop_at: Shop) -> None:
    done = shop_at("show", "order-17")
    assert done.code == 0
    assert "order-17  waiting  refund" in done.out
    assert "step price " in done.out
    assert "? Refund this order?" in done.out
    assert "  holdfast answer order-17 approve='yes|no' note=…" in done.out.splitlines()
    done = shop_at("show", LONG, "--full")
    assert f"{LONG}  waiting  refund" in done.out
    assert "receipt of A-18" in done.out
    assert "by ana" in done.out
    data = shop_at.data("show", LONG)
    assert [(row["kind"], row["state"]) for row in data["rows"] if row["kind"] != "gap"] == [
        ("started", "done"), ("step", "done"), ("ask", "done"), ("effect", "done"), ("ask", "waiting"),
    ]  # fmt: skip
    assert data["standing"]["commands"] == [["holdfast", "answer", LONG]]
    assert data["effects"][0]["state"] == "done"


def test_show_folds_turns_and_prints_states(shop_at: Shop) -> None:
    assert "turns 1 to 3" in shop_at("show", "agent").out
    opened = shop_at("show", "agent", "--turns").out
    assert "turns 1 to 3" not in opened
    assert "turn 2" in opened
    assert len(json.loads(shop_at("show", "agent-1", "--state").out)["messages"]) == 4
    state = shop_at.data("show", "agent-1~2")
    assert len(state["state"]["messages"]) == 2
    assert state["run_id"] == "agent-1"


def test_log_prints_the_journal_and_the_family(shop_at: Shop) -> None:
    lines = shop_at("log", "order-17").out.splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3"]
    assert "asked" in lines[2]
    data = shop_at.data("log", "order-17", "--after", "1", "--limit", "1")
    assert [entry["position"] for entry in data["entries"]] == [2]
    assert data["cursor"] == "journal.2"
    shop_at.app.fork("agent-1", "agent-2", at="loop#1")
    done = shop_at("log", "agent-2", "--graph")
    assert "◉ agent-1  completed  agent" in done.out
    assert "├─◉ agent-2" in done.out
    assert [branch["depth"] for branch in shop_at.data("log", "agent-1", "--graph")["branches"]] == [0, 1]


def test_log_follows_a_run_to_its_end(shop_at: Shop) -> None:
    with Terminal("log", "order-17", "--follow", cwd=shop_at.folder, HOLDFAST_STORE=shop_at.url) as terminal:
        terminal.expect("asked")
        shop_at.app.answer("order-17", {"approve": False, "note": ""}, by="ben")
        terminal.expect("completed")
        assert terminal.wait() == 0


def test_diff_shows_a_tree_or_a_patch(shop_at: Shop) -> None:
    done = shop_at("diff", "agent-1~2", "agent-1~1")
    assert done.out.splitlines()[:3] == ["state", "└─ messages", "   └─ [2]: + " + done.out.splitlines()[2][13:]]
    assert len(done.out.splitlines()[2]) < 230
    patch = shop_at.data("diff", "agent-1~2", "agent-1~1")
    assert [(change["op"], change["path"]) for change in patch] == [("add", "/messages/2")]
    assert len(patch[0]["value"]) > 1000, "JSON is never shortened"
    assert shop_at("diff", "agent-1", "agent-1").out == ""
    assert shop_at("diff", "order-17", "agent-1").code == 4, "it has no checkpoint yet"


def test_gates_are_the_inbox(shop_at: Shop) -> None:
    assert [gate["prompt"] for gate in shop_at.data("gates")["gates"]] == [
        "Refund this order?", "Is the customer content?",
    ]  # fmt: skip
    assert len(shop_at.data("gates", LONG)["gates"]) == 1
    states = [gate["state"] for gate in shop_at.data("gates", LONG, "--all")["gates"]]
    assert states == ["answered", "open"]
    done = shop_at("gates", "order-17")
    assert "order-17" in done.out
    assert "holdfast answer order-17 approve='yes|no' note=…" in done.err


def test_effects_verify_and_doctor(shop_at: Shop) -> None:
    assert shop_at.data("effects", LONG)["effects"][0]["result"] == "receipt of A-18"
    assert shop_at.data("effects", LONG, "--state", "in_doubt")["effects"] == []
    assert "receipt of A-18" in shop_at("effects", LONG).out
    key = shop_at.data("effects", LONG)["effects"][0]["idempotency_key"]
    assert len(key) == 32
    assert key in shop_at("effects", LONG).out
    assert key in shop_at("show", LONG).out
    assert shop_at.data("show", LONG)["effects"][0]["idempotency_key"] == key
    report = shop_at.data("verify")
    assert (report["ok"], report["problems"], report["runs"]) == (True, [], 3)
    assert "no problems found" in shop_at("verify").out
    done = shop_at("doctor")
    risky = shop_at.url.startswith("postgresql")  # the servers of tests do not sync
    assert done.code == int(risky), done
    assert "ok    store: reachable" in done.out
    assert shop_at("doctor", "--json").data["ok"] is not risky


def test_a_run_is_named_by_its_beginning_and_mistakes_have_their_codes(shop_at: Shop) -> None:
    assert shop_at.data("show", "agent")["run"]["run_id"] == "agent-1"
    assert shop_at.data("show", "@latest")["run"]["run_id"] == "agent-1"
    done = shop_at("show", "order")
    assert done.code == 2
    assert LONG in done.err
    assert "order-17" in done.err
    done = shop_at("show", "agnet-1", "--json")
    assert done.code == 4
    assert "did you mean 'agent-1'?" in done.data["error"]["message"]
    assert shop_at("diff", "agent-1~99").code == 4
    assert shop_at("log", "agent-1", "--after", "nonsense").code == 2


@pytest.mark.parametrize("verb", READING)
def test_looking_makes_no_store(verb: str, tmp_path: Path) -> None:
    arguments = [verb, "order-17"] if verb in ("show", "log", "diff", "effects") else [verb]
    done = run(*arguments, cwd=tmp_path)
    assert done.code == 4
    assert "there is no store at sqlite:holdfast.db yet" in done.err
    assert list(tmp_path.iterdir()) == []


def test_damage_is_found_and_told(tmp_path: Path) -> None:
    import apsw

    with holdfast.open(f"sqlite:{tmp_path}/holdfast.db") as store:
        store.save("good", 1)
        store.save("harmed", 1)
    connection = apsw.Connection(str(tmp_path / "holdfast.db"))
    connection.execute("UPDATE runs SET step = 77 WHERE run_id = 'harmed'")
    connection.close()
    done = run("verify", cwd=tmp_path)
    assert done.code == 1
    assert "'harmed'" in done.out
    assert run("verify", "--json", cwd=tmp_path).data["ok"] is False
    done = run("list", cwd=tmp_path)
    assert done.code == 0
    assert "good" in done.out
    assert "harmed" in done.err
    assert run("doctor", cwd=tmp_path).code == 1


def test_a_store_that_cannot_be_reached_is_told_by_doctor(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").write_bytes(b"this is no database" * 100)
    done = run("doctor", "--json", cwd=tmp_path)
    assert done.code == 1
    assert done.data["findings"][0]["level"] == "bad"
    assert done.data["source"] == "default"


# --- in a terminal ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 40])
def test_ids_and_statuses_are_whole_in_a_narrow_terminal(shop_at: Shop, columns: int) -> None:
    for arguments in (("list",), ("show", LONG), ("gates",), ("log", LONG, "--graph")):
        with Terminal(*arguments, cwd=shop_at.folder, columns=columns, HOLDFAST_STORE=shop_at.url) as terminal:
            assert terminal.wait() == 0
            text = terminal.text if arguments[0] == "show" else re.sub(r"\n[ │]*", "", terminal.text)
            assert LONG in text, arguments
            assert "waiting" in terminal.text or arguments[0] == "gates"
    assert "\x1b[" in terminal.raw, "a terminal has colours"


def test_times_are_human_in_a_terminal_and_colours_can_be_refused(shop_at: Shop) -> None:
    with Terminal("list", cwd=shop_at.folder, HOLDFAST_STORE=shop_at.url, NO_COLOR="1", columns=200) as terminal:
        assert terminal.wait() == 0
        assert " ago" in terminal.text
        assert "\x1b[" not in terminal.raw
    assert "T" in shop_at("list").out.splitlines()[1].split()[3], "a pipe gets ISO 8601"


def test_nothing_stored_can_move_the_cursor(tmp_path: Path) -> None:
    odd = "\u202e\u200bid"
    with holdfast.open(f"sqlite:{tmp_path}/holdfast.db") as store:
        store.save(odd, {"a\x1b[31m": "\x1b[2J\x9b2J"}, metadata={"k\x9b": "\x1b[31m"}, workflow=odd, next_node=odd)
        store.append(odd, [{"kind": "note", "text": "\x1b[2J\u202e"}])
        store.save(odd, {"a\x1b[31m": "\x1b[1J"}, checkpoint_id=odd)
        store.mark_intent(odd, odd, tool=odd, target=odd)
    arguments: list[tuple[str, ...]] = [("list",), ("show",), ("log",), ("log", "--graph"), ("diff",)]
    for verb, *options in [*arguments, ("show", "--state"), ("show", "--full"), ("effects",), ("doctor",)]:
        named = [] if verb in ("list", "doctor") else ["@latest"]
        done = run(verb, *named, *options, cwd=tmp_path)
        assert done.code == 0, done
        unprintable = {char for char in done.out + done.err if not char.isprintable() and char != "\n"}
        assert not unprintable, (verb, unprintable)


def test_doctor_samples_a_store_with_many_runs(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:{tmp_path}/holdfast.db") as store:
        store.save("first", {"a": 1})
        with store.port._writing() as writer:  # type: ignore[attr-defined]
            columns = [row[1] for row in writer.connection.execute("PRAGMA table_info(runs)")]
            changed = {"run": "n + 10", "run_id": "'fill ' || n", "family": "n + 10"}
            chosen = ", ".join(changed.get(column, f"r.{column}") for column in columns)
            writer.connection.execute(
                "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 100000) "
                f"INSERT INTO runs SELECT {chosen} FROM c CROSS JOIN runs r WHERE r.run_id = 'first'"
            )
    done = run("doctor", "--json", cwd=tmp_path)
    assert done.data["complete"] is False
    assert done.data["sampled"] <= 400

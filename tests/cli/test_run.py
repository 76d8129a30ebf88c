"""`holdfast run`: a declared workflow from the command line, with and without a terminal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.processes import PROJECT, command
from tests.cli.terminal import CTRL_C, Terminal

EXAMPLES = Path(PROJECT) / "examples"


@pytest.fixture
def refund(tmp_path: Path) -> Path:
    """The refund example, in a directory of its own."""
    return Path(shutil.copytree(EXAMPLES / "refund", tmp_path / "refund"))


def payments(folder: Path) -> list[dict[str, object]]:
    path = folder / "payments.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_run_without_a_question_ends_with_its_result(refund: Path) -> None:
    done = command("run", "flow.yaml", "--input", "order=B-2", "--run-id", "b2", cwd=refund)
    assert done.code == 0, done.err
    assert "✓ pay" in done.out
    assert "b2 is completed" in done.out
    assert '"paid": 20' in done.out
    again = command("run", "flow.yaml", "--input", "order=B-2", "--run-id", "b2", "--json", cwd=refund)
    assert again.data["result"]["paid"] == 20
    assert len(payments(refund)) == 2, "the same run, so nothing is done twice"


def test_without_a_terminal_it_stops_at_a_question_and_says_how_to_answer(refund: Path) -> None:
    done = command("run", "flow.yaml", "--input", "order=A-17", "--run-id", "order-17", cwd=refund)
    assert done.code == 3
    assert "waits for an answer: Refund 140 EUR for order A-17?" in done.out
    said = next(line for line in done.out.splitlines() if "holdfast answer" in line).split()
    assert said[:3] == ["holdfast", "answer", "order-17"]
    found = command("run", "flow.yaml", "-i", "order=A-17", "--run-id", "order-17", "--json", cwd=refund)
    assert (found.code, found.data["status"], found.data["gates"][0]["prompt"]) == (
        3, "waiting", "Refund 140 EUR for order A-17?",
    )  # fmt: skip
    assert payments(refund) == []
    answered = command("answer", "order-17", "approve=yes", "--by", "ana", cwd=refund)
    assert (answered.code, "order-17 is completed" in answered.out) == (0, True)
    assert [next(iter(line)) for line in payments(refund)] == ["paid", "told"]


def test_in_a_terminal_its_questions_are_asked_here(refund: Path) -> None:
    with Terminal("run", "flow.yaml", "--run-id", "order-17", "--by", "ana", cwd=refund) as terminal:
        terminal.expect("as on the invoice")
        terminal.expect("Order")
        terminal.send("A-17\n")
        terminal.expect("✓ price")
        terminal.expect("Refund 140 EUR for order A-17?")
        terminal.expect('"amount": 140')
        terminal.expect("(y/n)")
        terminal.send("perhaps\n")
        terminal.expect("yes or no")
        terminal.send("y\n")
        terminal.expect("A note for the customer")
        terminal.send("\n")
        terminal.expect("✓ approve  by ana")
        terminal.expect("order-17 is completed")
        terminal.expect('"paid": 140')
        assert terminal.wait() == 0
    assert len(payments(refund)) == 2


def test_ctrl_c_at_a_question_leaves_the_run_waiting_and_says_how_to_go_on(refund: Path) -> None:
    with Terminal("run", "flow.yaml", "-i", "order=A-17", "--run-id", "order-17", cwd=refund) as terminal:
        terminal.expect("(y/n)")
        terminal.send(CTRL_C)
        terminal.expect("The question is still open: holdfast answer order-17")
        assert terminal.wait() == 130
    assert command("run", "flow.yaml", "-i", "order=A-17", "--run-id", "order-17", cwd=refund).code == 3
    with Terminal("run", "flow.yaml", "-i", "order=A-17", "--run-id", "order-17", cwd=refund) as terminal:
        terminal.expect("(y/n)")
        terminal.send("n\n")
        terminal.expect("A note")
        terminal.send("\n")
        terminal.expect("completed")
        assert terminal.wait() == 0
    assert payments(refund) == []


def test_a_failing_stage_compensates_and_the_exit_code_is_1(refund: Path) -> None:
    command("run", "flow.yaml", "-i", "order=A-13", "--run-id", "r", "--json", cwd=refund)
    command("answer", "r", "approve=yes", "--enqueue", cwd=refund)
    done = command("run", "flow.yaml", "-i", "order=A-13", "--run-id", "r", cwd=refund)
    assert done.code == 1
    assert "stage 'tell' failed: ConnectionRefusedError" in done.out
    assert "1 effect was undone" in done.out
    assert [next(iter(line)) for line in payments(refund)] == ["paid", "taken back"]


def test_a_changed_file_is_refused_with_a_diff_until_told_to_migrate(refund: Path) -> None:
    run = ("run", "flow.yaml", "-i", "order=A-17", "--run-id", "order-17")
    assert command(*run, cwd=refund).code == 3
    flow = refund / "flow.yaml"
    flow.write_text(flow.read_text().replace("{paid: 0}", "{paid: nothing}"))
    refused = command(*run, cwd=refund)
    assert refused.code == 5
    assert "stage 'denied'.result.paid: 0 → 'nothing'" in refused.err
    assert "store: sqlite:holdfast.db (default)" in refused.err
    assert command("graph", "migrate", "order-17", "flow.yaml", "--by", "ben", cwd=refund).code == 0
    answered = command("answer", "order-17", "approve=no", cwd=refund)
    assert answered.code == 0
    assert command(*run, "--json", cwd=refund).data["result"] == {"paid": "nothing"}
    flow.write_text(flow.read_text().replace("paid: nothing", "paid: zero"))
    assert command("run", "flow.yaml", "-i", "order=A-18", "--run-id", "order-18", cwd=refund).code == 3
    flow.write_text(flow.read_text().replace("paid: zero", "paid: none"))
    again = ("run", "flow.yaml", "-i", "order=A-18", "--run-id", "order-18")
    assert command(*again, cwd=refund).code == 5
    assert command(*again, "--migrate", cwd=refund).code == 3


def test_a_function_nobody_registered_is_refused_before_anything_is_written(refund: Path) -> None:
    (refund / "pyproject.toml").unlink()
    done = command("run", "flow.yaml", "-i", "order=B-1", "--run-id", "b", "--json", cwd=refund)
    assert done.code == 2
    assert "no function 'price' is registered" in done.data["error"]["message"]
    assert any("--app" in problem for problem in done.data["error"]["problems"])
    assert command("list", "--json", cwd=refund).data["runs"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing.yaml",), "cannot be read"), (("refund",), "no workflow 'refund'"),
        (("app.py",), "is not a definition"),
        (("flow.yaml", "-i", "order"), "write name=value"), (("flow.yaml", "-i", "ordr=A"), "order"),
        (("flow.yaml", "--input-file", "flow.yaml"), "is not JSON"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_and_nothing_is_started(refund: Path, arguments: tuple[str, ...], said: str) -> None:
    done = command("run", *arguments, cwd=refund)
    assert done.code in (2, 4)
    assert said in done.err
    assert "store: sqlite:holdfast.db (default)" in done.err


def test_a_workflow_of_code_can_be_run_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "import holdfast\n"
        "def make(url):\n"
        "    app = holdfast.App(url)\n"
        "    @app.workflow\n"
        "    def greet(run, name, times=1):\n"
        "        return run.step(lambda: [name] * times, name='greet')\n"
        "    return app\n"
    )
    done = command("run", "greet", "--app", "app.py:make", "-i", "name=ana", "-i", "times=2", "--json", cwd=tmp_path)
    assert done.data["result"] == ["ana", "ana"]


def test_timers_that_are_due_soon_are_waited_for_and_others_are_left(tmp_path: Path) -> None:
    nap = {"id": "nap", "stages": [{"id": "s", "type": "sleep", "seconds": "{{ input.s }}"}]}
    (tmp_path / "nap.json").write_text(json.dumps(nap))
    short = command("run", "nap.json", "-i", "s=1.2", cwd=tmp_path)
    assert (short.code, "is completed" in short.out) == (0, True)
    long = command("run", "nap.json", "-i", "s=3600", "--run-id", "long", cwd=tmp_path)
    assert (long.code, "long is waiting" in long.out, "a timer is due in" in long.out) == (0, True, True)


def test_a_breakpoint_asks_in_a_terminal_and_is_left_without_one(tmp_path: Path) -> None:
    flow = {"id": "f", "stages": [{"id": "one", "type": "set", "values": {"x": 1}, "breakpoint": "look first"}]}
    (tmp_path / "f.json").write_text(json.dumps(flow))
    done = command("run", "f.json", "--run-id", "a", cwd=tmp_path)
    assert (done.code, "look first; continue with: holdfast resume a" in done.out) == (0, True)
    assert command("resume", "a", cwd=tmp_path).out.strip() == "a is completed"
    with Terminal("run", "f.json", "--run-id", "b", cwd=tmp_path) as terminal:
        terminal.expect("Paused: look first. Continue?")
        terminal.send("y\n")
        terminal.expect("b is completed")
        assert terminal.wait() == 0


def test_the_research_agent_asks_when_its_budget_is_spent(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLES / "research", tmp_path / "research"))
    with Terminal("run", "flow.yaml", "-i", "question=lamps", cwd=folder) as terminal:
        terminal.expect("3 of 3 units are spent")
        terminal.expect("Go on (y/n)")
        terminal.send("y\n")
        terminal.expect("New budget")
        terminal.send("\n")
        terminal.expect("On lamps:")
        assert terminal.wait() == 0


def test_the_nightly_batch_skips_what_fails_and_asks_if_that_is_much(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLES / "nightly", tmp_path / "nightly"))
    few = command("run", "flow.yaml", "--json", cwd=folder)
    assert (few.code, few.data["result"]) == (0, {"day": "2026-11-16", "sent": 11, "failed": 1})
    many = command("run", "flow.yaml", "-i", "count=40", "--run-id", "many", cwd=folder)
    assert (many.code, "invoices  37 done, 3 failed" in many.out) == (3, True)
    assert command("answer", "many", "publish=no", cwd=folder).code == 1, "it went on, and failed"
    assert "3 invoices failed, and nobody wanted the rest" in command("show", "many", cwd=folder).out


# --- graph -----------------------------------------------------------------------------------------------------------


def test_every_example_verifies_with_its_functions(tmp_path: Path) -> None:
    for name in ("refund", "research", "nightly"):
        folder = Path(shutil.copytree(EXAMPLES / name, tmp_path / name))
        done = command("graph", "verify", "flow.yaml", "--strict", "--json", cwd=folder)
        assert (done.code, done.data["findings"]) == (0, []), name
        assert not (folder / "holdfast.db").exists()


def test_verify_says_what_is_wrong_with_its_line(refund: Path) -> None:
    flow = refund / "flow.yaml"
    flow.write_text(
        flow.read_text().replace("function: pay", "function: pai").replace("{{ quote.amount }}", "{{ qoute }}")
    )
    done = command("graph", "verify", "flow.yaml", cwd=refund)
    assert done.code == 1
    line = next(n for n, text in enumerate(flow.read_text().splitlines(), 1) if "id: pay" in text)
    assert f"flow.yaml line {line}: error: stage 'pay': no function 'pai' is registered" in done.out
    assert "no stage or variable writes 'qoute'" in done.out
    found = command("graph", "verify", "flow.yaml", "--json", cwd=refund).data
    assert found["ok"] is False
    assert {"level", "code", "message", "stage", "line", "path"} == set(found["findings"][0])


def test_a_picture_of_a_run_marks_where_it_stands(refund: Path) -> None:
    command("run", "flow.yaml", "-i", "order=A-17", "--run-id", "order-17", cwd=refund)
    found = command("graph", "draw", "order-17", "--json", cwd=refund).data
    assert (found["current"], found["id"]) == ("approve", "refund")
    assert "class s1 current" in found["mermaid"]
    assert "current" not in command("graph", "draw", "flow.yaml", cwd=refund).out


def test_a_dry_run_walks_without_a_store(refund: Path) -> None:
    done = command("graph", "dry-run", "flow.yaml", "-i", "order=A-17", "--result", 'price={"amount": 9}', cwd=refund)
    assert done.code == 0, done.err
    assert "performs pay(order='A-17', amount=9), undone by take_back" in done.out
    assert not (refund / "holdfast.db").exists()
    assert payments(refund) == []


def test_the_schema_is_json(tmp_path: Path) -> None:
    assert json.loads(command("graph", "schema", cwd=tmp_path).out)["title"] == "Holdfast declared workflow"


def test_a_workflow_of_another_process_is_only_started_if_that_is_said(refund: Path) -> None:
    missing = command("run", "elsewhere", "-i", "a=1", cwd=refund)
    assert missing.code != 0
    assert "this app has no workflow 'elsewhere'" in missing.err
    done = command("run", "elsewhere", "-i", "a=1", "--run-id", "e", "--enqueue", cwd=refund)
    assert done.code == 0, done.err
    assert "e is ready" in done.out


def test_wrong_input_of_a_workflow_of_code_is_explained(tmp_path: Path) -> None:
    (tmp_path / "items.py").write_text(
        "import holdfast\n"
        "app = holdfast.App('sqlite:holdfast.db')\n"
        "@app.workflow\n"
        "def report(run, numbers: list[str]):\n"
        "    return run.ask('Fine?', bool)\n"
    )
    for given, words in (
        (("num=3",), "takes no input 'num': did you mean 'numbers'? it takes numbers"),
        (("numbers=I-1,I-2",), "values of --input are JSON"),
        (("numbers=[]", "numbers=[]"), "numbers is given twice"),
    ):
        options = [part for pair in given for part in ("-i", pair)]
        done = command("run", "report", "--app", "items:app", *options, cwd=tmp_path)
        assert (done.code, words in " ".join(done.err.split())) == (2, True), done.err


def test_check_names_the_error_of_a_workflow_that_gained_a_parameter(tmp_path: Path) -> None:
    code = "import holdfast\napp = holdfast.App('sqlite:holdfast.db')\n"
    code += "@app.workflow\ndef w(run{}):\n    run.ask('?', bool)\n"
    (tmp_path / "old.py").write_text(code.format(""))
    (tmp_path / "new.py").write_text(code.format(", extra"))
    assert command("run", "w", "--app", "old:app", "--run-id", "r", cwd=tmp_path).code == 3
    done = command("check", "r", "--app", "new:app", "--json", cwd=tmp_path)
    assert done.code == 5
    assert "TypeError: w() missing 1 required positional argument: 'extra'" in done.data["runs"][0]["detail"]


def test_a_run_is_started_for_later(refund: Path) -> None:
    for when in (("--after", "3600"), ("--at", "2100-01-01T09:00+01:00")):
        done = command("run", "flow.yaml", "--input", "order=B-2", *when, "--json", cwd=refund)
        assert done.data["status"] == "waiting"
    for wrong, text in (("tomorrow", "--at must be a time"), ("2100-01-01T09:00", "time zone")):
        done = command("run", "flow.yaml", "--input", "order=B-2", "--at", wrong, cwd=refund)
        assert done.code == 2
        assert text in done.err
    assert payments(refund) == []

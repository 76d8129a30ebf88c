"""`holdfast answer`, in pipes."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote

import holdfast
from tests.cli.processes import Done
from tests.cli.processes import command as run

MAKE = "tests.cli.shop:make"


def answer(folder: Path, url: str, *arguments: str, **more: str) -> Done:
    return run("answer", *arguments, "--store", url, cwd=folder, **more)


def test_values_are_typed_by_the_form_and_a_worker_is_left_the_rest(
    app: holdfast.App, tmp_path: Path, url: str
) -> None:
    app.start("refund", "A-17", run_id="order-17")
    done = answer(tmp_path, url, "order-17", "approve=no", "note=too late", "--by", "ana")
    assert done.code == 0, done.err
    assert "order-17 is ready" in done.out
    assert "left for a worker: holdfast worker --app" in done.out
    assert app.handle("order-17").result(timeout=240) == {"paid": None}
    (gate,) = app.gates("order-17", state="answered")
    assert gate.answered_by == "ana"


def test_the_list_of_gates_shortens_long_questions_and_show_has_the_whole(
    app: holdfast.App, tmp_path: Path, url: str
) -> None:
    @app.workflow
    def long(run: holdfast.Run) -> object:
        return run.ask("Refund?\n\n" + "because " * 1000 + "of the end", {"ok": bool})

    app.start(long, run_id="long")
    listed = run("gates", "--store", url, cwd=tmp_path)
    assert "Refund? because because" in listed.out
    assert "of the end" not in listed.out
    assert len(listed.out) < 1000
    assert "of the end" in run("show", "long", "--full", "--store", url, cwd=tmp_path).out


def test_with_the_app_the_run_goes_on_here_and_the_next_question_is_named(
    app: holdfast.App, tmp_path: Path, url: str
) -> None:
    app.start("refund", "A-17", run_id="order-17")
    notes = tmp_path / "notes"
    done = answer(tmp_path, url, "order-17", "approve=yes", "note=", "--app", MAKE, SHOP_NOTES=str(notes))
    assert done.code == 0, done.err
    assert "order-17 is waiting" in done.out
    assert "Is the customer content?" in done.out
    assert "holdfast answer order-17 content='yes|no'" in done.out
    assert notes.read_text() == "pay A-17\n"


def test_with_leave_it_is_only_recorded(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("refund", "A-17", run_id="order-17")
    done = answer(tmp_path, url, "order-17", "approve=yes", "note=x", "--app", MAKE, "--enqueue", "--json")
    assert done.data["status"] == "ready"
    assert done.data["answer"] == {"approve": True, "note": "x"}


def test_a_bad_answer_lists_all_its_problems_and_changes_nothing(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("refund", "A-17", run_id="order-17")
    done = answer(tmp_path, url, "order-17", "approve=perhaps", "colour=red", "nothing")
    assert (done.code, done.out) == (2, "")
    for words in ("yes or no", "'colour'", "'nothing'", "note is missing"):
        assert words in done.err
    as_json = answer(tmp_path, url, "order-17", "approve=perhaps", "--json")
    assert as_json.code == 2
    assert len(as_json.data["error"]["problems"]) == 2
    assert [gate.state for gate in app.gates("order-17", state=None)] == ["open"]


def test_the_second_answer_is_a_conflict_that_names_the_first(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("refund", "A-17", run_id="order-17")
    assert answer(tmp_path, url, "order-17", "approve=no", "note=", "--by", "ana").code == 0
    for more in ((), ("--gate", app.gates("order-17", state="answered")[0].gate)):
        done = answer(tmp_path, url, "order-17", "approve=yes", "note=", "--by", "ben", "--json", *more)
        assert done.code == 5
        assert done.data["error"]["type"] == "AlreadyAnswered"
        assert done.data["error"]["by"] == "ana"
        assert "'ana'" in done.err


def test_a_file_or_standard_input_may_hold_the_answer(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("refund", "A-17", run_id="one")
    app.start("refund", "A-18", run_id="two")
    (tmp_path / "answer.json").write_text(json.dumps({"approve": False, "note": "file"}))
    assert answer(tmp_path, url, "one", "note=argument", "--file", "answer.json").code == 0
    done = run(
        "answer", "two", "--file", "-", "--store", url, cwd=tmp_path, stdin='{"approve": false, "note": "in"}'
    )  # fmt: skip
    assert done.code == 0, done.err
    assert app.handle("one").result(timeout=240) == app.handle("two").result(timeout=240) == {"paid": None}
    assert answer(tmp_path, url, "one", "--file", "missing.json").code in (2, 5)


def test_without_a_terminal_nothing_is_asked(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("refund", "A-17", run_id="order-17")
    done = answer(tmp_path, url, "order-17")
    assert done.code == 2
    assert "holdfast answer order-17 approve='yes|no' note=…" in done.err


def test_an_unknown_run_or_gate_is_told(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("refund", "A-17", run_id="order-17")
    assert answer(tmp_path, url, "nobody", "approve=yes").code == 4
    assert answer(tmp_path, url, "order-17", "approve=yes", "--gate", "no-such").code == 5


def test_who_may_not_answer_is_told_before_typing(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.workflow(name="guarded")(lambda run: run.ask("Ship?", bool, who=["ana"]))
    app.start("guarded", run_id="g")
    done = answer(tmp_path, url, "g", "yes", "--by", "ben")
    assert done.code == 2
    assert "'ben' may not answer it; it is for ana" in done.err
    assert answer(tmp_path, url, "g", "yes", "--by", "ana").code == 0
    assert app.handle("g").result(timeout=240) is True


def test_what_a_workflow_prints_does_not_get_into_the_json(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("talk", run_id="t", enqueue=True)
    done = run("resume", "t", "--json", "--store", url, "--app", MAKE, cwd=tmp_path)
    assert done.data["status"] == "completed"
    assert "the workflow talks" in done.err


def test_the_exit_code_says_that_the_run_then_failed(app: holdfast.App, tmp_path: Path, url: str) -> None:
    app.start("grumpy", run_id="a")
    app.start("grumpy", run_id="b")
    app.start("grumpy", run_id="c")
    done = answer(tmp_path, url, "a", "fail=yes", "--app", MAKE)
    assert done.code == 1
    assert "a is failed: ValueError: so be it" in done.out
    as_json = answer(tmp_path, url, "b", "fail=no", "--app", MAKE, "--json")
    assert (as_json.code, as_json.data["status"]) == (0, "waiting")
    assert run("send", "b", "doom", "--app", MAKE, "--store", url, cwd=tmp_path).code == 1
    left = answer(tmp_path, url, "c", "fail=yes", "--app", MAKE, "--enqueue")
    assert left.code == 0, "a worker takes it on"


def start_parent(folder: Path, children: int) -> None:
    with holdfast.App(f"sqlite:{folder / 'holdfast.db'}") as app:

        @app.workflow
        def item(run: holdfast.Run, number: int) -> bool:
            return run.ask(f"Item {number}?", bool)

        @app.workflow
        def report(run: holdfast.Run) -> list[object]:
            branches = [lambda r, n=n: r.child("item", n, key=f"I-{n}") for n in range(children)]
            return run.gather(*branches)

        app.start(report, run_id="rep")


def test_open_gates_of_several_children_are_offered_with_their_runs(tmp_path: Path) -> None:
    start_parent(tmp_path, 2)
    listed = run("gates", "rep", "--json", cwd=tmp_path).data["gates"]
    children = [gate["run_id"] for gate in listed]
    assert len(set(children)) == 2
    for more in ((), ("--gate", "ask")):
        done = run("answer", "rep", *more, "answer=yes", cwd=tmp_path)
        assert done.code == 2
        assert all(f"holdfast answer {quote(child)}" in done.err.replace("\n", " ") for child in children), done.err
    assert run("answer", children[0], "answer=yes", cwd=tmp_path).code == 0
    assert run("answer", "rep", "--gate", "ask", "answer=yes", cwd=tmp_path).code == 0, "one is left"
    assert run("gates", "rep", "--json", cwd=tmp_path).data["gates"] == []


def test_a_field_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    start_parent(tmp_path, 1)
    done = run("answer", "rep", "answer=yes", "answer=no", cwd=tmp_path)
    assert done.code == 2
    assert "answer is given twice" in done.err

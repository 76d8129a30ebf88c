"""Effects that Clawdia could not settle: they block resume, enter the ledger, and cost a run no checkpoint."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import App, InvalidAnswer, Store, formats
from holdfast.errors import RunError
from holdfast.formats import clawdia
from tests.formats.sample_files import covering, ending, intent, outcome, record, recovery, unsettled

Runs = clawdia.Directory | clawdia.Memory


@pytest.fixture(params=["directory", "memory"])
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> Runs:
    return clawdia.Directory(tmp_path) if request.param == "directory" else clawdia.Memory()


def states(store: Store) -> list[tuple[str, str]]:
    return [(effect.key, effect.state) for effect in store.effects("run.a")]


# --- replay ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [{}, {"idempotency_key": "k"}, {"dedupe_key": "k"}], ids=str)
def test_an_effect_that_a_recovery_left_unsettled_blocks_resume_whatever_key_it_has(
    runs: Runs, key: dict[str, str]
) -> None:
    runs.append(intent(1, "pay", **key))
    runs.append(recovery(2, unsettled("pay", **key)))
    found = clawdia.replay(runs.records("run.a"))
    assert (found.status, found.resume_allowed, found.unsafe, found.retry) == ("repair_needed", False, ("pay",), ())


def test_a_recovery_names_effects_without_an_intent_and_is_not_taken_back_by_a_later_result(runs: Runs) -> None:
    runs.append(recovery(1, unsettled("pay"), unsettled("mail")))
    runs.append(outcome(2, "pay"))
    assert clawdia.replay(runs.records("run.a")).unsafe == ("pay", "mail")


def test_a_recovery_without_unsettled_effects_blocks_nothing(runs: Runs) -> None:
    runs.append(recovery(1))
    assert clawdia.replay(runs.records("run.a")).resume_allowed


def test_an_effect_begun_again_after_its_result_is_pending_again(runs: Runs) -> None:
    runs.append(intent(1, "pay"))
    runs.append(outcome(2, "pay", "failed"))
    assert clawdia.replay(runs.records("run.a")).resume_allowed
    runs.append(intent(3, "pay"))
    assert clawdia.replay(runs.records("run.a")).unsafe == ("pay",)


def test_what_ends_a_run_settles_the_effect_it_names(runs: Runs) -> None:
    runs.append(intent(1, "answer"))
    runs.append(ending(2, effect_id="answer"))
    found = clawdia.replay(runs.records("run.a"))
    assert (found.status, found.terminal_status) == ("complete", "completed")


@pytest.mark.parametrize(("status", "ended"), [("run_failed", "failed"), ("completed", "completed"), ("running", None)])
def test_the_lifecycle_of_a_run_ends_it(runs: Runs, status: str, ended: str | None) -> None:
    runs.append(record(1, "run", payload={"type": "run_lifecycle", "status": status, "reason": ""}))
    found = clawdia.replay(runs.records("run.a"))
    assert (found.terminal_status, found.resume_allowed) == (ended, ended is None)


def delivery(seq: int, which: str, **more: Any) -> dict[str, Any]:
    """A delivery of output: its intent, or its result."""
    destination = {"kind": "user", "id": "u", "privacy": "internal", "retention": "durable"}
    common = {"delivery_id": "d", "destination": destination, "sink_ref": "s", "redacted_summary": "", **more}
    return record(seq, "output_dispatch", payload={"type": "output_delivery", "record_type": which, "record": common})


def test_a_delivery_of_output_is_an_effect(runs: Runs) -> None:
    begun = {name: value for name, value in intent(1, "send")["payload"].items() if name != "type"}
    runs.append(delivery(
        1, "intent", effect_intent=begun, desired_sink_ref="s", delivery_kind={"type": "final_message"},
        content_mode="redacted_summary", privacy="internal", retention="durable", dedupe_key="k",
        runtime_package_fingerprint="fp",
    ))  # fmt: skip
    assert clawdia.replay(runs.records("run.a")).unsafe == ("send",)
    done = {"effect_id": "send", "terminal_status": "completed", "redacted_summary": ""}
    runs.append(
        delivery(2, "result", effect_result=done, dispatch_status="completed", retry_classification="NotRetryable")
    )
    assert clawdia.replay(runs.records("run.a")).resume_allowed


# --- checkpoints -----------------------------------------------------------------------------------------------------


def test_prune_never_removes_the_last_readable_checkpoint(runs: Runs) -> None:
    for number in (1, 2, 3):
        runs.save(covering(number, number), 3)
    policy = clawdia.PrunePolicy(prune_covered_before=9, preserve_latest_terminal=False, preserve_before_pending=False)
    report = runs.prune("run.a", policy)
    assert (report.pruned_count, report.retained_count) == (2, 1)
    assert report.preserved_latest_checkpoint == "checkpoint.3"
    assert runs.load_latest("run.a") == covering(3, 3)
    assert runs.prune("run.a", policy).pruned_count == 0


def test_prune_keeps_an_older_checkpoint_if_the_newest_cannot_be_read(tmp_path: Path) -> None:
    runs = clawdia.Directory(tmp_path)
    for number in (1, 2, 3):
        runs.save(covering(number, number), 3)
    (newest,) = tmp_path.rglob("*3-checkpoint.3-*.json")
    newest.write_bytes(b"")
    report = runs.prune("run.a", clawdia.PrunePolicy(prune_covered_before=9))
    assert (report.pruned_count, report.preserved_latest_checkpoint) == (1, "checkpoint.2")
    assert runs.load_latest("run.a") == covering(2, 2)


def test_prune_keeps_the_checkpoint_before_an_effect_that_a_recovery_names(runs: Runs) -> None:
    runs.append(intent(2, "pay"))
    runs.append(outcome(3, "pay", "cancelled"))
    runs.append(recovery(5, unsettled("pay"), unsettled("mail", intent_record_id="record.2")))
    for number in (1, 4, 5):
        runs.save(covering(number, number))
    report = runs.prune("run.a", clawdia.PrunePolicy(prune_covered_before=9))
    assert report.preserved_before_pending == ("checkpoint.1",)
    assert [found["covers_journal_seq"] for found in runs.list("run.a")] == [1, 5]


@pytest.mark.parametrize("cursor", ["2", "journal.2", "+2", "journal.+2", "0002", 2])
def test_a_cursor_is_taken_as_clawdias_file_store_takes_it(runs: Runs, cursor: int | str) -> None:
    for number in (1, 2, 3):
        runs.append(record(number))
        runs.save(covering(number, number))
    assert runs.load_at_or_before("run.a", cursor) == covering(2, 2)
    assert [found["journal_seq"] for found in runs.records("run.a", cursor)] == [3]


# --- imported --------------------------------------------------------------------------------------------------------


def test_an_imported_run_waits_at_a_gate_that_names_the_unsettled_effects(tmp_path: Path, store: Store) -> None:
    runs = clawdia.Directory(tmp_path)
    runs.append(intent(1, "pay"))
    runs.append(recovery(2, unsettled("pay"), unsettled("mail")))
    runs.save(covering(2))
    formats.import_dir("clawdia", tmp_path, store)
    assert states(store) == [("pay", "in_doubt"), ("mail", "in_doubt")]
    with App(store) as app:
        (gate,) = app.gates("run.a")
        assert gate.prompt == "What is the outcome of pay, mail? The results could not be recorded."
        assert gate.show == {"unsafe_pending": [unsettled("pay"), unsettled("mail")]}
        with pytest.raises(RunError, match=r"gate 'recovery' \(What is the outcome of pay, mail\?"):
            app.resume("run.a")
        assert app.runs()[0].status == "waiting"
        assert store.claim_ready("host", workflows=["clawdia"]) == []
        with pytest.raises(InvalidAnswer, match="mail"):
            app.answer("run.a", {"pay": "happened"}, by="ana")
        app.answer("run.a", {"pay": "happened", "mail": "did not happen"}, by="ana")
        assert app.gates("run.a") == []
        (claim,) = store.claim_ready("host", workflows=["clawdia"])
        claim.mark_done("pay")
        claim.release()
    assert store.is_done("run.a", "pay")
    assert store.verify().ok


async def _resume(store: Store) -> None:
    async with holdfast.App(store).aio as app:
        await app.resume("run.a")


def test_an_awaiting_app_refuses_to_resume_it_as_well(tmp_path: Path) -> None:
    clawdia.Directory(tmp_path).append(recovery(1, unsettled("pay")))
    with holdfast.open("memory:") as store:
        formats.import_dir("clawdia", tmp_path, store)
        with pytest.raises(RunError, match="What is the outcome of pay"):
            asyncio.run(_resume(store))


def test_a_run_that_ended_with_unsettled_effects_has_ended_and_has_no_gate(tmp_path: Path) -> None:
    runs = clawdia.Directory(tmp_path)
    runs.append(recovery(1, unsettled("pay")))
    runs.append(ending(2, "failed"))
    with App("memory:") as app:
        formats.import_dir("clawdia", tmp_path, app.store)
        assert (app.runs()[0].status, app.gates("run.a")) == ("failed", [])
        assert states(app.store) == [("pay", "in_doubt")]


def test_a_settled_effect_is_done_in_the_ledger_and_still_asked_about(tmp_path: Path) -> None:
    runs = clawdia.Directory(tmp_path)
    runs.append(recovery(1, unsettled("pay")))
    runs.append(outcome(2, "pay"))
    with App("memory:") as app:
        formats.import_dir("clawdia", tmp_path, app.store)
        assert states(app.store) == [("pay", "done")]
        assert len(app.gates("run.a")) == 1, "Clawdia refuses to resume it, too"


def test_pending_side_effects_of_the_newest_checkpoint_are_in_doubt(tmp_path: Path, store: Store) -> None:
    runs = clawdia.Directory(tmp_path)
    runs.append(record(1))
    runs.append(intent(2, "done"))
    runs.append(outcome(3, "done"))
    runs.save(covering(1, 1, pending_side_effects=[unsettled("long ago")]))
    runs.save(covering(3, 2, pending_side_effects=[unsettled("ship"), unsettled("done")]))
    formats.import_dir("clawdia", tmp_path, store)
    assert states(store) == [("done", "done"), ("ship", "in_doubt")]
    assert store.runs()[0].status == "paused"
    assert store.verify().ok


def test_a_newer_checkpoint_that_only_the_journal_has_counts(tmp_path: Path) -> None:
    runs = clawdia.Directory(tmp_path)
    runs.append(record(1))
    runs.save(covering(1, 1, pending_side_effects=[unsettled("old")]))
    payload = {"type": "checkpoint", **covering(1, 2, pending_side_effects=[unsettled("ship")])}
    runs.append(record(2, "checkpoint", payload=payload))
    with holdfast.open("memory:") as store:
        formats.import_dir("clawdia", tmp_path, store)
        assert states(store) == [("ship", "in_doubt")]

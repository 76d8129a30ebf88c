"""The contract of `fork`, `copy`, `export_run` and `import_run`."""

from __future__ import annotations

from typing import Any

from holdfast.errors import CheckpointNotFound, DamagedData, InvalidInput, RunExists, RunNotFound, UnsupportedFormat
from holdfast.model.views import Keep
from holdfast.testing.contract.base import ContractBase, raises


class MovingContract(ContractBase):
    """A new run has what it was made of, and the old one notices nothing."""

    def prepare(self) -> None:
        for i in range(1, 5):
            self.store.append("run", [{"kind": "turn", "n": i}])
            self.store.mark_done("run", f"effect-{i}", result=i)
            state = self.conversation(50, changed=i)
            self.store.save("run", state, checkpoint_id=f"c{i}", workflow="triage", metadata={"team": "a"})
            self.store.attach("run", f"c{i}", "note", self.conversation(10, changed=i))
        self.store.mark_intent("run", "doubt")
        self.store.save("run", "side", lane="side")

    def test_a_fork_starts_from_a_checkpoint(self) -> None:
        self.prepare()
        self.store.save("run", "end", status="failed")
        chunks = self.store.stats().chunks
        info = self.store.fork("run", "fork", step=2)
        assert (info.run_id, info.workflow, info.status, info.metadata) == ("fork", "triage", "ready", {"team": "a"})
        assert info.forked_from == "run@c2"
        assert self.state("fork") == self.conversation(50, changed=2)
        assert self.loaded("fork").checkpoint_id == "c2"
        assert [entry["n"] for entry in self.store.journal("fork")] == [1, 2]
        assert [effect.key for effect in self.store.effects("fork")] == ["effect-1", "effect-2"]
        assert self.store.attachments("fork", "c2") == {"note": self.conversation(10, changed=2)}
        assert self.store.stats().chunks == chunks
        self.store.save("fork", "goes on")
        assert self.loaded("fork").step == 3
        assert self.state("run") == "end"
        assert self.store.verify().problems == []

    def test_a_fork_takes_the_selectors_of_load(self) -> None:
        self.prepare()
        choices: list[tuple[dict[str, Any], str]] = [({}, "c4"), ({"at": 3}, "c3"), ({"checkpoint_id": "c1"}, "c1")]
        for choice, wanted in choices:
            self.store.fork("run", f"fork-{wanted}", **choice)
            assert self.loaded(f"fork-{wanted}").checkpoint_id == wanted
        self.store.fork("run", "fork-side", lane="side")
        assert self.state("fork-side", lane="side") == "side"

    def test_a_run_that_ended_can_be_forked_and_goes_on(self) -> None:
        self.store.save("run", 1, status="completed")
        assert self.store.fork("run", "fork").status == "ready"
        assert self.store.claim("fork", owner="w1") is not None

    def test_a_copy_has_everything(self) -> None:
        self.prepare()
        chunks = self.store.stats().chunks
        self.store.copy("run", "copy")
        assert self.store.stats().chunks == chunks
        self.same("run", "copy")
        self.store.save("copy", "other")
        assert self.state("run") == self.conversation(50, changed=4)

    def same(self, one: str, other: str) -> None:
        def shown(run_id: str) -> Any:
            history = list(self.store.history(run_id))
            return (
                [
                    (i.checkpoint_id, i.parent_id, i.lane, i.step, i.covers, i.status, i.metadata, i.created_at)
                    for i in history
                ],
                [self.state(run_id, checkpoint_id=i.checkpoint_id, lane=i.lane) for i in history],
                [self.store.attachments(run_id, i.checkpoint_id, lane=i.lane) for i in history],
                [(entry.position, entry.data, entry.created_at) for entry in self.store.journal(run_id)],
                [(e.key, e.state, e.tool, e.target, e.reversible, e.result) for e in self.store.effects(run_id)],
            )

        assert shown(one) == shown(other)

    def test_an_exported_run_can_be_imported_under_its_own_or_another_id(self) -> None:
        self.prepare()
        data = self.store.export_run("run")
        assert self.store.import_run(data, run_id="again").run_id == "again"
        self.same("run", "again")
        with raises(RunExists):
            self.store.import_run(data)
        self.store.delete("run")
        assert self.store.import_run(data).run_id == "run"
        self.same("run", "again")
        assert self.store.verify().problems == []

    def test_a_damaged_archive_is_refused_and_nothing_is_written(self) -> None:
        self.prepare()
        data = self.store.export_run("run")
        self.store.delete("run")
        step = max(1, len(data) // 200)
        for at in range(0, len(data), step):
            with raises(DamagedData):
                self.store.import_run(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
            with raises(DamagedData):
                self.store.import_run(data[:at])
        with raises(UnsupportedFormat):
            self.store.import_run(data.replace(b"run 2", b"run 9", 1))
        with raises(InvalidInput):
            self.store.import_run("text")  # type: ignore[arg-type]
        assert self.store.runs() == []
        assert self.store.stats().chunks == 0

    def test_new_runs_need_an_id_of_their_own(self) -> None:
        self.store.save("run", 1)
        self.store.save("other", 2)
        for make in (self.store.fork, self.store.copy):
            with raises(RunExists):
                make("run", "other")
            with raises(InvalidInput):
                make("run", "run")
            with raises(RunNotFound):
                make("none", "new")
        with raises(CheckpointNotFound):
            self.store.fork("run", "new", step=9)
        with raises(RunNotFound):
            self.store.export_run("none")
        assert {run.run_id for run in self.store.runs()} == {"run", "other"}
        assert self.state("other") == 2

    def test_a_run_that_is_held_can_be_forked_but_its_copy_is_free(self) -> None:
        self.store.save("run", 1)
        assert self.store.claim("run", owner="w1") is not None
        self.store.fork("run", "fork")
        assert self.store.copy("run", "copy").status == "ready"
        assert self.store.claim("copy", owner="w2") is not None

    def test_a_copy_protects_what_an_effect_in_doubt_may_need(self) -> None:
        self.store.save("run", 1)
        self.store.append("run", [{"kind": "a"}])
        self.clock.advance(5)
        self.store.mark_intent("run", "pay")
        self.clock.advance(5)
        for i in range(2, 5):
            self.store.save("run", i)
        self.store.prune("run", Keep(last=2))
        self.store.copy("run", "copied")
        self.store.import_run(self.store.export_run("run"), run_id="imported")
        for name in ("copied", "imported"):
            ours, theirs = self.store.effects(name)[0], self.store.effects("run")[0]
            assert ours.created_at == theirs.created_at
            self.store.prune(name, Keep(last=1))
            assert [self.state(name, checkpoint_id=c.checkpoint_id) for c in self.store.history(name)] == [1, 4]

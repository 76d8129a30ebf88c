"""The contract of the ledger below the verbs: how effects were called, and what a family has done."""

from __future__ import annotations

from typing import Any

from holdfast.errors import DamagedData
from holdfast.model.commit import Guard, NewEffect, NewRun
from holdfast.model.rows import EffectRow
from holdfast.store.seal import check_seal
from holdfast.testing.contract.base import PortContractBase, raises


class LedgerContract(PortContractBase):
    """Whoever undoes an effect must know how it was called, and whether another run of the family did it."""

    def mark(self, *effects: NewEffect, run_id: str = "run") -> None:
        self.done(run_id=run_id, guard=Guard(), create=NewRun(), effects=effects)

    def line(self, key: str = "pay", run_id: str = "run") -> EffectRow:
        """A line of the ledger, which is the same however it is read."""
        run = self.row(run_id)
        row = self.store.port.effect(run.run, key)
        assert row is not None
        assert [row] == [other for other in self.store.port.effects(run.run) if other.key == key]
        return check_seal(row, run.incarnation, key)

    def test_how_an_effect_was_called_is_kept_until_another_call_is_given(self) -> None:
        steps: list[tuple[Any, bytes, bytes, bytes]] = [
            ("intent", b"", b"\x00\x01", b"\x00\x01"),
            ("failed", b"\x00\xa3bad", b"", b"\x00\x01"),
            ("intent", b"", b"", b"\x00\x01"),
            ("done", b"\x00\xa2ok", b"", b"\x00\x01"),
            ("undone", b"", b"\x00\x02", b"\x00\x02"),
            ("intent", b"", b"\x00\x03", b"\x00\x03"),
            ("done", b"\x00\xa2ok", b"\x00\x04", b"\x00\x04"),
            ("undone", b"", b"", b"\x00\x04"),
            ("done", b"\x00\xa2ok", b"\x00\x05", b"\x00\x05"),
        ]
        for state, result, call, then in steps:
            self.mark(NewEffect("pay", state, body=result, call=call))
            line = self.line()
            assert (line.state, line.body, line.call) == (state, result, then)
        assert self.store.verify().problems == []

    def test_an_effect_that_is_done_anew_comes_after_what_is_there_then(self) -> None:
        self.mark(NewEffect("pay", "done"))
        self.store.save("run", {"n": 1})
        self.store.append("run", [{"kind": "note"}])
        assert (self.line().after_checkpoint, self.line().after_position) == (0, 0)
        self.mark(NewEffect("pay", "undone"))
        assert (self.line().after_checkpoint, self.line().after_position) == (0, 0)
        self.mark(NewEffect("pay", "intent"))
        assert (self.line().after_checkpoint, self.line().after_position) == (1, 1)
        assert self.store.verify().problems == []

    def test_effects_of_one_commit_have_calls_of_their_own(self) -> None:
        large = b"\x00\xc6" + (300_000).to_bytes(4, "big") + b"\xff" * 300_000
        self.mark(
            NewEffect("a", "done", call=large), NewEffect("b", "intent"), NewEffect("c", "done", call=b"\x00\x01")
        )
        self.mark(NewEffect("b", "done", call=b"\x00\x02"), NewEffect("d", "intent", call=b"\x00\x03"))
        calls = {line.key: line.call for line in self.store.port.effects(self.row().run)}
        assert calls == {"a": large, "b": b"\x00\x02", "c": b"\x00\x01", "d": b"\x00\x03"}

    def test_what_users_see_of_an_effect_is_its_result(self) -> None:
        self.mark(NewEffect("pay", "intent", "card", "A-17", call=b"\x00\x01"))
        (seen,) = self.store.effects("run")
        assert (seen.state, seen.tool, seen.target, seen.result) == ("in_doubt", "card", "A-17", None)
        assert self.store.mark_done("run", "pay", result="paid")
        assert (self.store.effects("run")[0].result, self.line().call) == ("paid", b"\x00\x01")

    def test_forks_copies_and_archives_have_the_calls(self) -> None:
        self.mark(NewEffect("pay", "done", body=b"\x00\x05", call=b"\x00\x01"), NewEffect("doubt", "intent"))
        self.store.save("run", 1)
        self.store.fork("run", "forked")
        self.store.copy("run", "copied")
        self.store.import_run(self.store.export_run("run"), run_id="imported")
        self.store.copy("imported", "again")
        for name in ("forked", "copied", "imported", "again"):
            line = self.line("pay", name)
            assert (line.state, line.body, line.call) == ("done", b"\x00\x05", b"\x00\x01")
            assert self.line("doubt", name).call == b""
        self.mark(NewEffect("doubt", "done", call=b"\x00\x02"), run_id="copied")
        assert (self.line("doubt", "copied").call, self.line("doubt").call) == (b"\x00\x02", b"")
        assert self.store.verify().problems == []

    def test_what_was_undone_is_so_in_copies_and_archives(self) -> None:
        self.mark(NewEffect("pay", "done", body=b"\x00\x05", call=b"\x00\x01"))
        self.mark(NewEffect("pay", "undone"))
        self.store.save("run", 1)
        self.store.fork("run", "forked")
        self.store.copy("run", "copied")
        self.store.import_run(self.store.export_run("run"), run_id="imported")
        for name in ("copied", "imported"):
            assert (self.line("pay", name).state, self.line("pay", name).call) == ("undone", b"\x00\x01")
            self.mark(NewEffect("pay", "intent"), run_id=name)
        assert self.store.effects("forked") == []
        assert self.store.verify().problems == []

    def test_an_archive_with_a_call_that_nobody_can_read_is_refused(self) -> None:
        self.mark(NewEffect("pay", "done", call=b"\x00"))
        archive = self.store.export_run("run")
        with raises(DamagedData):
            self.store.import_run(archive, run_id="imported")
        assert [run.run_id for run in self.store.runs()] == ["run"]

    def test_a_family_tells_in_which_of_its_runs_an_effect_was_recorded(self) -> None:
        self.mark(NewEffect("pay", "done", call=b"\x00\x01"), NewEffect("other", "done"))
        self.mark(NewEffect("pay", "intent"), run_id="stranger")
        self.store.save("run", 1)
        self.store.fork("run", "z first")
        self.store.copy("z first", "a second")
        self.mark(NewEffect("mail", "done"), run_id="a second")
        self.mark(NewEffect("pay", "undone"), run_id="z first")
        self.mark(NewEffect("mail", "intent"), run_id="run")
        family = self.row().family

        def found(key: str, of: int = family) -> list[tuple[str, str]]:
            pairs = self.store.port.family_effects(of, key)
            for run, line in pairs:
                assert (run, line) == (self.row(run.run_id), self.line(key, run.run_id))
            return [(run.run_id, line.state) for run, line in pairs]

        assert found("pay") == [("run", "done"), ("z first", "undone"), ("a second", "done")]
        assert found("mail") == [("run", "intent"), ("a second", "done")]
        assert found("pay", self.row("stranger").family) == [("stranger", "intent")]
        assert found("nothing") == []
        assert found("pay", 9999) == []
        self.store.delete("run")
        assert found("pay") == [("z first", "undone"), ("a second", "done")]
        assert found("other") == [("z first", "done"), ("a second", "done")]

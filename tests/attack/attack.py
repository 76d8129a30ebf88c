"""One attack: a case is carried out on its stores, then everything is brought to its end, and judged."""

from __future__ import annotations

import itertools
import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from holdfast.errors import HoldfastError, StorageError
from holdfast.model.rows import EffectRow, RunRow
from holdfast.operations.views import decode_body
from holdfast.testing import ManualClock
from tests.attack.actions import Actions
from tests.attack.deployment import Place, Process, Scratch, SeededIds, is_over, root_of
from tests.attack.generator import Action, Case
from tests.attack.oracles import Oracles, describe, is_expected
from tests.attack.program import WORKFLOWS, all_nodes, nodes_in_loops, own_nodes
from tests.attack.world import World

_ROUNDS: Final = 400
"""So many times every run is looked after at the end at most; each brings a run one wait further."""
_HANG_S: Final = 60.0
_BRANCHING: Final = ("fork", "copy", "move")
_count = itertools.count(1)


class Branch(NamedTuple):
    """A run made of another: by a fork, a copy or an import."""

    source: str
    mode: str
    done: frozenset[str]
    """What the source had done when it was made."""


class Outcome(NamedTuple):
    """What came of a case."""

    problems: list[tuple[str, str]]
    settled: list[Action]
    """The actions as they were carried out."""
    errors: list[str]
    """For each action the type of the error it met, or nothing."""
    ends: dict[str, Any]
    """How each run has ended."""


class Attack:
    """Carries out one case."""

    def __init__(self, case: Case, scratch: Scratch, *, skip: tuple[str, ...] = ()) -> None:
        self.case = case
        self._skip = skip
        self._scratch = scratch
        self.prefix = f"x{next(_count)}." if case["store"] == "postgres" else "x."
        self.clock = ManualClock()
        self._ids = SeededIds(case["seed"])
        nodes = all_nodes(case["program"]) + all_nodes(case["peer"])
        self.world = World({node["id"]: node for node in nodes})
        self.expires = any("expires" in node for node in nodes)
        self.repeated_events = {f"v{node['id']}" for node in nodes_in_loops(case["program"])}
        self.branches: dict[str, Branch] = {}
        self.sent: set[tuple[str, str]] = set()
        self.cancels = self.forced = self.deletes = False
        self.rolled_back: set[str] = set()
        """Roots of which something was rolled back, and the ids of the very runs."""
        given = [case.get("start", {}), *case["actions"]]
        self.doubts = any(action.keys() & {"crash", "meanwhile"} or action.get("do") in _BRANCHING for action in given)
        """Whether an effect may be in doubt: where a process dies, or where a run is made of one that is under way."""
        self._problems: list[tuple[str, str]] = []
        self._settled: list[Action] = []
        self._errors: list[str] = []
        self._first: dict[str, dict[str, Any]] = {}
        self._actions = Actions(self)
        self._oracles = Oracles(self)
        self.world.on_intent = self._oracles.suspect
        self._elsewhere: Place | None = None
        self._place = self._open(scratch.url(case["store"]))

    def _open(self, url: str) -> Place:
        return Place(url, self.prefix, self.clock, self._ids, self.world, self.case["branches"])

    def run(self) -> Outcome:
        """Carry it out, as far as nothing is wrong."""
        ends: dict[str, Any] = {}
        try:
            self._start()
            for action in self.case["actions"]:
                if self.problems():
                    break
                if action["do"] not in self._skip:
                    self._act(action)
                elif not action.get("unnoticed"):  # the time passes in which the death of a process is noticed
                    self._remove_dead_owners()
            if not self.problems():
                self._finish()
            if not self.problems():
                self._oracles.judge()
                ends = self._ends()
        finally:
            for place in self.places():
                place.close()
        return Outcome(self.problems(), self._settled, self._errors, ends)

    # --- what others ask ---------------------------------------------------------------------------------------------

    def problem(self, kind: str, text: str) -> None:
        self._problems.append((kind, text))

    def problems(self) -> list[tuple[str, str]]:
        return self._problems + self.world.problems

    def places(self) -> list[Place]:
        return [self._place, *([self._elsewhere] if self._elsewhere is not None else [])]

    def elsewhere(self) -> Place:
        """Another store, of another kind."""
        if self._elsewhere is None:
            self._elsewhere = self._open(self._scratch.url("sqlite" if self.case["store"] == "memory" else "memory"))
        return self._elsewhere

    def all_rows(self) -> list[tuple[Place, RunRow]]:
        return [(place, row) for place in self.places() for row in place.rows()]

    def find(self, run: str) -> tuple[Place, RunRow] | None:
        """A run by its name without the prefix."""
        for place in self.places():
            row = place.onlooker.port.run(self.prefix + run)
            if row is not None:
                return place, row
        return None

    def first_of(self, run_id: str) -> dict[str, Any]:
        """The entry a run began with."""
        if run_id not in self._first:
            for place in self.places():
                if place.onlooker.port.run(run_id) is not None:
                    self._first[run_id] = place.onlooker.journal(run_id)[0].data
        return self._first.get(run_id, {})

    def events_of(self, run_id: str) -> list[str]:
        """The events a run may wait for."""
        first = self.first_of(run_id)
        return [f"v{node['id']}" for node in own_nodes(first["args"][0]) if node["op"] == "wait"] if first else []

    def is_detached(self, run_id: str) -> bool:
        """Whether a run, or one above it, was started detached."""
        while run_id:
            parent = self.first_of(run_id).get("parent") or {}
            if parent.get("detached"):
                return True
            run_id = parent.get("run", "")
        return False

    def was_revived(self, run_id: str) -> bool:
        """Whether a child, or one above it, was rolled back by itself: its parent may have given it up before."""
        while parent := (self.first_of(run_id).get("parent") or {}).get("run", ""):
            if run_id in self.rolled_back:
                return True
            run_id = parent
        return False

    def detached_and_over(self) -> list[str]:
        rows = [row for _, row in self.all_rows() if is_over(row)]
        return [row.run_id for row in rows if (self.first_of(row.run_id).get("parent") or {}).get("detached")]

    def shared_tokens(self) -> set[str]:
        """Idempotency keys that more than one run answers for: those of runs that were copied."""
        copied = {branch.source for branch in self.branches.values() if branch.mode in ("copy", "import")}
        return {token for token, runs in self.world.owners.items() if copied & set(runs)}

    def is_of_source(self, run_id: str, root: str) -> bool:
        """Whether a run is one whose effects the run at `root` reuses: that it was forked from, or a child of it.

        A fork that performs its effects again, and the forks of it, do not reuse those of its source.
        """
        while root in self.branches and self.branches[root].mode not in ("import", "perform"):
            source = self.branches[root].source
            if run_id == source or run_id.startswith(f"{source}/"):
                return True
            root = root_of(source.removeprefix(self.prefix))
        return False

    def note_branch(self, name: str, source: str, mode: str) -> None:
        """A run is about to be made of another."""
        world = self.world
        tree = source if mode == "import" else f"{source}/"
        done = {
            world.paths[token] for token in world.order
            if world.net(token) > 0
            and any(run == source or (mode == "copy" and run.startswith(tree)) for run in world.owners[token])
            and not self._was_done_by_another(token, source)
        }  # fmt: skip
        self.branches[name] = Branch(source, mode, frozenset(done))
        found = self.find(source.removeprefix(self.prefix))
        kinds = [entry.kind for entry in found[0].onlooker.journal(source)] if found is not None else []
        rollbacks = [kind for kind in kinds if kind in ("rolling_back", "rolled_back")]  # a prune removes finished ones
        if rollbacks[-1:] == ["rolling_back"]:  # the new run goes back, and performs it again
            self.rolled_back.add(name)

    def _was_done_by_another(self, token: str, source: str) -> bool:
        """Whether a fork performed, under the key of its source, what the source has not done itself."""
        found = self.find(source.removeprefix(self.prefix))
        if found is None or len(self.world.owners[token]) < 2:
            return False
        lines = found[0].onlooker.port.rows(EffectRow, found[1].run)
        mine = [line for line in lines if (decode_body(line.call, "an effect") or {}).get("token") == token]
        return bool(mine) and all(line.state != "done" for line in mine)

    def note_rollback(self, run_id: str, *, force: bool) -> None:
        self.rolled_back |= {root_of(run_id.removeprefix(self.prefix)), run_id}
        self.forced = self.forced or force
        self.cancels = True  # children of what is taken back are cancelled

    # --- carrying out ------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        peer = self.prefix + "p"
        workflow = WORKFLOWS[self.case["kind"]]

        def start(process: Process) -> None:
            if self.case["peer"]:
                process.app.start(workflow, self.case["peer"], "", peer, run_id=peer)
            process.app.start(workflow, self.case["program"], "", peer, run_id=self.prefix + "r")

        action = {"id": 0, "do": "start", "by": 0, **self.case.get("start", {})}
        self._guarded(action, {"*"}, lambda: self._tried(action, self._place, start))
        if self.find("r") is None and not self.problems():
            self._tried({"by": 0}, self._place, start)

    def _act(self, action: Action) -> None:
        settled = self._actions.settle(action)
        if settled is None:
            return
        if "meanwhile" in settled:
            after, inner = settled["meanwhile"]
            found = self._actions.settle(inner)
            settled = {**settled, "meanwhile": [after, found]}
            if found is None:
                del settled["meanwhile"]
        self.deletes = self.deletes or settled["do"] == "delete"
        place = self._place_of(settled)
        met = self._guarded(settled, self._actions.touched(settled), lambda: self._carried_out(settled, place))
        self._settled.append(settled)
        self._errors.append(met)

    def _place_of(self, action: Action) -> Place:
        found = self.find(action["run"]) if isinstance(action.get("run"), str) else None
        return found[0] if found is not None else self._place

    def _carried_out(self, action: Action, place: Place) -> str:
        return self._tried(action, place, lambda process: self._actions.carry_out(action, process))

    def _guarded(self, action: Action, touched: set[str], do: Callable[[], str]) -> str:
        """Do something that may change these roots and no other, then look; gives the type of the error it met."""
        others = self._prints(touched)
        met = do()
        if others:
            now = self._prints(touched)
            for key in others.keys() & now.keys():
                if others[key] != now[key]:
                    self.problem("independence", f"{action['do']} changed {key[1]}: {others[key]} became {now[key]}")
        if not action.get("unnoticed"):
            self._remove_dead_owners()
        if not self.problems():
            self._oracles.look()
        return met

    def _remove_dead_owners(self) -> None:
        for place in self.places():
            place.remove_dead_owners()

    def _prints(self, touched: set[str]) -> dict[tuple[str, str], Any]:
        """Fingerprints of all runs that do not belong to these roots, nor to the peer, to which all may send."""
        if "*" in touched:
            return {}
        return {
            (place.url, row.run_id): place.print_of(row) for place, row in self.all_rows()
            if root_of(row.run_id.removeprefix(self.prefix)) not in touched | {"p"}
        }  # fmt: skip

    def _moment(self) -> list[bytes]:
        """Something that changes whenever a run changes."""
        return [row.commit_id for _, row in self.all_rows()]

    def _tried(self, action: Action, place: Place, do: Callable[[Process], Any]) -> str:
        """Call the API, with the crash the action asks for; gives the type of the error it met."""
        by, self.world.commits = action["by"], 0
        process = place.processes[by]
        if "crash" in action:
            process.wire.cut_after(action["crash"][0], late=action["crash"][1])
        meanwhile = action.get("meanwhile")
        if meanwhile is not None:
            process.wire.before = self._interloper(place, by, *meanwhile)
        met = self._met(lambda: do(process), crash="crash" in action)
        process.wire.before = None
        if "crash" in action and place.processes[by] is process:
            if process.wire.dead:
                place.kill(by)
            process.wire._left = None
        return met

    def _met(self, do: Callable[[], None], *, crash: bool) -> str:
        try:
            do()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            if not is_expected(error) and not (crash and isinstance(error, StorageError)):
                kind = {"DamagedData": "damaged", "Diverged": "diverged"}.get(type(error).__name__, "untyped")
                where = "" if isinstance(error, HoldfastError) else traceback.format_exc()[-1500:]
                self.problem(kind, f"{describe(error)} {where}")
            return type(error).__name__
        return ""

    def _interloper(self, place: Place, by: int, after: int, inner: Action | None) -> Callable[[Any], None]:
        """What another process does before so many commits of this one have arrived."""
        left = itertools.count(after, -1)

        def act(_: Any) -> None:
            if inner is not None and next(left) == 0:
                action = {**inner, "by": 1 - by}
                there = self._place_of(action)
                thread = threading.Thread(target=self._tried, args=(action, there, self._doing(action)), daemon=True)
                thread.start()
                thread.join(_HANG_S)
                if thread.is_alive():
                    self.problem("hang", f"{action['do']} has not ended after {_HANG_S:.0f} s")

        return act

    def _doing(self, action: Action) -> Callable[[Process], None]:
        return lambda process: self._actions.carry_out(action, process)

    # --- bringing everything to its end ------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Answer, send, resume and let time pass until every run has ended."""
        self._remove_dead_owners()
        idle = 0
        for number in range(_ROUNDS):
            rows = [(place, row) for place, row in self.all_rows() if not is_over(row)]
            if not rows or self.problems():
                return
            before = self._moment()
            for place, row in rows:
                self._attend(place, row.run_id, number % 2)
                if self.problems():
                    return
            for place in self.places():
                self._met(partial(place.reap, number % 2), crash=False)
            idle = idle + 1 if self._moment() == before else 0
            if idle:
                self.clock.advance(7200)
            if idle > 2:
                break
        for place, row in self.all_rows():
            if not is_over(row):
                why = place.standing(row.run_id)
                self.problem("stuck", f"{row.run_id} is {row.status}: {why.sentence}; {[w.what for w in why.waiting]}")

    def _attend(self, place: Place, run_id: str, by: int) -> None:
        """Do for one run what it waits for; a run that waits is never resumed, since nobody would think of that."""
        row = place.onlooker.port.run(run_id)
        if row is None or is_over(row):
            return
        process, actions = place.processes[by], self._actions
        root = root_of(run_id.removeprefix(self.prefix))
        action = {"do": f"finish {row.status}", "by": by}
        do: Callable[[Process], Any]
        if row.status == "rolling_back":
            do = lambda process: process.app.rollback(run_id)  # noqa: E731
        elif row.status != "waiting":
            do = lambda process: process.app.resume(run_id)  # noqa: E731
        else:
            waiting = place.standing(run_id).waiting
            events = [w.what for w in waiting if w.reason == "event" and w.what in self.events_of(run_id)]

            def do(process: Process) -> None:
                actions.answer_all(process, run_id)
                for event in events:
                    actions.send_event(process, run_id, event, {})

            if not events and not process.app.gates(run_id):
                return
        self._guarded(action, {root}, lambda: self._tried(action, place, do))

    def _ends(self) -> dict[str, Any]:
        found = {}
        for place, row in self.all_rows():
            last = place.onlooker.journal(row.run_id)[-1].data
            found[row.run_id.removeprefix(self.prefix)] = (row.status, last.get("result"))
        return found

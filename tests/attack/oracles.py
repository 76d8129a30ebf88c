"""What must be true of an attack: at every stop, and when everything has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import holdfast
from holdfast.engine.record import live_path
from holdfast.errors import HoldfastError
from holdfast.model.rows import EffectRow, ItemRow, RunRow
from holdfast.operations.views import decode_body
from holdfast.store.journal_prune import PRUNED
from holdfast.testing import replay
from tests.attack.deployment import Place, is_over, root_of
from tests.attack.expected import Expected, may_fail
from tests.attack.program import WORKFLOWS

if TYPE_CHECKING:
    from tests.attack.attack import Attack


class Oracles:
    """Looks at one attack."""

    def __init__(self, attack: Attack) -> None:
        self._attack = attack
        self._replayed: dict[tuple[str, str], tuple[int, str]] = {}

    # --- at every stop -----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """After an action: every run replays, and no event that was accepted is lost."""
        for place, row in self._attack.all_rows():
            seen = (row.position, row.status)
            if self._replayed.get((place.url, row.run_id)) != seen and row.status != "rolling_back":
                self._replayed[place.url, row.run_id] = seen
                self._replay(place, row)
            self._check_events(place, row)

    def _replay(self, place: Place, row: RunRow) -> None:
        try:
            replay(place.processes[0].app, row.run_id)
        except holdfast.errors.MissingAwait as error:
            if not may_fail(self._attack.first_of(row.run_id)["args"][0], "MissingAwait"):
                self._attack.problem("replay", f"replay of {row.run_id}, {row.status}: {error}")
        except Exception as error:
            self._attack.problem("replay", f"replay of {row.run_id}, {row.status}: {type(error).__name__}: {error}")

    def _check_events(self, place: Place, row: RunRow) -> None:
        events = [event for run_id, event in self._attack.sent if run_id == row.run_id]
        if not events or is_over(row) or row.status == "rolling_back":
            return
        entries = list(place.onlooker.journal(row.run_id))
        if any(entry.kind == PRUNED for entry in entries):
            return
        live = live_path([(entry.position, {**entry.data, "kind": entry.kind}) for entry in entries])
        received = [e["event"] for _, e in live if e["kind"] == "received" and "timeout" not in e]
        unread = [item.name for item in place.onlooker.port.rows(ItemRow, row.run, 0, 1000)]
        for event in events:
            if event not in received and event not in unread:
                self._attack.problem("event", f"{row.run_id} has lost event {event!r}, which was sent and accepted")

    # --- while something is performed --------------------------------------------------------------------------------

    def suspect(self, run_id: str, path: str, key: str) -> str:
        """What is wrong if this run performs an effect that it intends now; empty if nothing is."""
        attack, world = self._attack, self._attack.world
        if attack.deletes or attack.forced:
            return ""
        mine = self._root(run_id)
        done = [token for token in world.order if world.paths[token] == path and world.net(token) > 0]
        owners = {world.owners[token][0] for token in done if world.owners[token]}
        detached = attack.is_detached(run_id)
        if (
            mine in map(self._root, owners)
            and not (detached and mine in attack.rolled_back)
            and not attack.was_revived(run_id)
        ):
            return f"{run_id} performs effect {path}, which its own tree has done and not undone"
        branch = attack.branches.get(mine)
        if branch is None or detached or mine in attack.rolled_back:
            return ""
        if attack.expires:  # a gate may expire in one of the runs only; then the same place has different keys in both
            owners = {world.owners[token][0] for token in done if world.owners[token] and world.keys[token] == key}
        owners = {owner for owner in owners if not self._is_older_child(run_id, owner)}
        if branch.mode == "reuse" and any(attack.is_of_source(owner, mine) for owner in owners):
            return f"{run_id} performs effect {path}, which the run it was forked from has done"
        if branch.mode in ("copy", "import") and path in branch.done:
            return f"{run_id} performs effect {path}, which was done before it was copied"
        return ""

    def _is_older_child(self, run_id: str, owner: str) -> bool:
        """Whether a child was started before the other one: it cannot be a fork of what did not exist."""
        prefix = self._attack.prefix
        mine, other = self._attack.find(run_id.removeprefix(prefix)), self._attack.find(owner.removeprefix(prefix))
        if mine is None or other is None or mine[0] is not other[0] or not mine[1].run_id.count("/"):
            return False
        return mine[1].run < other[1].run

    def _root(self, run_id: str) -> str:
        return root_of(run_id.removeprefix(self._attack.prefix))

    # --- at the end --------------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """When everything has ended."""
        known: set[str] = set()
        there = set()
        for place, row in self._attack.all_rows():
            there.add(row.run_id)
            self._judge_result(place, row)
            for line in place.onlooker.port.rows(EffectRow, row.run):
                known |= self._judge_line(row, line)
        self._judge_unknown(known, there)
        for place in self._attack.places():
            for problem in place.onlooker.verify().problems:
                self._attack.problem("verify", f"{problem.place}: {problem.reason}")

    def _judge_result(self, place: Place, row: RunRow) -> None:
        attack = self._attack
        try:
            entries = list(place.onlooker.journal(row.run_id))
        except HoldfastError as error:
            attack.problem("damaged", f"the journal of {row.run_id} cannot be read: {error}")
            return
        first, last = entries[0].data, entries[-1].data
        body, path = first["args"][0], first["args"][1]
        if row.status == "failed" and not may_fail(body, last["error"]["type"]):
            attack.problem("failed", f"{row.run_id} failed: {last['error']['type']}: {last['error']['message']}")
        if row.status == "completed":
            kind = next(kind for kind, workflow in WORKFLOWS.items() if workflow == row.workflow)
            expected = Expected(cancels=attack.cancels, doubts=attack.doubts, kind=kind)
            for difference in expected.differences(body, last["result"], path):
                attack.problem("result", f"{row.run_id}: {difference}")

    def _judge_line(self, row: RunRow, line: EffectRow) -> set[str]:
        """Compare a line of a ledger with the world; gives its idempotency key."""
        world = self._attack.world
        call: dict[str, Any] = decode_body(line.call, "an effect") or {}
        token = call.get("token", "")
        if call.get("reused") or not call.get("args"):
            return {token}
        node, net, path = world.node(call["args"][0]), world.net(token), call["args"][0]
        shared = len(world.owners[token]) > 1 or token in self._attack.shared_tokens()
        wrong = {"done": net != 1, "undone": net > 0, "failed": net > 0}.get(line.state, False)
        if line.state == "done" and node.get("check") and any(world.paths[one] == path for one in world.order):
            wrong = False  # the world can only tell by the place, so another run's performance counts
        if wrong and not shared:
            text = f"performed {world.calls[token]} times and undone {len(world.undone[token])} times"
            self._attack.problem("ledger", f"effect {path} of {row.run_id} is {line.state}; it was {text}")
        return {token}

    def _judge_unknown(self, known: set[str], there: set[str]) -> None:
        """What is done in the world must stand in a ledger, unless its run was deleted."""
        world = self._attack.world
        for token in world.order:
            owners = [run_id for run_id in world.owners[token] if run_id in there]
            if token not in known and world.net(token) > 0 and owners:
                self._attack.problem("ledger", f"effect {world.paths[token]} of {owners[0]} is done and in no ledger")


def describe(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {error}"


def is_expected(error: BaseException) -> bool:
    """Whether an error may come out of the API although nothing is damaged and no code has changed."""
    wrong = (holdfast.DamagedData, holdfast.errors.Diverged, holdfast.StorageError)
    return isinstance(error, HoldfastError) and not isinstance(error, wrong)

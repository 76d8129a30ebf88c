"""The one workflow that interprets a program: a list of nodes, each a dict with an `op`, an `id` and its options.

What a node returns is plain data that a checker can compare with the program (`expected.py`). `path` names a node's
place: the ids that lead to it, with the turn of each loop. It does not depend on the run, so forks and copies agree.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

import holdfast
from holdfast import App, AsyncRun
from holdfast.errors import ChildFailed, EffectFailed, EffectInDoubt, GateExpired, StepFailed
from tests.attack.world import AttackError, Node, World
from tests.sync_and_async import as_def

RETRY: Final = holdfast.Retry(attempts=3, initial_delay=60, max_delay=600, jitter=0)
"""Waits are long, so that the run is given back: the clock of an attack stands still while a call is carried out."""
WORKFLOWS: Final = {"def": "attack", "async": "attack_async"}

Body = list[Node]


def register(app: App, world: World) -> None:
    """Make the app know the workflow, as `def` and as `async def`, and its undo."""
    program = Program(world)

    async def attack(run: AsyncRun, body: Body, path: str, peer: str) -> Any:
        return await program.body(run, body, path, peer)

    app.workflow(name=WORKFLOWS["def"])(as_def(attack))
    app.workflow(name=WORKFLOWS["async"])(attack)
    app.undo(name="undo")(world.undo)


class Program:
    """Interprets nodes. `peer` is the run that `send` nodes send to."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def body(self, run: AsyncRun, body: Body, path: str, peer: str) -> list[Any]:
        """The results of all nodes, in order."""
        found = []
        for node in body:
            do = getattr(self, f"_{node['op']}")
            found.append(await do(run, node, f"{path}/{node['id']}", peer))
        return found

    # --- recorded calls ----------------------------------------------------------------------------------------------

    async def _step(self, run: AsyncRun, node: Node, path: str, _: str) -> Any:
        retry = RETRY if node.get("retry") else None
        try:
            return await run.step(self._world.compute, path, name=f"s{node['id']}", key=_key(node, path), retry=retry)
        except StepFailed:
            return "failed"

    async def _effect(self, run: AsyncRun, node: Node, path: str, _: str) -> Any:
        retry = RETRY if node.get("retry") or node["in_doubt"] == "retry" else None
        options: dict[str, Any] = {"in_doubt": node["in_doubt"], "retry": retry}
        options |= {"undo": "undo"} if node.get("undo") else {}
        options |= {"check": self._world.check} if node.get("check") else {}
        perform = self._world.perform_keyless if node.get("keyless") else self._world.perform
        try:
            await run.effect(perform, path, name=f"e{node['id']}", key=_key(node, path), **options)
        except EffectInDoubt:
            return "doubt"
        except EffectFailed:
            return "failed"
        return "done"

    async def _forgotten(self, run: AsyncRun, node: Node, path: str, _: str) -> Any:
        """A call without await. In a `def` workflow there is no such thing."""
        if isinstance(run, AsyncRun):
            run.step(self._world.compute, path, name=f"s{node['id']}")  # type: ignore[unused-coroutine]

    async def _ask(self, run: AsyncRun, node: Node, path: str, peer: str) -> Any:
        expired = node.get("expired", "deny")
        try:
            answer = await run.ask(
                f"ask {node['id']}", {"yes": bool}, expires=node.get("expires"), expired=expired, key=_key(node, path)
            )
        except GateExpired:
            return ["expired"]
        chosen = node.get("then", []) if answer["yes"] else node.get("else", [])
        return [answer["yes"], await self.body(run, chosen, path, peer)]

    async def _map(self, run: AsyncRun, node: Node, path: str, _: str) -> Any:
        return await run.map(self._world.double, list(range(node["n"])), name=f"m{node['id']}")

    async def _sleep(self, run: AsyncRun, node: Node, path: str, _: str) -> Any:
        await run.sleep(node["s"], key=_key(node, path))

    async def _wait(self, run: AsyncRun, node: Node, path: str, _: str) -> Any:
        return await run.wait_for(f"v{node['id']}", timeout=node.get("timeout"), default="late", key=_key(node, path))

    async def _send(self, run: AsyncRun, node: Node, path: str, peer: str) -> Any:
        await run.send(peer, node["event"], value_of(node["event"]), key=_key(node, path))

    async def _version(self, run: AsyncRun, node: Node, path: str, _: str) -> Any:
        return await run.version(f"version {path}", 1)

    async def _chance(self, run: AsyncRun, node: Node, path: str, _: str) -> Any:
        """Time and chance: whoever replays with another value diverges at the step that gets it."""
        drawn = [(await run.now()).isoformat(), (await run.random()).random(), str(await run.uuid())]
        await run.step(self._world.echo, drawn, name=f"s{node['id']}")

    async def _log(self, run: AsyncRun, node: Node, path: str, _: str) -> Any:
        await run.log("a line", node=node["id"])

    async def _checkpoint(self, run: AsyncRun, node: Node, path: str, _: str) -> Any:
        await run.checkpoint(metadata={"node": node["id"]})

    async def _note(self, run: AsyncRun, node: Node, path: str, _: str) -> Any:
        run.state["notes"] = [*run.state.get("notes", []), node["id"]]
        return run.state["notes"]

    # --- lines of work -----------------------------------------------------------------------------------------------

    async def _gather(self, run: AsyncRun, node: Node, path: str, peer: str) -> Any:
        def branch_of(number: int, body: Body) -> Callable[[AsyncRun], Coroutine[Any, Any, Any]]:
            async def branch(inner: AsyncRun) -> Any:
                return await self.body(inner, body, path, peer)

            return branch

        return await run.gather(*[branch_of(number, body) for number, body in enumerate(node["branches"])])

    async def _loop(self, run: AsyncRun, node: Node, path: str, peer: str) -> Any:
        run.state[path] = []
        async for turn in run.loop():
            found = await self.body(run, node["body"], f"{path}@{turn}", peer)
            run.state[path] = [*run.state[path], found]
            if turn >= node["turns"]:
                break
        return run.state[path]

    async def _child(self, run: AsyncRun, node: Node, path: str, peer: str) -> Any:
        workflow, detached = WORKFLOWS[node["kind"]], bool(node.get("detached"))
        try:
            found = await run.child(workflow, node["body"], path, peer, key=_key(node, path), detached=detached)
        except ChildFailed as failed:
            return ["cancelled" if failed.error_type == "RunCancelled" else failed.error_type]
        return ["detached"] if detached else ["ended", found]

    async def _last(self, run: AsyncRun, node: Node, path: str, peer: str) -> Any:
        found: dict[str, Any] = {}
        try:
            found["body"] = await self.body(run, node["body"], path, peer)
        finally:
            found["last"] = await self.body(run, node["last"], path, peer)
        return found

    async def _raise(self, run: AsyncRun, node: Node, path: str, peer: str) -> Any:
        raise AttackError(f"node {node['id']} failed")


def _key(node: Node, path: str) -> str | None:
    """An explicit key is one for each place, as a run may use it once."""
    return f"key {path}" if node.get("keyed") else None


def value_of(event: str) -> str:
    """What is sent with an event."""
    return f"value of {event}"


def answer_of(node_id: int) -> bool:
    """What is answered to a gate."""
    return node_id % 3 != 0


def all_nodes(body: Body) -> list[Node]:
    """All nodes of a program, outer before inner."""
    found = []
    for node in body:
        found.append(node)
        for inner in bodies_of(node):
            found += all_nodes(inner)
    return found


def bodies_of(node: Node) -> list[Body]:
    """The programs inside a node."""
    return [*[node[name] for name in ("body", "last", "then", "else") if name in node], *node.get("branches", [])]


def own_nodes(body: list[Node]) -> list[Node]:
    """The nodes of a program without those of its children."""
    found = []
    for node in body:
        found.append(node)
        if node["op"] != "child":
            for inner in bodies_of(node):
                found += own_nodes(inner)
    return found


def nodes_in_loops(body: list[Node]) -> list[Node]:
    """All nodes inside loops."""
    found = []
    for node in all_nodes(body):
        if node["op"] == "loop":
            found += all_nodes(node["body"])
    return found

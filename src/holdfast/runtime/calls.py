"""What a run can do, as plans of the engine, once for both kinds of run. `run.py` says what each is for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from holdfast.engine import asking, children, effects, parallel, steps, values, waiting
from holdfast.engine.commands import Plan
from holdfast.engine.execution import Execution
from holdfast.engine.scope import Scope
from holdfast.errors import InvalidInput, UnknownWorkflow

if TYPE_CHECKING:
    from holdfast.runtime.carrier import Carrier


def step(
    exe: Execution, scope: Scope, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None,
    key: str | None, retry: Any, timeout: float | None,
) -> Plan[Any]:  # fmt: skip
    return steps.step(exe, scope, steps.spec_of(fn, args, kwargs, name, key, retry, timeout))


def effect(
    exe: Execution, scope: Scope, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None,
    key: str | None, retry: Any, timeout: float | None, undo: Any, in_doubt: str, check: Any, target: str | None,
    **verdicts: Any,
) -> Plan[Any]:  # fmt: skip
    spec = steps.spec_of(fn, args, kwargs, name, key, retry, timeout)
    world = effects.world_of(exe, undo, in_doubt, check, target, spec.name, **verdicts)
    return effects.effect(exe, scope, spec, world)


def ask(
    exe: Execution, scope: Scope, prompt: str, fields: Any, show: Any, who: Any, expires: Any, expired: Any,
    key: str | None,
) -> Plan[Any]:  # fmt: skip
    if not isinstance(prompt, str) or not prompt:
        raise InvalidInput(f"ask needs a question as text, not {prompt!r}")
    seconds = None if expires is None else waiting.seconds_us("expires", expires) / 1e6
    return asking.ask(
        exe, scope, prompt, fields, show=show, who=who, expires=seconds, expired=expired, key=key
    )  # fmt: skip


def map_items(
    exe: Execution, scope: Scope, fn: Any, items: Iterable[Any], limit: int | None, name: str | None,
    key: str | None, retry: Any, timeout: float | None, return_exceptions: bool,
) -> Plan[list[Any]]:  # fmt: skip
    spec = steps.spec_of(fn, (), {}, name, None, retry, timeout)
    return parallel.map_items(exe, scope, spec, items, limit, key, return_exceptions=return_exceptions)


def gather(
    exe: Execution, scope: Scope, branches: tuple[Callable[[Any], Any], ...], limit: int | None, key: str | None,
    return_exceptions: bool,
) -> Plan[list[Any]]:  # fmt: skip
    return parallel.gather(exe, scope, branches, limit, key, return_exceptions=return_exceptions)


def sleep(exe: Execution, scope: Scope, seconds: Any, key: str | None) -> Plan[None]:
    return waiting.sleep(exe, scope, waiting.seconds_us("sleep", seconds), None, key)


def sleep_until(exe: Execution, scope: Scope, when: Any, key: str | None) -> Plan[None]:
    return waiting.sleep(exe, scope, None, waiting.moment_us(when), key)


def child(
    carrier: Carrier, scope: Scope, workflow: Any, args: tuple[Any, ...], kwargs: dict[str, Any], key: str | None,
    detached: bool, enqueue: bool,
) -> Plan[Any]:  # fmt: skip
    name = workflow if isinstance(workflow, str) else getattr(workflow, "name", getattr(workflow, "__name__", ""))
    known = carrier.app.known(name)
    is_unknown = known is None and isinstance(workflow, str) and not enqueue
    result = yield from children.child(
        carrier.exe, scope, workflow, name, args, kwargs, key, detached, enqueue=enqueue,
        unknown=UnknownWorkflow(name, list(carrier.app.registry.workflows)) if is_unknown else None,
    )  # fmt: skip
    return result if detached or known is None else known.typed_result(result)


wait_for = waiting.wait_for
send = waiting.send
now = values.now
random = values.random
uuid = values.uuid
version = values.version
log = values.log
checkpoint = values.checkpoint

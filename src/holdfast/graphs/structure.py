"""Structural checks of a definition, findings, and the registry of names.

A definition with a structural error cannot be loaded, registered or walked. The checks do not depend on what a process
has registered, and they perform no I/O.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Literal, Protocol

import msgspec

from holdfast.engine.gates import AskSpec, check_denial
from holdfast.engine.retry import Retry, retry_of
from holdfast.engine.scope import check_key
from holdfast.errors import InvalidGraph, InvalidInput
from holdfast.graphs.definition import (
    AnyStage,
    Ask,
    Call,
    Condition,
    Edge,
    Effect,
    End,
    ForEach,
    Graph,
    LoopUntil,
    RetryPolicy,
    Set,
    Sleep,
    SubWorkflow,
    Wait,
)
from holdfast.graphs.expressions import RESERVED, each, is_alone, parts_of, paths_in
from holdfast.graphs.fields import form_of_fields
from holdfast.graphs.flow import output_key_of, texts_of
from holdfast.ids import check_id
from holdfast.limits import BRANCHES_MAX
from holdfast.model.views import View

UserFunction = Callable[..., Any]
Place = tuple[str | int, ...]
"""A path into a definition, such as `("stages", 0, "with")`."""


class Finding(View, frozen=True, kw_only=True):
    """A problem of a definition. One with an `error` cannot be started; a `warning` marks a likely mistake."""

    level: Literal["error", "warning"]
    code: str
    """The kind of problem: `unreachable`, `no_end`, `unknown_function` …"""
    message: str
    stage: str | None = None
    path: Place = ()
    """Its location in the definition."""

    def __str__(self) -> str:
        where = f"stage {self.stage!r}: " if self.stage is not None else ""
        return f"{self.level}: {where}{self.message}"


class RegisteredWorkflow(Protocol):
    """A workflow that a process has registered."""

    @property
    def is_declared(self) -> bool:
        """Whether it is a graph."""
        ...


class NameRegistry(Protocol):
    """The functions and workflows that a process has registered, by name."""

    @property
    def functions(self) -> Mapping[str, UserFunction]:
        """Functions that stages may call."""
        ...

    @property
    def undos(self) -> Mapping[str, UserFunction]:
        """Functions that undo effects."""
        ...

    @property
    def workflows(self) -> Mapping[str, RegisteredWorkflow]:
        """Workflows that may run as part of another."""
        ...

    def declare(self, name: str, graph: Graph | None) -> object:
        """Register a declared workflow under this name. Without a graph, each run uses its own definition."""
        ...


class HasRegistry(Protocol):
    """An app."""

    @property
    def registry(self) -> NameRegistry:
        """Its registered names."""
        ...


def refuse_errors(name: str, findings: list[Finding]) -> None:
    """Raise InvalidGraph if there are errors among the findings."""
    errors = [finding for finding in findings if finding.level == "error"]
    if errors:
        raise InvalidGraph(name, [str(error).removeprefix("error: ") for error in errors])


DEPTH_MAX: Final = 100
"""How deeply dicts, lists and parts may be nested."""


def is_deeper(value: object, limit: int = DEPTH_MAX) -> bool:
    """Whether containers are nested deeper than `limit`, as they are in a container that contains itself."""
    level = {id(value): value} if isinstance(value, _CONTAINERS) else {}
    for _ in range(limit):
        if not level:
            return False
        parts = (part for holder in level.values() for part in _parts_of(holder))
        level = {id(part): part for part in parts if isinstance(part, _CONTAINERS)}
    return bool(level)


_CONTAINERS: Final = (dict, list, tuple, set, frozenset, msgspec.Struct)


def _parts_of(holder: object) -> Iterable[object]:
    if isinstance(holder, dict):
        return holder.values()
    if isinstance(holder, msgspec.Struct):
        return [getattr(holder, name) for name in holder.__struct_fields__]
    return holder if isinstance(holder, (list, tuple, set, frozenset)) else ()


SECONDS_MAX: Final = 10 * 366 * 24 * 3600
"""The longest time in a definition: ten years."""

FACTOR_MAX: Final = 30
"""By how much the wait may grow from one retry to the next."""

_BODIES = {LoopUntil: (LoopUntil, End), ForEach: (LoopUntil, End, Set)}
"""Stages that cannot be the body of a stage; a graph in a sub_workflow can have them."""


def structure(graph: Graph) -> list[Finding]:
    """All errors in the structure of a graph."""
    if is_deeper(graph):
        return [_error("too_deep", f"the definition is nested deeper than {DEPTH_MAX} levels")]
    return list(_graph(graph))


def _error(code: str, message: str, path: Place = (), stage: str | None = None) -> Finding:
    return Finding(level="error", code=code, message=message, stage=stage, path=path)


def _graph(graph: Graph) -> Iterator[Finding]:
    yield from _finding(lambda: check_id("id", graph.id), ("id",))
    if not graph.stages:
        yield _error("no_stages", "the graph has no stages; add at least one", ("stages",))
    ids = Counter(stage.id for stage in graph.stages)
    for number, stage in enumerate(graph.stages):
        yield from _stage(stage, ("stages", number), ids[stage.id])
    if graph.start and graph.start not in ids:
        yield _error("no_start", f"`start` is {graph.start!r}, but no stage has this id", ("start",))
    yield from _edges(graph, ids)
    yield from _variables(graph)
    if graph.input is not None:
        yield from _finding(lambda: form_of_fields(graph.input or {}), ("input",))
    if graph.max_iterations is not None and graph.max_iterations < 1:
        yield _error("bad_bound", "max_iterations must be 1 or more, or null for no limit", ("max_iterations",))


def _edges(graph: Graph, ids: Counter[str]) -> Iterator[Finding]:
    ends = {stage.id for stage in graph.stages if isinstance(stage, End)}
    defaults: Counter[str] = Counter()
    for number, edge in enumerate(graph.edges or ()):
        yield from _edge(edge, ("edges", number), ids)
        if edge.source in ends:
            why = f"an edge starts at {edge.source!r}, but an end stage has no edges; remove the edge"
            yield _error("edge_from_end", why, ("edges", number))
        defaults[edge.source] += edge.default
    for source, count in defaults.items():
        if count > 1:
            yield _error("two_defaults", "it has more than one default edge; keep one", ("edges",), source)


def _edge(edge: Edge, path: Place, ids: Counter[str]) -> Iterator[Finding]:
    for field, end in (("from", edge.source), ("to", edge.target)):
        if end not in ids:
            yield _error("no_such_stage", f"`{field}` of an edge is {end!r}, but no stage has this id", (*path, field))
    yield from _conditions(edge.conditions, (*path, "conditions"), None)
    if edge.default and edge.conditions:
        why = "the default edge applies when no other edge fits; remove its conditions or `default`"
        yield _error("default_with_conditions", why, path)


def _variables(graph: Graph) -> Iterator[Finding]:
    for key in graph.variables:
        yield from _key(key, ("variables", key), None)
        parts = key.split(".")
        for count in range(1, len(parts)):
            outer = ".".join(parts[:count])
            if outer in graph.variables:
                why = f"the variable {key!r} is part of the variable {outer!r}; define it inside {outer!r} only"
                yield _error("key_twice", why, ("variables", key))


def _stage(stage: AnyStage, path: Place, count: int) -> Iterator[Finding]:
    if not stage.id:
        yield _error("no_id", "a stage needs an `id`", path)
    elif count > 1:
        yield _error("same_id", f"{count} stages have this id; ids must be unique", (*path, "id"), stage.id)
    else:
        yield from _finding(lambda: _check_stage_id(stage.id), (*path, "id"), stage.id)
    yield from _step(stage, path, stage.id)


def _check_stage_id(text: str) -> None:
    check_key("stage id", text)
    if len(text) > 100:
        raise InvalidInput(f"the id of a stage may have at most 100 characters, not {len(text)}")


def _step(stage: AnyStage, path: Place, name: str) -> Iterator[Finding]:
    """Check a stage, or the body of one."""
    for field, value in texts_of(stage):
        yield from _finding(partial(list, paths_in(value)), (*path, field), name)
    if key := output_key_of(stage):
        yield from _key(key, (*path, "output_key"), name)
    if stage.on_failure == "retry" and not isinstance(stage, (Call, Effect)):
        why = "on_failure: retry is only for call and effect; use abort, skip or compensate"
        yield _error("bad_on_failure", why, (*path, "on_failure"), name)
    match stage:
        case Call() | Effect():
            yield from _finding(lambda: policy_of(stage.retry), (*path, "retry"), name)
            yield from _seconds("timeout_s", stage.timeout_s, path, name, above=True)
        case Ask():
            if not stage.output_key:
                yield _error("no_output_key", "an ask needs an output_key for its answer", path, name)
            yield from _seconds("expires_s", stage.expires_s, path, name, above=True)
            yield from _finding(lambda: _check_form(stage), (*path, "fields"), name)
            yield from _finding(lambda: _check_rules(stage), path, name)
        case Set():
            for key in stage.values:
                yield from _key(key, (*path, "values", key), name)
        case Wait():
            yield from _seconds("timeout_s", stage.timeout_s, path, name)
        case Sleep():
            yield from _sleep(stage, path, name)
        case End():
            if stage.breakpoint:
                yield _error("bad_breakpoint", "an end stage cannot have a breakpoint", (*path, "breakpoint"), name)
        case LoopUntil() | ForEach():
            yield from _body(stage, path, name)
        case SubWorkflow() if stage.graph is not None:
            for finding in _graph(stage.graph):
                inner = f"in its graph: {finding.message}"
                yield _error(finding.code, inner, (*path, "graph", *finding.path), name)


def _body(stage: LoopUntil | ForEach, path: Place, name: str) -> Iterator[Finding]:
    body, inside = stage.body, (*path, "body")
    if isinstance(body, _BODIES[type(stage)]):
        kind = type(body).__struct_config__.tag
        why = f"a stage of type {kind} cannot be the body; put it into the graph of a sub_workflow"
        yield _error("bad_body", why, inside, name)
    if body.id or body.breakpoint:
        yield _error("bad_body", "a body cannot have `id` or `breakpoint`; put them on the stage", inside, name)
    if body.on_failure == "compensate" or (isinstance(stage, LoopUntil) and body.on_failure != "abort"):
        instead = "give the body `retry`" if body.on_failure == "retry" else "put it on the stage"
        why = f"on_failure: {body.on_failure} is not allowed on this body; {instead}"
        yield _error("bad_body", why, (*inside, "on_failure"), name)
    if isinstance(stage, ForEach):
        yield from _finding(lambda: parts_of(stage.items_from), (*path, "items_from"), name)
        if stage.max_concurrent is not None and not 1 <= stage.max_concurrent <= BRANCHES_MAX:
            why = f"max_concurrent must be between 1 and {BRANCHES_MAX}"
            yield _error("bad_bound", why, (*path, "max_concurrent"), name)
        if output_key_of(body) and not isinstance(body, Ask):
            why = "the body of a for_each cannot have an output_key; put it on the for_each, which collects the results"
            yield _error("bad_body", why, inside, name)
    elif stage.max_iterations is not None and stage.max_iterations < 1:
        yield _error("bad_bound", "max_iterations must be 1 or more", (*path, "max_iterations"), name)
    if isinstance(stage, LoopUntil):
        yield from _conditions(stage.until, (*path, "until"), name)
    yield from _step(body, inside, name)


# --- times -----------------------------------------------------------------------------------------------------------


def _seconds(field: str, value: object, path: Place, name: str, *, above: bool = False) -> Iterator[Finding]:
    """Check a number of seconds, if there is one."""
    good = isinstance(value, (int, float)) and 0 <= value <= SECONDS_MAX and not (above and value == 0)
    if value is not None and not good:
        yield _error("bad_time", _seconds_rule(field, above=above), (*path, field), name)


def _seconds_rule(field: str, *, above: bool = False) -> str:
    least = "above 0" if above else "0 or more"
    return f"{field} must be a number of seconds, {least} and at most {SECONDS_MAX} (ten years)"


def _sleep(stage: Sleep, path: Place, name: str) -> Iterator[Finding]:
    if isinstance(stage.seconds, str):
        if not is_alone(stage.seconds):
            why = "seconds must be a number, or a reference to one alone, such as {{ input.wait }}"
            yield _error("bad_time", why, (*path, "seconds"), name)
    else:
        yield from _seconds("seconds", stage.seconds, path, name)
    if stage.until is not None:
        yield from _finding(lambda: list(paths_in(stage.until)) or moment_of(stage.until), (*path, "until"), name)


def moment_of(given: object, what: str = "until") -> dt.datetime:
    """The time that `until` of a sleep names, or another option."""
    try:
        moment = given if isinstance(given, dt.datetime) else dt.datetime.fromisoformat(str(given))
    except ValueError:
        raise InvalidInput(f"{what} must be a time such as 2026-11-16T09:00:00+01:00, not {given!r}") from None
    if moment.tzinfo is None:
        raise InvalidInput(f"{what} is {given!r}, without a time zone; add one, such as +01:00")
    return moment


# --- parts -----------------------------------------------------------------------------------------------------------


def _conditions(conditions: tuple[Condition, ...], path: Place, name: str | None) -> Iterator[Finding]:
    for condition in each(conditions):
        yield from _finding(partial(parts_of, condition.key), path, name)
        yield from _finding(partial(list, paths_in(condition.value)), path, name)


def _key(key: str, path: Place, name: str | None) -> Iterator[Finding]:
    if "{{" in key:
        yield _error("bad_key", f"the key {key!r} cannot be a template; write a fixed path", path, name)
    elif key.split(".")[0] in RESERVED:
        why = f"the key {key!r} is reserved; use a key that does not begin with {', '.join(sorted(RESERVED))}"
        yield _error("reserved_key", why, path, name)
    else:
        yield from _finding(lambda: parts_of(key), path, name)


def _finding(check: Callable[[], object], path: Place, name: str | None = None) -> Iterator[Finding]:
    """Perform a check, and turn the InvalidInput that it raises into a finding."""
    try:
        check()
    except InvalidInput as error:
        yield _error("invalid", str(error), path, name)


def _check_rules(stage: Ask) -> None:
    spec = AskSpec(prompt="?", who=stage.who)
    spec.set_rules(stage.approvals, stage.not_by, [(level.after_s, level.who) for level in stage.escalate])
    spec.rules.check_form(form_of_fields(stage.fields))


def _check_form(stage: Ask) -> None:
    form = form_of_fields(stage.fields)
    if stage.expires_s is None or stage.expired == "fail":
        return
    if stage.expired == "deny":
        check_denial(form)
    elif not list(paths_in(stage.expired)):
        problems = form.check(stage.expired).problems
        if problems:
            raise InvalidInput("`expired` is not a valid answer: " + "; ".join(map(str, problems)))


def policy_of(retry: int | RetryPolicy | None) -> Retry | None:
    """Return a retry policy as the engine takes it."""
    if retry is None:
        return None
    if isinstance(retry, RetryPolicy):
        for name in ("first_s", "longest_s"):
            if not 0 <= getattr(retry, name) <= SECONDS_MAX:
                raise InvalidInput(_seconds_rule(name))
        if not 1 <= retry.factor <= FACTOR_MAX:
            raise InvalidInput(f"factor must be between 1 and {FACTOR_MAX}, not {retry.factor}")
        if math.isnan(retry.jitter):
            raise InvalidInput("jitter must be between 0 and 1, not nan")
        return Retry(
            attempts=retry.attempts,
            initial_delay=retry.first_s,
            backoff=retry.factor,
            max_delay=retry.longest_s,
            jitter=retry.jitter,
        )
    return retry_of(retry, Retry())

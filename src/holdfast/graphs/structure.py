"""The structure of a definition: what must be true of it whatever a process knows by name. Pure."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from holdfast.engine.asking import check_denial
from holdfast.engine.retry import Retry, retry_of
from holdfast.engine.scope import check_key
from holdfast.errors import InvalidInput
from holdfast.graphs.conditions import each
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
from holdfast.graphs.depth import DEPTH_MAX, is_deeper
from holdfast.graphs.fields import form_of_fields
from holdfast.graphs.findings import Finding, Place
from holdfast.graphs.paths import RESERVED, parts_of
from holdfast.graphs.reads import texts_of
from holdfast.graphs.templates import is_alone, paths_in
from holdfast.ids import check_id
from holdfast.limits import BRANCHES_MAX

SECONDS_MAX: Final = 10 * 366 * 24 * 3600
"""The longest time a definition may name: ten years."""

FACTOR_MAX: Final = 30
"""How much longer each wait between tries may be than the one before."""

_BODIES = {LoopUntil: (LoopUntil, End), ForEach: (LoopUntil, End, Set)}
"""What cannot be the body of a stage; a graph in a sub_workflow can have them."""


def structure(graph: Graph) -> list[Finding]:
    """All that is wrong with the structure."""
    if is_deeper(graph):
        return [_error("too_deep", f"it is nested deeper than {DEPTH_MAX}")]
    return list(_graph(graph))


def _error(code: str, message: str, path: Place = (), stage: str | None = None) -> Finding:
    return Finding(level="error", code=code, message=message, stage=stage, path=path)


def _graph(graph: Graph) -> Iterator[Finding]:
    yield from _said(lambda: check_id("id", graph.id), ("id",))
    if not graph.stages:
        yield _error("no_stages", "it has no stages", ("stages",))
    ids = Counter(stage.id for stage in graph.stages)
    for number, stage in enumerate(graph.stages):
        yield from _stage(stage, ("stages", number), ids[stage.id])
    if graph.start and graph.start not in ids:
        yield _error("no_start", f"it starts at {graph.start!r}, and there is no such stage", ("start",))
    yield from _edges(graph, ids)
    yield from _variables(graph)
    if graph.input is not None:
        yield from _said(lambda: form_of_fields(graph.input or {}), ("input",))
    if graph.max_iterations is not None and graph.max_iterations < 1:
        yield _error("bad_bound", "max_iterations is 1 or more, or null for no bound", ("max_iterations",))


def _edges(graph: Graph, ids: Counter[str]) -> Iterator[Finding]:
    ends = {stage.id for stage in graph.stages if isinstance(stage, End)}
    defaults: Counter[str] = Counter()
    for number, edge in enumerate(graph.edges or ()):
        yield from _edge(edge, ("edges", number), ids)
        if edge.source in ends:
            yield _error("edge_from_end", f"an edge leads from {edge.source!r}, which is an end", ("edges", number))
        defaults[edge.source] += edge.default
    for source, count in defaults.items():
        if count > 1:
            yield _error("two_defaults", "it has more than one default edge", ("edges",), source)


def _edge(edge: Edge, path: Place, ids: Counter[str]) -> Iterator[Finding]:
    for field, end in (("from", edge.source), ("to", edge.target)):
        if end not in ids:
            yield _error("no_such_stage", f"an edge leads {field} {end!r}, and there is no such stage", (*path, field))
    yield from _conditions(edge.conditions, (*path, "conditions"), None)
    if edge.default and edge.conditions:
        yield _error(
            "default_with_conditions", "the default edge is for when no other fits; it has no conditions", path
        )


def _variables(graph: Graph) -> Iterator[Finding]:
    for key in graph.variables:
        yield from _key(key, ("variables", key), None)
        way = key.split(".")
        for count in range(1, len(way)):
            outer = ".".join(way[:count])
            if outer in graph.variables:
                why = f"the variable {key!r} lies inside of {outer!r}, which is one as well; write it there"
                yield _error("key_twice", why, ("variables", key))


def _stage(stage: AnyStage, path: Place, count: int) -> Iterator[Finding]:
    if not stage.id:
        yield _error("no_id", "a stage has an id", path)
    elif count > 1:
        yield _error("same_id", f"{count} stages have this id", (*path, "id"), stage.id)
    else:
        yield from _said(lambda: _check_stage_id(stage.id), (*path, "id"), stage.id)
    yield from _step(stage, path, stage.id)


def _check_stage_id(text: str) -> None:
    check_key("stage id", text)
    if len(text) > 100:
        raise InvalidInput("a stage's id has at most 100 characters")


def _step(stage: AnyStage, path: Place, name: str) -> Iterator[Finding]:
    """A stage, or the body of one."""
    for field, value in texts_of(stage):
        yield from _said(lambda value=value: list(paths_in(value)), (*path, field), name)
    key = getattr(stage, "output_key", "")
    if key:
        yield from _key(key, (*path, "output_key"), name)
    if stage.on_failure == "retry" and not isinstance(stage, (Call, Effect)):
        why = "on_failure: retry is for call and effect; here nothing would be tried again"
        yield _error("bad_on_failure", why, (*path, "on_failure"), name)
    match stage:
        case Call() | Effect():
            yield from _said(lambda: policy_of(stage.retry), (*path, "retry"), name)
            yield from _seconds("timeout_s", stage.timeout_s, path, name, above=True)
        case Ask():
            if not stage.output_key:
                yield _error("no_output_key", "the answer needs an output_key", path, name)
            yield from _seconds("expires_s", stage.expires_s, path, name, above=True)
            yield from _said(lambda: _check_form(stage), (*path, "fields"), name)
        case Set():
            for key in stage.values:
                yield from _key(key, (*path, "values", key), name)
        case Wait():
            yield from _seconds("timeout_s", stage.timeout_s, path, name)
        case Sleep():
            yield from _sleep(stage, path, name)
        case End():
            if stage.breakpoint:
                yield _error("bad_breakpoint", "an end has nothing to stop before", (*path, "breakpoint"), name)
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
        yield _error("bad_body", f"a stage of type {kind} cannot be its body; use a sub_workflow", inside, name)
    if body.id or body.breakpoint:
        yield _error("bad_body", "a body has no id and no breakpoint of its own", inside, name)
    if body.on_failure == "compensate" or (isinstance(stage, LoopUntil) and body.on_failure != "abort"):
        instead = "give the body `retry`" if body.on_failure == "retry" else "put it on the stage"
        why = f"on_failure: {body.on_failure} means nothing on this body; {instead}"
        yield _error("bad_body", why, (*inside, "on_failure"), name)
    if isinstance(stage, ForEach):
        yield from _said(lambda: parts_of(stage.items_from), (*path, "items_from"), name)
        if stage.max_concurrent is not None and not 1 <= stage.max_concurrent <= BRANCHES_MAX:
            yield _error("bad_bound", f"max_concurrent is 1 to {BRANCHES_MAX}", (*path, "max_concurrent"), name)
        if getattr(body, "output_key", "") and not isinstance(body, Ask):
            yield _error("bad_body", "the results are collected under the output_key of the for_each", inside, name)
    elif stage.max_iterations is not None and stage.max_iterations < 1:
        yield _error("bad_bound", "max_iterations is 1 or more", (*path, "max_iterations"), name)
    if isinstance(stage, LoopUntil):
        yield from _conditions(stage.until, (*path, "until"), name)
    yield from _step(body, inside, name)


# --- times -----------------------------------------------------------------------------------------------------------


def _seconds(field: str, value: Any, path: Place, name: str, *, above: bool = False) -> Iterator[Finding]:
    """A number of seconds, if there is one."""
    good = isinstance(value, (int, float)) and 0 <= value <= SECONDS_MAX and not (above and value == 0)
    if value is not None and not good:
        least = "above 0" if above else "of 0 or more"
        why = f"{field} is a number of seconds {least} and at most {SECONDS_MAX}, ten years"
        yield _error("bad_time", why, (*path, field), name)


def _sleep(stage: Sleep, path: Place, name: str) -> Iterator[Finding]:
    if isinstance(stage.seconds, str):
        if not is_alone(stage.seconds):
            why = "seconds is a number, or names one and nothing else, as {{ input.wait }}"
            yield _error("bad_time", why, (*path, "seconds"), name)
    else:
        yield from _seconds("seconds", stage.seconds, path, name)
    if stage.until is not None:
        yield from _said(lambda: _check_moment(stage.until), (*path, "until"), name)


def _check_moment(given: Any) -> None:
    if list(paths_in(given)):
        return
    try:
        moment = given if isinstance(given, dt.datetime) else dt.datetime.fromisoformat(str(given))
    except ValueError:
        raise InvalidInput(f"until is a moment as 2026-11-16T09:00:00+01:00, not {given!r}") from None
    if moment.tzinfo is None:
        raise InvalidInput(f"until needs a time zone: {given!r} has none")


# --- parts -----------------------------------------------------------------------------------------------------------


def _conditions(conditions: tuple[Condition, ...], path: Place, name: str | None) -> Iterator[Finding]:
    for condition in each(conditions):
        yield from _said(lambda condition=condition: parts_of(condition.key), path, name)
        yield from _said(lambda condition=condition: list(paths_in(condition.value)), path, name)


def _key(key: str, path: Place, name: str | None) -> Iterator[Finding]:
    if "{{" in key:
        yield _error("bad_key", f"the key {key!r} cannot be a template; write out where the value goes", path, name)
    elif key.split(".")[0] in RESERVED:
        yield _error("reserved_key", f"the key {key!r} is not free; {', '.join(sorted(RESERVED))} are Holdfast's own",
                     path, name)  # fmt: skip
    else:
        yield from _said(lambda: parts_of(key), path, name)


def _said(check: Any, path: Place, name: str | None = None) -> Iterator[Finding]:
    """A check that raises, as a finding."""
    try:
        check()
    except InvalidInput as error:
        yield _error("invalid", str(error), path, name)


def _check_form(stage: Ask) -> None:
    form = form_of_fields(stage.fields)
    if stage.expires_s is None or stage.expired == "fail":
        return
    if stage.expired == "deny":
        check_denial(form)
    elif not list(paths_in(stage.expired)):
        problems = form.check(stage.expired).problems
        if problems:
            raise InvalidInput("the answer under `expired` does not fit: " + "; ".join(map(str, problems)))


def policy_of(retry: int | RetryPolicy | None) -> Retry | None:
    """A retry as the engine takes it."""
    if retry is None:
        return None
    if isinstance(retry, RetryPolicy):
        for name in ("first_s", "longest_s"):
            if not 0 <= getattr(retry, name) <= SECONDS_MAX:
                raise InvalidInput(f"{name} is a number of seconds of 0 or more and at most {SECONDS_MAX}, ten years")
        if not 1 <= retry.factor <= FACTOR_MAX:
            raise InvalidInput(f"factor is 1 to {FACTOR_MAX}")
        if math.isnan(retry.jitter):
            raise InvalidInput("jitter is 0 to 1")
        return Retry(
            attempts=retry.attempts, first_s=retry.first_s, factor=retry.factor, longest_s=retry.longest_s,
            jitter=retry.jitter,
        )  # fmt: skip
    return retry_of(retry, Retry())

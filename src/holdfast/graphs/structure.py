"""The structure of a definition: what must be true of it whatever a process knows by name. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from holdfast.engine.retry import Retry, retry_of
from holdfast.engine.scope import check_key
from holdfast.errors import InvalidInput
from holdfast.graphs.conditions import each
from holdfast.graphs.definition import (
    AnyStage,
    Ask,
    Call,
    Condition,
    Effect,
    End,
    ForEach,
    Graph,
    LoopUntil,
    RetryPolicy,
    Set,
    SubWorkflow,
)
from holdfast.graphs.fields import form_of_fields
from holdfast.graphs.findings import Finding, Place
from holdfast.graphs.flow import edges_of, start_of
from holdfast.graphs.paths import RESERVED, parts_of
from holdfast.graphs.reads import texts_of
from holdfast.graphs.templates import paths_in
from holdfast.ids import check_id

_BODIES = {LoopUntil: (LoopUntil, End), ForEach: (LoopUntil, End, Set)}
"""What cannot be the body of a stage; a graph in a sub_workflow can have them."""


def structure(graph: Graph) -> list[Finding]:
    """All that is wrong with the structure."""
    return list(_graph(graph)) or list(_numbers(graph))


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
    for number, edge in enumerate(graph.edges or ()):
        for field, end in (("from", edge.source), ("to", edge.target)):
            if end not in ids:
                yield _error("no_such_stage", f"an edge leads {field} {end!r}, and there is no such stage",
                             ("edges", number, field))  # fmt: skip
        yield from _conditions(edge.conditions, ("edges", number, "conditions"), None)
        if edge.default and edge.conditions:
            yield _error("default_with_conditions", "the default edge is for when no other fits; it has no conditions",
                         ("edges", number))  # fmt: skip
        if any(stage.id == edge.source and isinstance(stage, End) for stage in graph.stages):
            yield _error("edge_from_end", f"an edge leads from {edge.source!r}, which is an end", ("edges", number))
    for key in graph.variables:
        yield from _key(key, ("variables", key), None)
    if graph.input is not None:
        yield from _said(lambda: form_of_fields(graph.input or {}), ("input",))


def _numbers(graph: Graph) -> Iterator[Finding]:
    if graph.max_iterations is not None and graph.max_iterations < 1:
        yield _error("bad_bound", "max_iterations is 1 or more, or null for no bound", ("max_iterations",))
    for source in {edge.source for edge in edges_of(graph)}:
        if sum(edge.default for edge in edges_of(graph) if edge.source == source) > 1:
            yield _error("two_defaults", "it has more than one default edge", ("edges",), source)
    assert start_of(graph)


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
    match stage:
        case Call() | Effect():
            yield from _said(lambda: policy_of(stage.retry), (*path, "retry"), name)
            if stage.timeout_s is not None and not stage.timeout_s > 0:
                yield _error("bad_timeout", "timeout_s is a number of seconds above 0", (*path, "timeout_s"), name)
        case Ask():
            if not stage.output_key:
                yield _error("no_output_key", "the answer needs an output_key", path, name)
            yield from _said(lambda: _check_form(stage), (*path, "fields"), name)
        case Set():
            for key in stage.values:
                yield from _key(key, (*path, "values", key), name)
        case LoopUntil() | ForEach():
            yield from _body(stage, path, name)
        case SubWorkflow() if stage.graph is not None:
            for finding in structure(stage.graph):
                inner = f"in its graph: {finding.message}"
                yield _error(finding.code, inner, (*path, "graph", *finding.path), name)


def _body(stage: LoopUntil | ForEach, path: Place, name: str) -> Iterator[Finding]:
    body, inside = stage.body, (*path, "body")
    if isinstance(body, _BODIES[type(stage)]):
        kind = type(body).__struct_config__.tag
        yield _error("bad_body", f"a stage of type {kind} cannot be its body; use a sub_workflow", inside, name)
    if body.id or body.breakpoint:
        yield _error("bad_body", "a body has no id and no breakpoint of its own", inside, name)
    if body.on_failure == "compensate":
        yield _error("bad_body", "on_failure: compensate belongs to the stage, not to its body", inside, name)
    if isinstance(stage, ForEach):
        yield from _said(lambda: parts_of(stage.items_from), (*path, "items_from"), name)
        if stage.max_concurrent is not None and stage.max_concurrent < 1:
            yield _error("bad_bound", "max_concurrent is 1 or more", (*path, "max_concurrent"), name)
        if getattr(body, "output_key", "") and not isinstance(body, Ask):
            yield _error("bad_body", "the results are collected under the output_key of the for_each", inside, name)
    elif stage.max_iterations is not None and stage.max_iterations < 1:
        yield _error("bad_bound", "max_iterations is 1 or more", (*path, "max_iterations"), name)
    if isinstance(stage, LoopUntil):
        yield from _conditions(stage.until, (*path, "until"), name)
    yield from _step(body, inside, name)


def _conditions(conditions: tuple[Condition, ...], path: Place, name: str | None) -> Iterator[Finding]:
    for condition in each(conditions):
        yield from _said(lambda condition=condition: parts_of(condition.key), path, name)
        yield from _said(lambda condition=condition: list(paths_in(condition.value)), path, name)


def _key(key: str, path: Place, name: str | None) -> Iterator[Finding]:
    if key.split(".")[0] in RESERVED:
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
    if not stage.expires_s > 0:
        raise InvalidInput("expires_s is a number of seconds above 0")
    if stage.expired == "deny":
        form.denied()
    elif not list(paths_in(stage.expired)):
        problems = form.check(stage.expired).problems
        if problems:
            raise InvalidInput("the answer under `expired` does not fit: " + "; ".join(map(str, problems)))


def policy_of(retry: int | RetryPolicy | None) -> Retry | None:
    """A retry as the engine takes it."""
    if retry is None:
        return None
    if isinstance(retry, RetryPolicy):
        return Retry(
            attempts=retry.attempts, first_s=retry.first_s, factor=retry.factor, longest_s=retry.longest_s,
            jitter=retry.jitter,
        )  # fmt: skip
    return retry_of(retry, Retry())

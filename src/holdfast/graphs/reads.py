"""What a stage reads of the state, and what it writes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.graphs.definition import (
    AnyStage,
    Ask,
    Call,
    Effect,
    End,
    ForEach,
    LoopUntil,
    Set,
    Sleep,
    SubWorkflow,
    Wait,
)


def texts_of(stage: AnyStage) -> Iterator[tuple[str, Any]]:
    """The fields of a stage whose texts may name parts of the state, without those of its body."""
    match stage:
        case Call() | SubWorkflow():
            yield "with", stage.arguments
        case Effect():
            yield "with", stage.arguments
            yield "key", stage.key
        case Ask():
            yield "prompt", stage.prompt
            yield "show", stage.show
            yield "who", stage.who
            yield "expired", stage.expired
        case Wait():
            yield "event", stage.event
            yield "default", stage.default
        case Sleep():
            yield "seconds", stage.seconds
            yield "until", stage.until
        case Set():
            yield "values", stage.values
        case End():
            yield "result", stage.result
            yield "failed", stage.failed


def written_by(stage: AnyStage) -> Iterator[str]:
    """The keys a stage puts into the state, without `stage.<id>`."""
    match stage:
        case Set():
            yield from stage.values
        case LoopUntil():
            yield from written_by(stage.body)
        case ForEach() | Call() | Effect() | Ask() | SubWorkflow() | Wait():
            if stage.output_key:
                yield stage.output_key


def body_of(stage: AnyStage) -> AnyStage | None:
    """The body of a stage that has one."""
    return stage.body if isinstance(stage, (LoopUntil, ForEach)) else None

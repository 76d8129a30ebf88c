"""What a stage would do, in words, for dry runs: with what is known of the state filled in. Nothing is done."""

from __future__ import annotations

from typing import Any

from holdfast.errors import InvalidInput
from holdfast.graphs.conditions import UNKNOWN, has_unknown
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
from holdfast.graphs.fields import form_of_fields
from holdfast.graphs.paths import MISSING, find
from holdfast.graphs.templates import Lookup, Unresolved, as_text, render


def said(stage: AnyStage, lookup: Lookup) -> str:
    """What the stage would do. InvalidInput if a run would fail for what it names."""
    match stage:
        case Call():
            return f"calls {stage.function}({_arguments(shown(stage.arguments, lookup))})"
        case Effect():
            shown(stage.key, lookup)
            undo = f", undone by {stage.compensation}" if stage.compensation else ""
            return f"performs {stage.function}({_arguments(shown(stage.arguments, lookup))}){undo}"
        case Ask():
            shown([stage.show, stage.who, stage.expired], lookup)
            names = ", ".join(field.name for field in form_of_fields(stage.fields).fields)
            return f"asks {shown(stage.prompt, lookup)!r} ({names})"
        case Set():
            return f"sets {_arguments(shown(stage.values, lookup))}"
        case ForEach():
            items = items_of(stage, lookup)
            count = "an unknown number of" if items is UNKNOWN else len(items)
            return f"does {kind_of(stage.body)} for each of {count} items of {stage.items_from}"
        case LoopUntil():
            most = f", at most {stage.max_iterations} times" if stage.max_iterations else ""
            return f"does {kind_of(stage.body)} until its conditions hold{most}"
        case SubWorkflow():
            name = stage.workflow or (stage.graph.id if stage.graph else "")
            return f"runs workflow {name}({_arguments(shown(stage.arguments, lookup))})"
        case Wait():
            return f"waits for event {shown(stage.event, lookup)!r}"
        case Sleep():
            if stage.until is None:
                return f"sleeps {shown(stage.seconds, lookup)} s"
            return f"sleeps until {shown(stage.until, lookup)}"
        case End():
            if stage.failed is not None:
                return f"fails with {shown(stage.failed, lookup)!r}"
            return "ends with the state" if stage.result is None else f"ends with {_text(shown(stage.result, lookup))}"


def items_of(stage: ForEach, lookup: Lookup) -> Any:
    """The items of a for_each, or UNKNOWN; InvalidInput where a run would fail."""
    items = lookup(stage.items_from)
    if items is MISSING:
        raise Unresolved(stage.items_from, stage.items_from)
    if items is not UNKNOWN and not isinstance(items, (list, tuple)):
        raise InvalidInput(f"for_each needs a list; at {stage.items_from!r} is {type(items).__name__}")
    return items


def with_item(outer: Lookup, item: Any, index: int) -> Lookup:
    """A lookup that knows an item of a for_each, too."""
    own = {"item": item, "index": index}

    def lookup(path: str, /) -> Any:
        return look(own, path) if path.split(".")[0] in own else outer(path)

    return lookup


def look(state: dict[str, Any], path: str) -> Any:
    """What is at a path: MISSING if nothing is, UNKNOWN if it lies inside of what is not known."""
    found = find(state, path)
    while found is MISSING and path:
        path = path.rpartition(".")[0]
        if path and find(state, path) is UNKNOWN:
            return UNKNOWN
    return found


def shown(value: Any, lookup: Lookup) -> Any:
    """A value with what is known filled in; what is not is named."""

    def named(path: str, /) -> Any:
        found = lookup(path)
        return f"<{path}>" if has_unknown(found) else found

    return render(value, named)


def kind_of(stage: AnyStage) -> str:
    """The type of a stage, as a definition names it."""
    return str(type(stage).__struct_config__.tag)


def _arguments(values: dict[str, Any]) -> str:
    return ", ".join(
        f"{key}={repr(value) if isinstance(value, str) else _text(value)}" for key, value in values.items()
    )


def _text(value: Any) -> str:
    """A value for people, also one that has no text of its own."""
    try:
        return as_text(value)
    except InvalidInput:
        return f"<{type(value).__name__}>"

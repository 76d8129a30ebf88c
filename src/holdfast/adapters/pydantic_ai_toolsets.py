"""Toolsets of Pydantic AI: the policies of their tools, and which of them ask for approvals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic_ai import exceptions
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ApprovalRequiredToolset, ToolsetTool, WrapperToolset
from pydantic_core import to_jsonable_python

from holdfast.adapters.shared.calls import ToolPolicy
from holdfast.adapters.shared.code_names import mentions
from holdfast.errors import InvalidInput

POLICY_KEY: Final = "holdfast"


def policy_of(definition: ToolDefinition | None, tool_name: str) -> ToolPolicy:
    """The policy in the metadata of a tool. A name that only resembles the right one is refused."""
    metadata = (definition.metadata if definition is not None else None) or {}
    for name in metadata:
        if name != POLICY_KEY and re.sub(r"[\W_]", "", str(name)).casefold() in (POLICY_KEY, f"{POLICY_KEY}s"):
            raise InvalidInput(f"metadata {name!r} of tool {tool_name!r} is not used; write {POLICY_KEY!r}")
    given = metadata.get(POLICY_KEY)
    return ToolPolicy(record="none") if given is False else ToolPolicy.of(given, tool_name)


def may_ask(tool: object) -> bool:
    """Whether some call of this tool may need an approval, or be made outside."""
    if isinstance(tool, ToolsetTool) and tool.tool_def.kind in ("unapproved", "external"):
        return True
    schema = getattr(getattr(tool, "call_func", None), "__self__", None)
    function = getattr(schema, "function", None)
    return any(mentions(function, error.__name__) for error in (exceptions.ApprovalRequired, exceptions.CallDeferred))


def find_approving(toolset: Any) -> list[AbstractToolset[Any]]:
    """The toolsets inside this one that decide about approvals at run time."""
    if isinstance(toolset, ApprovalRequiredToolset):
        return [toolset]
    inner = [*getattr(toolset, "toolsets", ()), *([toolset.wrapped] if isinstance(toolset, WrapperToolset) else ())]
    return [found for each in inner for found in find_approving(each)]


def refuse_unknown(toolset: AbstractToolset[Any]) -> None:
    """Refuse a toolset that Pydantic AI's port does not record: its calls would be repeated on every resume."""
    known = [kind for kind in type(toolset).__mro__ if kind.__module__.startswith("pydantic_ai.")]
    if known == [AbstractToolset]:
        raise InvalidInput(
            f"toolset {type(toolset).__name__!r} cannot be recorded; wrap it: "
            "DynamicToolset(lambda ctx: toolset, per_run_step=False, id='…')"
        )


def to_plain(value: object) -> Any:
    """An argument as plain data, the same in every process."""
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    if isinstance(value, list | tuple):
        return [to_plain(part) for part in value]
    if isinstance(value, Mapping):
        return {str(name): to_plain(part) for name, part in value.items()}
    return to_jsonable_python(value, bytes_mode="base64", serialize_unknown=True)

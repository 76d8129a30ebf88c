"""What can go wrong with LangGraph's values, beside what can go wrong in a store."""

from __future__ import annotations

from holdfast.errors import InvalidInput

__all__ = ["TypeRefused", "ValueUnreadable"]


class TypeRefused(InvalidInput):
    """A strict saver met a type that it does not know, so the value is neither written nor read.

    Reading it would import its module. `module` and `name` say which type.

    Example:
        HoldfastSaver("sqlite:agent.db", strict=True, allow=[Order])
    """

    def __init__(self, module: str, name: str) -> None:
        super().__init__(
            f"{module}.{name} is no type of LangGraph or LangChain's messages, and reading it back would import its "
            f"module; if you trust the data, pass allow=[{name}] or allow=[({module!r}, {name!r})] to HoldfastSaver"
        )
        self.module = module
        self.name = name


class ValueUnreadable(InvalidInput):
    """A stored value cannot be made into what it was. It is still stored; nothing is lost."""

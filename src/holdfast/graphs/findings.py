"""What can be wrong with a definition, and what a process knows by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from holdfast.errors import InvalidGraph
from holdfast.model.views import View

Place = tuple[str | int, ...]


class Finding(View, frozen=True, kw_only=True):
    """Something wrong with a definition (`error`: it cannot be started so), or that looks wrong (`warning`)."""

    level: Literal["error", "warning"]
    code: str
    """What it is, as one word: `unreachable`, `no_end`, `unknown_function` …"""
    message: str
    stage: str | None = None
    path: Place = ()
    """Where it stands in the definition."""

    def __str__(self) -> str:
        where = f"stage {self.stage!r}: " if self.stage is not None else ""
        return f"{self.level}: {where}{self.message}"


class Known(Protocol):
    """What a process knows by name; an app is one."""

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """Functions that stages may call."""
        ...

    @property
    def undos(self) -> Mapping[str, Callable[..., Any]]:
        """Functions that undo effects."""
        ...

    @property
    def workflows(self) -> Mapping[str, Any]:
        """Workflows that may be run as part of another."""
        ...

    def declare(self, name: str, graph: Any) -> Any:
        """Know a declared workflow by this name. None for the graph: each run goes by its own."""
        ...


class HasRegistry(Protocol):
    """An app."""

    @property
    def registry(self) -> Known:
        """What it knows by name."""
        ...


def refuse_errors(name: str, findings: list[Finding]) -> None:
    """Raise InvalidGraph if there are errors among them."""
    errors = [finding for finding in findings if finding.level == "error"]
    if errors:
        raise InvalidGraph(name, [str(error).removeprefix("error: ") for error in errors])

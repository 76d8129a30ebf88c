"""Workflows that are announced."""

from __future__ import annotations

from typing import Any

import holdfast


def asks(run: holdfast.Run, prompt: str = "Pay?", options: dict[str, Any] | None = None) -> Any:
    """Ask once."""
    return run.ask(prompt, {"pay": bool}, **options or {})


def fails(run: holdfast.Run) -> None:
    """Fail."""
    raise ValueError("this text stays here")


def register(app: holdfast.App) -> holdfast.App:
    """The app, with these workflows."""
    app.workflow(asks)
    app.workflow(fails)
    return app

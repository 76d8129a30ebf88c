"""The fixtures of the matrix."""

from __future__ import annotations

from tests.matrix import alone, app, awaiting, folder, local, stage

__all__ = ["alone", "app", "awaiting", "folder", "local", "stage"]

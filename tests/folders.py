"""Folders for tests that are not about the disk."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def quick_folder(name: str) -> Iterator[Path]:
    """A folder that is gone afterwards; in memory where there is such a place."""
    shared = Path("/dev/shm")
    found = Path(tempfile.mkdtemp(prefix=f"hf-{name}-", dir=shared if shared.is_dir() else None))
    try:
        yield found
    finally:
        shutil.rmtree(found, ignore_errors=True)

"""The newest checkpoint of a run as a file for people, beside its journal. Nothing is ever read back from it.

It is written after the commit is durable, whole or not at all, and may be older than the journal if that was
interrupted or if the disk was full.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping

from holdfast.store.directory.changes import Renderer, date_of
from holdfast.store.directory.disk import Disk
from holdfast.store.directory.runfile import RunFile
from holdfast.store.port import Select

Fetch = Callable[[list[bytes]], Mapping[bytes, bytes]]


def show_newest(disk: Disk, file: RunFile, renderer: Renderer | None, fetch: Fetch) -> None:
    """Write the newest checkpoint of the default lane; if there is none any more, the file goes."""
    newest = file.checked().select(Select())
    if renderer is None:
        return
    if newest is None:
        with contextlib.suppress(OSError):  # it may never have been there
            disk.files.unlink(file.newest_path)
        return
    with contextlib.suppress(Exception):  # whatever cannot be shown: the checkpoint itself is safe
        state = renderer.state(newest.root, fetch)
        content = {
            "run_id": file.checked().row.run_id,
            "checkpoint_id": newest.checkpoint_id,
            "number": newest.number,
            "step": newest.step,
            "status": newest.status,
            "next_node": newest.next_node,
            "covers": newest.covers,
            "saved_at": date_of(newest.created_us),
            "metadata": renderer.metadata(newest.metadata) or {},
            "state": "too large to be shown here" if state is None else state,
        }
        disk.put(file.newest_path, json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")

"""Archives as files: written whole or not at all, and never over another file unless that is wanted."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Final
from urllib.parse import quote

from holdfast.cli.exits import CannotAsk
from holdfast.errors import Conflict, InvalidInput, StorageFailed

ENDING: Final = ".holdfast"
STANDARD: Final = "-"
_NAME_BYTES_MAX: Final = 200


def file_name(run_id: str) -> str:
    """A file name for a run's archive. Signs that file systems or shells do not like are escaped."""
    name = quote(run_id, safe=" @+=,~")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > _NAME_BYTES_MAX:
        raise InvalidInput(f"run {run_id!r} needs a file name of your own; give it with -o")
    return name + ENDING


def target(run_id: str, output: str | None, *, many: bool) -> Path:
    """The file a run's archive goes into: `output` itself, or a file in it if it is a directory."""
    if output is None:
        return Path(file_name(run_id))
    path = Path(output)
    if path.is_dir() or many or output.endswith(os.sep):
        return path / file_name(run_id)
    return path


def write(path: Path, data: bytes, *, replace: bool) -> None:
    """Write a file durably. Conflict if it is there and may not be replaced."""
    if path.exists() and not replace:
        raise Conflict(f"{path} is already there; choose another file, or give --replace")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(unfinished, path)
        else:
            os.link(unfinished, path)  # refuses a file that has come meanwhile
            unfinished.unlink()
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except FileExistsError as error:
        raise Conflict(f"{path} is already there; choose another file, or give --replace") from error
    except OSError as error:
        raise StorageFailed(f"{path} cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()


def write_standard(data: bytes) -> None:
    """Write to standard output, unless that is a terminal."""
    if sys.stdout.isatty():
        raise CannotAsk("an archive is no text; send it somewhere else than the terminal, or give -o FILE")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def read(name: str) -> bytes:
    """An archive's bytes; `-` is standard input."""
    try:
        return sys.stdin.buffer.read() if name == STANDARD else Path(name).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{name} cannot be read: {error.strerror}") from error

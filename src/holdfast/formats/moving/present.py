"""What lies already where a run is to be exported to. Whoever looks holds the folder's lock."""

from __future__ import annotations

from typing import Any, Final

from holdfast.errors import Conflict, DamagedFile
from holdfast.formats.folder import Folder
from holdfast.formats.lossless import read_json
from holdfast.formats.moving.parts import File

_LINES: Final = ".ndjson"


def is_of_lines(file: File) -> bool:
    """Whether it is a file of lines, which may have any size."""
    return file.name[-1].endswith(_LINES)


def is_same(folder: Folder, file: File) -> bool | None:
    """Whether the file is there and says the same; None if it is not there at all."""
    if folder.identity(*file.name) is None:
        return None
    place = folder.at(*file.name)
    try:
        if is_of_lines(file):
            return _lines_there(folder, file) == [read_json(line, place) for line in file.data.split(b"\n") if line]
        found = folder.read(*file.name)
        return None if found is None else bool(read_json(found, place) == read_json(file.data, place))
    except DamagedFile:
        return False


def is_there(folder: Folder, file: File, *, replace: bool) -> bool:
    """Whether the file is there and says the same. Conflict if it says something else and may not be replaced."""
    same = is_same(folder, file)
    if same is False and not replace:
        raise Conflict(
            f"{folder.at(*file.name)} is there and says something else; export to another directory, or give "
            "replace=True"
        )
    return bool(same)


def _lines_there(folder: Folder, file: File) -> list[Any]:
    """Lines are compared one by one, since they are no single value."""
    place, found = folder.at(*file.name), []
    for line in folder.lines(*file.name):
        if line.data is None:
            raise DamagedFile(place, "it has a line that is too long to be read")
        if line.data.strip():
            found.append(read_json(line.data, place))
    return found

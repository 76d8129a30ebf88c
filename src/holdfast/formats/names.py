"""Names: which ids may become part of a file name.

The originals put ids into paths. An id is taken only if the name it makes is one plain name inside the directory.
"""

from __future__ import annotations

import os
from typing import Final

from holdfast.errors import InvalidId
from holdfast.ids import check_id

NAME_BYTES_MAX: Final = 255


def check_name(what: str, value: object, ending: str) -> str:
    """The file name of an id that is used as it is, or InvalidId."""
    text = check_id(what, value)
    if "/" in text or "\\" in text or text in (".", ".."):
        raise InvalidId(
            f"{what} {text!r} could lead out of the directory: this system uses ids as file names, "
            "so they must have no slashes and not be dots alone"
        )
    return fitting(what, text, text + ending)


def fitting(what: str, value: str, name: str) -> str:
    """The name, if a file can have it."""
    size = len(os.fsencode(name))
    if size > NAME_BYTES_MAX:
        raise InvalidId(f"{what} {value[:40]!r}… makes a file name of {size} bytes, at most {NAME_BYTES_MAX} can be")
    return name


def is_text(name: str) -> bool:
    """Whether a name found in a directory is text at all."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True

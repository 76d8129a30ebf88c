"""ADK's models, and the results of its tools, as plain data."""

from __future__ import annotations

import json
from typing import Any, Final, TypeVar

from google.genai import types
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

M = TypeVar("M", bound=BaseModel)
_PART: Final = "holdfast:part"


def dump(model: BaseModel) -> Any:
    """Bytes survive only with the JSON codec of the models; as parsed JSON they are readable in the store."""
    return json.loads(model.model_dump_json(exclude_none=True, exclude_defaults=True))


def load(cls: type[M], data: object) -> M:
    """The model of a dump."""
    return cls.model_validate_json(json.dumps(data))


def to_plain(value: object) -> object:
    """A tool's result as JSON. ADK finds media in results by the class Part, so parts are marked."""
    if isinstance(value, types.Part):
        return {_PART: dump(value)}
    if isinstance(value, dict):
        return {str(name): to_plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(each) for each in value]
    return to_jsonable_python(value, bytes_mode="base64", fallback=repr)


def from_plain(value: object) -> object:
    """The result of a `to_plain`."""
    if isinstance(value, dict):
        if list(value) == [_PART]:
            return load(types.Part, value[_PART])
        return {name: from_plain(each) for name, each in value.items()}
    return [from_plain(each) for each in value] if isinstance(value, list) else value

"""Forms for gates: fields of an answer, its check, its conversion."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Final

    from holdfast.forms.build import field, form_of
    from holdfast.forms.fields import KINDS, Field
    from holdfast.forms.form import Checked, Form, parse_text
    from holdfast.forms.json_schema import Choice, Problem
    from holdfast.forms.typed import typed

_HOMES: Final = {
    "KINDS": "fields",
    "Checked": "form",
    "Choice": "json_schema",
    "Field": "fields",
    "Form": "form",
    "Problem": "json_schema",
    "field": "build",
    "form_of": "build",
    "parse_text": "form",
    "typed": "typed",
}
"""The module of each name, imported on first use: a command that shows a gate does not load what builds a form."""


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'holdfast.forms' has no attribute {name!r}")
        # Without the lock of `holdfast.__getattr__`: modules use this while they are imported, and that lock is held by
        # threads that wait for such an import.
        __import__(f"holdfast.forms.{_HOMES[name]}")
        value = globals()[name] = getattr(sys.modules[f"holdfast.forms.{_HOMES[name]}"], name)
        return value


__all__ = [
    "KINDS",
    "Checked",
    "Choice",
    "Field",
    "Form",
    "Problem",
    "field",
    "form_of",
    "parse_text",
    "typed",
]

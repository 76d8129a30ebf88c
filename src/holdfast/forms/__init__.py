"""Forms for gates: fields of an answer, its check, its conversion."""

from holdfast.forms.build import field, form_of
from holdfast.forms.fields import KINDS, Field
from holdfast.forms.form import Checked, Form, parse_text
from holdfast.forms.json_schema import Choice, Problem
from holdfast.forms.typed import typed

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

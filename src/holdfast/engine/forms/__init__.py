"""Forms for gates: which fields an answer has, checked anywhere, and turned into the user's type at home."""

from holdfast.engine.forms.declare import field
from holdfast.engine.forms.fields import KINDS, Field
from holdfast.engine.forms.form import Checked, Form
from holdfast.engine.forms.making import form_of
from holdfast.engine.forms.parsing import parse_text
from holdfast.engine.forms.problems import Problem
from holdfast.engine.forms.schemas import Choice
from holdfast.engine.forms.typed import typed

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

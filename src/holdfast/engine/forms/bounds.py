"""The limits of forms. Exceeding one is InvalidInput for a form, and a problem for an answer."""

from __future__ import annotations

from typing import Final

FIELDS_MAX: Final = 100
"""Fields of a form, and of each object inside it."""

NESTING_MAX: Final = 20
"""How deep the parts of a form may lie in one another."""

ANSWER_NESTING_MAX: Final = 32
"""How deep the containers of an answer may lie in one another; more than a form's, for answers it leaves open."""

SCHEMA_NESTING_MAX: Final = 4 * NESTING_MAX
"""How deep the containers of a JSON Schema may lie in one another: a part of a form takes several of them."""

CHECK_DEPTH_MAX: Final = 3 * ANSWER_NESTING_MAX
"""How many parts of a schema may be open at once while checking: a guard against references in a circle."""

CHECK_PARTS_MAX: Final = 200_000
"""How often one check may apply a part of a schema to a part of an answer: a guard against branching circles."""

PROBLEMS_MAX: Final = 1_000
"""Problems listed for one answer."""

PATTERN_CHARS_MAX: Final = 200
"""A regular expression in a form. Short ones can be slow too, but they come from the workflow's author."""

PATTERN_TEXT_CHARS_MAX: Final = 10_000
"""Text that a regular expression is applied to."""

INTEGER_BITS_MAX: Final = 4_096
"""A whole number in an answer, so that it can always be written as decimal digits."""

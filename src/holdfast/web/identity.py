"""Users of the page: their names, roles, groups and the workflows they see."""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from typing import Final

import msgspec

from holdfast.errors import InvalidInput
from holdfast.ids import check_id

ROLES: Final = ("viewer", "approver", "operator")
"""Each may do what those before it may: read; answer gates; start, control, roll back and fork runs."""
_UNSEEN: Final = re.compile(
    "[\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u3164\\ufe00-\\ufe0f\\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that are not shown although Unicode does not count them as controls or formats."""
_UNSEEN_KINDS: Final = ("Cc", "Cf", "Cs", "Zl", "Zp")


def clean_name(text: str) -> str:
    """A name without spaces around it, in the composed form of Unicode (NFC)."""
    return unicodedata.normalize("NFC", text.strip())


class User(msgspec.Struct, frozen=True, kw_only=True):
    """The identity behind a request. It is what `by` records; no form field can change it.

    Example:
        User(name="ben", role="approver", groups=("finance",), workflows=("refund*",))

    Names differ by upper and lower case, but not by the form of Unicode in which they are written.
    """

    name: str
    role: str = "viewer"
    groups: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ("*",)
    """Patterns of the workflows it sees; `*` and `?` are wildcards."""

    def __post_init__(self) -> None:
        name = _check_name("name", self.name)
        groups = [_check_name(f"a group of user {name!r}", group) for group in _texts("groups", name, self.groups)]
        if self.role not in ROLES:
            raise InvalidInput(f"role {self.role!r} of user {name!r} is not one of {', '.join(ROLES)}")
        workflows = _texts("workflows", name, self.workflows)
        for field, value in (("name", name), ("groups", tuple(groups)), ("workflows", workflows)):
            msgspec.structs.force_setattr(self, field, value)

    def has_role(self, role: str) -> bool:
        """Whether the user may do what `role` may."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def can_see(self, workflow: str) -> bool:
        """Whether runs of this workflow are visible to the user."""
        return any(fnmatch.fnmatchcase(workflow, pattern) for pattern in self.workflows)

    @property
    def sees_all(self) -> bool:
        """Whether all workflows are visible."""
        return "*" in self.workflows


def _check_name(what: str, value: object) -> str:
    """The name in its composed form; InvalidInput if it contains what readers do not see."""
    name = unicodedata.normalize("NFC", check_id(what, value))
    if name != name.strip():
        raise InvalidInput(f"{what} {name!r} begins or ends with a space; remove it")
    unseen = next((char for char in name if unicodedata.category(char) in _UNSEEN_KINDS or _UNSEEN.match(char)), None)
    if unseen is not None:
        raise InvalidInput(f"{what} {name!r} has the invisible character {unseen!r}; remove it")
    return check_id(what, name)


def _texts(what: str, name: str, value: object) -> tuple[str, ...]:
    """The texts of a field. One text is refused: each of its letters would be taken for a group or a pattern."""
    if not isinstance(value, (tuple, list, set, frozenset)) or not all(type(text) is str and text for text in value):
        raise InvalidInput(f"{what} of user {name!r} must be a tuple of texts, as ('a',), not {value!r}")
    return tuple(value) if isinstance(value, (tuple, list)) else tuple(sorted(value))


ANONYMOUS: Final = User(name="anonymous", workflows=())
"""Stands for a request without a login. It sees nothing."""

"""Users of the page: their names, roles, groups and the workflows they see."""

from __future__ import annotations

import fnmatch
from typing import Final

import msgspec

from holdfast.errors import InvalidInput
from holdfast.ids import check_id

ROLES: Final = ("viewer", "approver", "operator")
"""Each may do what those before it may: read; answer gates; start, control, roll back and fork runs."""


class User(msgspec.Struct, frozen=True, kw_only=True):
    """The identity behind a request. It is what `by` records; no form field can change it.

    Example:
        User(name="ben", role="approver", groups=("finance",), workflows=("refund*",))
    """

    name: str
    role: str = "viewer"
    groups: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ("*",)
    """Patterns of the workflows it sees; `*` and `?` are wildcards."""

    def __post_init__(self) -> None:
        check_id("name", self.name)
        for group in self.groups:
            check_id(f"a group of user {self.name!r}", group)
        if self.role not in ROLES:
            raise InvalidInput(f"role {self.role!r} of user {self.name!r} is not one of {', '.join(ROLES)}")

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


ANONYMOUS: Final = User(name="anonymous", workflows=())
"""Stands for a request without a login. It sees nothing."""

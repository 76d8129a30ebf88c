"""Declarations of verbs that start without click.

`Verb.parse` reads common command lines. For all others (help, mistakes, completion) `click_verbs` makes a click command
of the same declaration, so click defines what is accepted and every message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from holdfast.cli.session import Session

Given = dict[str, Any]
"""The arguments of a verb, by name."""


class Argument(NamedTuple):
    """The id of a run, as an argument."""

    name: str
    metavar: str
    required: bool = True


class Option(NamedTuple):
    """An option: a flag, a text, one of some choices, or an integer of at least `at_least`."""

    flag: str
    name: str
    help: str
    default: Any = None
    is_flag: bool = False
    multiple: bool = False
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    at_least: int | None = None
    at_most: int | None = None

    def value(self, text: str) -> str | int | None:
        """The value that a text means; None if only click can say."""
        if self.at_least is not None:
            number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
            return number if self.at_least <= number <= (self.at_most or number) else None
        return text if not text.startswith("-") and (not self.choices or text in self.choices) else None


class Shared(NamedTuple):
    """An option of every verb: an attribute of the session, and its value if the option takes none."""

    attribute: str
    value: bool | None


SHARED: Final = {
    "--store": Shared("store_given", None),
    "--app": Shared("app_given", None),
    "--json": Shared("json", True),
    "--color": Shared("color", True),
    "--no-color": Shared("color", False),
}


class Verb(NamedTuple):
    """A verb: its function, whose docstring is the help, and what it takes."""

    function: Callable[..., object]
    argument: Argument | None
    options: tuple[Option, ...]

    def parse(self, texts: Sequence[str], session: Session) -> Given | None:
        """Parse the arguments and set those of the session; None, and nothing is set, if click must parse them."""
        options = {option.flag: option for option in self.options}
        given: Given = {
            each.name: () if each.multiple else False if each.is_flag else each.default for each in self.options
        }
        found: list[str] = []
        shared: Given = {}
        rest = iter(texts)
        for text in rest:
            flag, equals, inline = text.partition("=")
            if not text.startswith("-"):
                found.append(text)
                continue
            option, common = options.get(flag), SHARED.get(flag)
            if (option is not None and option.is_flag) or (common is not None and common.value is not None):
                if equals:
                    return None
                if option is not None:
                    given[option.name] = True
                elif common is not None:
                    shared[common.attribute] = common.value
                continue
            word = inline if equals else next(rest, "-")
            value = option.value(word) if option is not None else None if common is None or word[:1] == "-" else word
            if value is None:
                return None
            if option is None and common is not None:
                shared[common.attribute] = value
            elif option is not None:
                given[option.name] = (*given[option.name], value) if option.multiple else value
        if len(found) > (self.argument is not None) or (self.argument and self.argument.required and not found):
            return None
        if self.argument is not None:
            given[self.argument.name] = found[0] if found else None
        for attribute, value in shared.items():
            setattr(session, attribute, value)
        return given


def verb(*params: Argument | Option) -> Callable[[Callable[..., object]], Verb]:
    """Declare a verb: a function of the session and of what `params` name."""
    arguments = [param for param in params if isinstance(param, Argument)]
    options = tuple(param for param in params if isinstance(param, Option))
    return lambda function: Verb(function, arguments[0] if arguments else None, options)

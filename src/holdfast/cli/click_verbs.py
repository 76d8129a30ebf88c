"""The verbs as click commands: their help, their mistakes and their completion."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn

import click

from holdfast.cli.commands import HELPS, MODULES
from holdfast.cli.run_args import complete_runs
from holdfast.cli.session import Session
from holdfast.cli.verb import Verb


def load(verb: str) -> click.Command:
    """Load the command of a verb and add the options that every verb has."""
    module = import_module(f"holdfast.cli.commands.{MODULES[verb]}")
    found = vars(module)[f"{verb}_command"]
    command: click.Command = _to_command(verb, found) if isinstance(found, Verb) else found
    _add_options(command)
    return command


def _to_command(name: str, verb: Verb) -> click.Command:
    """Make a command of a verb that usually starts without click."""
    params: list[click.Parameter] = []
    if verb.argument is not None:
        argument = verb.argument
        params.append(
            click.Argument(
                [argument.name], metavar=argument.metavar, required=argument.required, shell_complete=complete_runs
            )
        )
    for option in verb.options:
        kind: click.ParamType[Any] | None = click.Choice(option.choices) if option.choices else None
        if option.at_least is not None:
            kind = click.IntRange(option.at_least, option.at_most)
        settings = {} if option.multiple or option.is_flag else {"default": option.default}
        params.append(
            click.Option(
                [option.flag, option.name],
                type=kind,
                is_flag=option.is_flag,
                multiple=option.multiple,
                metavar=option.metavar,
                show_default=isinstance(option.default, int),
                help=option.help,
                **settings,
            )
        )
    return click.Command(
        name, params=params, callback=click.pass_obj(verb.function), help=inspect.cleandoc(verb.function.__doc__ or "")
    )


def _add_options(command: click.Command) -> None:
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _add_options(each)
    taken = {option for param in command.params for option in param.opts}
    command.params += [option for option in shared_options() if not taken & set(option.opts)]
    command.context_settings.setdefault("help_option_names", ["-h", "--help"])


def shared_options() -> list[click.Option]:
    """Return the options that every verb has. They set attributes of the session and are not passed to the command."""

    def assign(name: str) -> Callable[[click.Context, click.Parameter, object], None]:
        def callback(context: click.Context, _: click.Parameter, value: object) -> None:
            session = context.find_object(Session)
            if session is not None and value is not None:
                setattr(session, name, value)

        return callback

    options = [
        click.Option(
            ["--store", "store_given"], metavar="URL", help="The store: sqlite:PATH, dir:PATH, postgresql://…"
        ),
        click.Option(["--app", "app_given"], metavar="APP", help="Your app: module:name or file.py:name."),
        click.Option(["--json"], is_flag=True, default=None, help="Write JSON, and nothing else, to standard output."),
        click.Option(["--color/--no-color"], default=None, help="Use colours; the default is only in a terminal."),
    ]
    for option in options:
        assert option.name is not None, "click names every option"
        option.callback, option.expose_value = assign(option.name), False
    return options


class Verbs(click.Group):
    """All verbs, for completion. Each is loaded on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        return list(HELPS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the signature is click's
        if cmd_name not in HELPS:
            return None
        try:
            return load(cmd_name)
        except ImportError:
            return click.Command(cmd_name, help=HELPS[cmd_name])


def complete() -> NoReturn:
    """Print the completions that a shell asks for, and end the process."""
    group = Verbs("holdfast", params=list(shared_options()))
    group.main([], "holdfast", complete_var="_HOLDFAST_COMPLETE", obj=Session())

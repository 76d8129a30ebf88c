"""Run one verb: load its module, add the shared options, turn errors into exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import NoReturn

import click

from holdfast.cli import exit_codes
from holdfast.cli.commands import HELPS, MODULES
from holdfast.cli.session import Session


def run_verb(verb: str, arguments: list[str], before_verb: Callable[[], None]) -> int:
    """Run a verb and return the exit code. `before_verb` is called once the verb is loaded."""
    session = Session()
    session.json = "--json" in arguments  # set before parsing, so that usage errors are reported as JSON
    if session.json:
        session.out.redirect_stdout()
    try:
        command = load(verb)
        before_verb()
        with command.make_context(f"holdfast {verb}", arguments, obj=session) as context:
            code = command.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else exit_codes.OK
    except BaseException as error:
        if isinstance(error, BrokenPipeError):  # the reader of the output has closed the pipe
            session.out.discard()
            return exit_codes.OK
        try:
            return exit_codes.report(session, error, verb)
        except OSError:  # standard error is closed or cannot be written
            session.out.discard()
            return exit_codes.code_of(error)
    finally:
        try:
            session.close()
        except KeyboardInterrupt:  # the verb has ended: close the rest and keep its exit code
            session.close()


def load(verb: str) -> click.Command:
    """Load the command of a verb and add the options that every verb has."""
    module = import_module(f"holdfast.cli.commands.{MODULES[verb]}")
    command: click.Command = vars(module)[f"{verb}_command"]
    _add_options(command)
    return command


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

"""Run one verb: load its module, give it the options every verb has, and turn what it raises into an exit code."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn

import click

from holdfast.cli import exits
from holdfast.cli.session import Session
from holdfast.cli.table import HELPS, MODULES


def run_verb(verb: str, arguments: list[str]) -> int:
    """Run a verb; gives the exit code."""
    session = Session()
    session.json = "--json" in arguments  # known before the arguments are read, for what is wrong with them
    if session.json:
        session.out.keep_for_json()
    try:
        command = load(verb)
        with command.make_context(f"holdfast {verb}", arguments, obj=session) as context:
            code = command.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else exits.OK
    except BaseException as error:
        if _has_no_reader(error):
            session.out.hush()
            return exits.OK
        try:
            return exits.report(session, error, verb)
        except OSError:  # nobody reads what went wrong either, or it cannot be written
            session.out.hush()
            return exits.code_of(error)
    finally:
        try:
            session.close()
        except KeyboardInterrupt:  # it was all done; what is open is closed, and the exit code stays
            session.close()


def _has_no_reader(error: BaseException) -> bool:
    """Whether it only says that whoever read our output has seen enough."""
    return isinstance(error, BrokenPipeError)


def load(verb: str) -> click.Command:
    """The command of a verb, with the options every verb has."""
    name = f"holdfast.cli.commands.{MODULES[verb]}"
    if find_spec(name) is None:
        raise click.UsageError(f"this version has no {verb!r} yet")
    command: click.Command = import_module(name).command
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
    """The options every verb has. They set the session and are not handed to the command."""

    def keep(name: str) -> Any:
        def callback(context: click.Context, _: click.Parameter, value: Any) -> None:
            session = context.find_object(Session)
            if session is not None and value is not None:
                setattr(session, name, value)

        return callback

    def option(*names: str, keeps: str, **more: Any) -> click.Option:
        return click.Option(names, expose_value=False, callback=keep(keeps), **more)

    return [
        option("--store", keeps="store_given", metavar="URL", help="The store: sqlite:PATH, dir:PATH, postgresql://…"),
        option("--app", keeps="app_given", metavar="APP", help="Your app: module:name or file.py:name."),
        option("--json", keeps="json", is_flag=True, default=None, help="JSON on standard output and nothing else."),
        option("--color/--no-color", keeps="color", default=None, help="Colours; as a rule only in a terminal."),
    ]


class Verbs(click.Group):
    """All verbs, for completion. A verb is loaded when it is looked at."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click calls it so
        return list(HELPS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click calls it so
        if cmd_name not in HELPS:
            return None
        try:
            return load(cmd_name)
        except (click.UsageError, ImportError):
            return click.Command(cmd_name, help=HELPS[cmd_name])


def complete() -> NoReturn:
    """Say what could come next, for a shell."""
    group = Verbs("holdfast", params=list(shared_options()))
    group.main([], "holdfast", complete_var="_HOLDFAST_COMPLETE", obj=Session())  # ends the process

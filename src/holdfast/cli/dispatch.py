"""Run one verb: load its module, parse its arguments, turn errors into exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

from holdfast.cli import exit_codes
from holdfast.cli.commands import MODULES
from holdfast.cli.session import Session
from holdfast.cli.verb import Verb


def run_verb(verb: str, arguments: list[str], before_verb: Callable[[], None]) -> int:
    """Run a verb and return the exit code. `before_verb` is called once the verb is loaded."""
    session = Session()
    session.json = "--json" in arguments  # set before parsing, so that usage errors are reported as JSON
    if session.json:
        session.out.redirect_stdout()
    try:
        command = vars(import_module(f"holdfast.cli.commands.{MODULES[verb]}"))[f"{verb}_command"]
        given = command.parse(arguments, session) if isinstance(command, Verb) else None
        if given is not None:
            before_verb()
            code = command.function(session, **given)
        else:
            from holdfast.cli.click_verbs import load

            loaded = load(verb)
            before_verb()
            with loaded.make_context(f"holdfast {verb}", arguments, obj=session) as context:
                code = loaded.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else exit_codes.OK
    except BaseException as error:
        if isinstance(error, ImportError) and error.name == "click":
            raise  # main says what to install
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

"""`holdfast demo`: watch a run survive the death of its process."""

from __future__ import annotations

import click

from holdfast.cli import exits
from holdfast.cli.session import Session


@click.command()
@click.pass_obj
def command(session: Session) -> int:
    """Watch a run survive the death of its process.

    An agent waits for your approval, is killed in the middle of a payment, and pays once. It uses a store of its own in
    a temporary directory and leaves nothing behind.

    \b
    Examples:
      holdfast demo
    """
    from holdfast.demo.__main__ import main

    main([])
    if session.json:
        session.out.give({"shown": True})
    return exits.OK

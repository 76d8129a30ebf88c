"""`holdfast completions`: print the completion script of a shell."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

from holdfast.cli import exits
from holdfast.cli.entry import COMPLETE
from holdfast.cli.session import Session

_WORDS: Final = """    response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD """
_JOINED: Final = """    # For bash `--status=wa` is three words; the sign between them is left out.
    local words=() count=$COMP_CWORD at
    for at in "${!COMP_WORDS[@]}"; do
        if [[ ${COMP_WORDS[at]} == '=' && at -lt COMP_CWORD ]]; then
            ((count--))
        else
            words+=("${COMP_WORDS[at]}")
        fi
    done
    response=$(env COMP_WORDS="${words[*]}" COMP_CWORD=$count """


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_obj
def command(session: Session, shell: str) -> int:
    """Print the completion script of a shell.

    It completes verbs, options, runs of the store, and what options take.

    \b
    Examples:
      holdfast completions bash > ~/.local/share/bash-completion/completions/holdfast
      holdfast completions zsh > ~/.zfunc/_holdfast
      holdfast completions fish > ~/.config/fish/completions/holdfast.fish
    """
    made = get_completion_class(shell)
    assert made is not None, "click knows all three"
    complete = made(click.Group("holdfast"), {}, "holdfast", COMPLETE)
    script = complete.source_template % complete.source_vars()  # not source(): that would start a bash to ask it
    assert shell != "bash" or _WORDS in script, "click's script is another one"
    script = script.replace(_WORDS, _JOINED)
    if session.json:
        session.out.give({"shell": shell, "script": script})
    else:
        session.say(script)
    return exits.OK

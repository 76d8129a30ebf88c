"""The command `holdfast`, also run as `python -m holdfast`.

Ctrl-C is handled before anything else is imported.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # built in; importing signal takes milliseconds
import gc
import os
import sys


def _end_process(_number: int, _frame: object) -> None:
    os.write(2, b"\nholdfast: stopped.\n")
    os._exit(130)


_WAS_DEFAULT = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler  # else ignored, as under nohup
if _WAS_DEFAULT:
    # Nothing was done yet, so the process can end at once. An exception inside an import would print a traceback.
    _signal.signal(_signal.SIGINT, _end_process)

gc.disable()  # until the verb is loaded: modules create many objects, and none of them is garbage
from holdfast.cli.main import main as run_command  # noqa: E402 - after the handler


def main() -> int:
    """Run the command with the arguments of this process; return its exit code."""
    try:
        return run_command(before_verb=_raise_interrupts)
    finally:
        if _WAS_DEFAULT:
            _signal.signal(_signal.SIGINT, _signal.SIG_IGN)  # the command has ended; keep its exit code


def _raise_interrupts() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from now on: the verb may have to clean up."""
    gc.freeze()  # later collections skip what the modules created
    gc.enable()
    if _WAS_DEFAULT:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


if __name__ == "__main__":
    sys.exit(main())

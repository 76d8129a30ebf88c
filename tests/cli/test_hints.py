"""Every hint code of the library has words of the command, and messages name calls as people type them."""

from __future__ import annotations

import re
from pathlib import Path

import holdfast
from holdfast.cli.exit_codes import HINTS, message_of
from holdfast.errors import RollbackFailed, RunEnded, RunNotFound

SOURCES = Path(holdfast.__file__).parent


def test_the_command_has_words_for_every_hint_code_and_for_no_other() -> None:
    text = "\n".join(
        path.read_text("utf-8") for path in SOURCES.rglob("*.py") if "cli" not in path.relative_to(SOURCES).parts
    )
    used = set(re.findall(r'hint_code=(?:"" if \w+ else )?"(\w+)"', text))
    used |= set(re.findall(r'hint_code = "(\w+)"', text)) | set(re.findall(r'advice, hint_code = .*, "(\w+)"', text))
    used |= set(re.findall(r'hint_code="\w+" if \w+ else "(\w+)"', text))
    assert used == set(HINTS)


def test_the_library_says_what_to_call_and_the_command_what_to_type() -> None:
    error = RunEnded("order 17", "failed")
    assert str(error).startswith("run 'order 17' has ended (failed); app.retry(run_id) repeats what failed")
    assert message_of(error).startswith("run 'order 17' has ended (failed); `holdfast retry 'order 17'` repeats")
    assert message_of(RunNotFound("a")) == "there is no run 'a' in this store; `holdfast list` lists all runs"
    assert message_of(RunNotFound("a", ("ab",))) == str(RunNotFound("a", ("ab",)))


def test_calls_are_named_as_people_type_them() -> None:
    error = RollbackFailed("r", "loop#1[2]/pay#1", {"type": "OSError", "message": "no answer"})
    assert "undoing effect 'loop#1[2]/pay#1' raised" in str(error)
    assert "undoing effect 'pay' raised" in message_of(error)

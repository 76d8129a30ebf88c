"""Makes the terminal output in the documents: runs what stands behind `$` in their console blocks, writes what comes.

    python scripts/tour.py            write the output into README.md and docs/tour.md
    python scripts/tour.py --check    say whether what stands there is what comes today, times and random ids aside

A document's blocks are run one after the other, in one directory of its own that holds the examples. A block may be
preceded by a comment that says how:

    <!-- varies -->             what it prints depends on the machine: it is run, and not compared
    <!-- terminal: y⏎ ⏎ -->     in a terminal, with these keys pressed whenever it waits; ⏎ is Enter, ^C Ctrl-C

Lines that begin with `$ ` are commands, run by a shell; `$ cd refund` changes the directory for what follows.
"""

from __future__ import annotations

import difflib
import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "tour.md")
_BLOCK = re.compile(r"(?:<!-- terminal: (?P<keys>.*?) -->\n)?```console\n(?P<body>.*?)```", re.DOTALL)
_VARYING = re.compile(r"<!-- varies -->\n```console\n.*?```", re.DOTALL)
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
_QUIET_S = 0.7
"""When a program in a terminal has said nothing for so long, it waits for a key."""


class Place:
    """Where a document's commands are run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code = 0
        """The exit code of the last command."""
        shutil.copytree(
            ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("*.py[co]", "__pycache__", "*.db*")
        )
        binaries = folder / ".bin"
        binaries.mkdir()
        command = binaries / "holdfast"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m holdfast "$@"\n')
        command.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        self.environment = {
            **kept, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", "TERM": "xterm", "NO_COLOR": "1",
            "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100", "USER": "ana", "LOGNAME": "ana",
        }  # fmt: skip

    def run(self, line: str, keys: str | None) -> str:
        """What a command prints."""
        if line.startswith("cd "):
            self.folder = (self.folder / line[3:].strip()).resolve()
            return ""
        if keys is not None:
            return self._in_terminal(line, keys.split())
        line = line.replace("$?", str(self.code))  # each line has a shell of its own
        done = subprocess.run(
            ["sh", "-c", line], cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=120, check=False,
        )  # fmt: skip
        self.code = done.returncode
        return done.stdout

    def _in_terminal(self, line: str, keys: list[str]) -> str:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        process = subprocess.Popen(
            ["sh", "-c", f"exec {line}"], cwd=self.folder, env=self.environment, stdin=theirs, stdout=theirs,
            stderr=theirs, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - so that Ctrl-C reaches it
        )  # fmt: skip
        os.close(theirs)
        said, waiting, heard_at = b"", list(keys), time.monotonic()
        while True:
            ready, _, _ = select.select([ours], [], [], 0.1)
            try:
                data = os.read(ours, 65_536) if ready else b""
            except OSError:
                break
            if data:
                said, heard_at = said + data, time.monotonic()
            elif ready:
                break
            elif waiting and said and time.monotonic() - heard_at > _QUIET_S:
                os.write(ours, waiting.pop(0).replace("⏎", "\n").replace("^C", "\x03").replace("␣", " ").encode())
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at > 30:
                process.kill()
                raise SystemExit(f"{line}: it says nothing more:\n{said.decode()}")
        process.wait()
        os.close(ours)
        return _CONTROL.sub("", said.decode()).replace("\r\n", "\n").replace("\r", "")


def made(document: Path) -> str:
    """The document with the output of today."""
    with tempfile.TemporaryDirectory(prefix="holdfast-tour-") as folder:
        place = Place(Path(folder))

        def block(match: re.Match[str]) -> str:
            lines = []
            for line in match["body"].splitlines():
                if line.startswith("$ "):
                    lines.append(line)
                    lines += [text.rstrip() for text in place.run(line[2:], match["keys"]).rstrip("\n").splitlines()]
            before = f"<!-- terminal: {match['keys']} -->\n" if match["keys"] is not None else ""
            return f"{before}```console\n" + "\n".join(lines).rstrip() + "\n```"

        return _BLOCK.sub(block, document.read_text("utf-8"))


_VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+(\+00:00|Z)?"), "TIME"),
    (re.compile(r"(in )?\b\d+(\.\d+)? (ms|s|min|h|d|B|KB|MB)( ago)?\b"), "SPAN"),
    (re.compile(r"\b([0-9a-f]{8,16}|[0-9a-f]{32})\b"), "HEX"),
    (re.compile(r"\b(\d+\.)[0-9a-f]{10}\b"), r"\1HEX"),
    (re.compile(r"\b\d+\.\d+(\.\d+)*\b"), "NUMBER"),
    (re.compile(r", idle SPAN"), ""),  # there is none if the machine is fast
    (re.compile(r"(✓ [\w-]+) +SPAN"), r"\1"),  # as above
    (re.compile(r"\n +~ SPAN: [^\n]*"), ""),
    (re.compile(r" +"), " "),
)


def alike(text: str) -> str:
    """A text without what is different each time."""
    text = _VARYING.sub("", text)
    for pattern, name in _VARIES:
        text = pattern.sub(name, text)
    return text


def main() -> int:
    changed = 0
    for document in DOCUMENTS:
        old, new = document.read_text("utf-8"), made(document)
        if "--check" not in sys.argv:
            document.write_text(new, "utf-8")
        elif alike(old) != alike(new):
            changed += 1
            sys.stdout.writelines(difflib.unified_diff(
                alike(old).splitlines(True), alike(new).splitlines(True), f"{document.name}, as it stands", "as it is"
            ))  # fmt: skip
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())

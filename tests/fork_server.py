"""Start Python programs as forks of one process that has loaded what they need.

Loading Python and Holdfast takes longer than most programs of tests. Each program is still a process of its own, with
its own directory, environment, streams and exit code. A program that must start from nothing is run by `subprocess`.

    process = start("-c", CODE, "argument", stdout=subprocess.PIPE)
    done = run("-m", "tests.runtime.actors", "start", "{}")
"""

from __future__ import annotations

import array
import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
import traceback
import types
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final, NoReturn

PROJECT: Final = Path(__file__).parents[1]
COMMAND: Final = "holdfast"
"""As the first argument: the installed command, instead of an option of Python's."""
PLAIN: Final = "holdfast.cli,holdfast.store,holdfast.graphs,holdfast.runtime,holdfast.inspect"
LANGGRAPH: Final = f"{PLAIN},holdfast.adapters.langgraph,tests.adapters.langgraph.sources"
"""What the forking process loads first: these packages with all their modules, and these modules."""

_REQUEST_BYTES: Final = 1 << 20
_Stream = int | IO[Any] | None


class Forked:
    """A process, with the methods of `subprocess.Popen` that tests use. Its streams are binary."""

    def __init__(self, arguments: tuple[str, ...], connection: socket.socket) -> None:
        self.args = arguments
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self._connection = connection
        self.pid = int(connection.recv(64))

    def poll(self) -> int | None:
        """Its exit code, if it has ended; negative is the signal that killed it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; its exit code."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = int(self._connection.recv(64))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Kill it, if it has not ended, and close its streams."""
        self.kill()
        self.wait()
        for stream in (self.stdin, self.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def start(
    *arguments: str,
    loaded: str = PLAIN,
    cwd: str | Path = PROJECT,
    env: Mapping[str, str] | None = None,
    stdin: _Stream = None,
    stdout: _Stream = None,
    stderr: _Stream = None,
    owns_terminal: bool = False,
) -> Forked:
    """Start a program: `-c CODE`, `-m MODULE` or `holdfast`, and its arguments. The streams are those of `Popen`.

    With `owns_terminal` it leads a session whose terminal is its standard input.
    """
    return _server(loaded).start(
        arguments, cwd, os.environ if env is None else env, (stdin, stdout, stderr), owns_terminal
    )


def run(
    *arguments: str,
    given: str = "",
    timeout_s: float = 240.0,
    loaded: str = PLAIN,
    cwd: str | Path = PROJECT,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        stdin.write(given.encode())
        stdin.seek(0)
        process = start(*arguments, loaded=loaded, cwd=cwd, env=env, stdin=stdin, stdout=out, stderr=err)
        try:
            code = process.wait(timeout_s)
        finally:
            process.close()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, _text(out.read()), _text(err.read()))


def _text(found: bytes) -> str:
    return found.decode().replace("\r\n", "\n")


class _Server:
    """The process that forks; one for each process that runs tests, and each set of loaded modules."""

    def __init__(self, loaded: str) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="holdfast-fork-")
        self._address = str(Path(self._home.name) / "socket")
        path = os.pathsep.join((str(PROJECT / "src"), str(PROJECT)))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server", self._address, loaded],
            cwd=self._home.name,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        atexit.register(self.close)

    def start(
        self,
        arguments: tuple[str, ...],
        cwd: str | Path,
        environment: Mapping[str, str],
        streams: tuple[_Stream, _Stream, _Stream],
        owns_terminal: bool,
    ) -> Forked:
        request = {
            "arguments": arguments,
            "cwd": str(cwd),
            "environment": dict(environment),
            "owns_terminal": owns_terminal,
        }
        ours: dict[int, int] = {}
        theirs: list[int] = []
        opened: list[int] = []
        for number, stream in enumerate(streams):
            if stream == subprocess.PIPE:
                ends = os.pipe()
                ours[number], used = ends[number == 0], ends[number != 0]
                opened.append(used)
            elif stream == subprocess.DEVNULL:
                used = os.open(os.devnull, os.O_RDWR)
                opened.append(used)
            else:
                used = number if stream is None else stream if isinstance(stream, int) else stream.fileno()
            theirs.append(used)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(self._address)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", theirs))]
        connection.sendmsg([json.dumps(request).encode()], rights)
        process = Forked(arguments, connection)
        for end in opened:
            os.close(end)
        process.stdin = os.fdopen(ours[0], "wb") if 0 in ours else None
        process.stdout = os.fdopen(ours[1], "rb") if 1 in ours else None
        return process

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._home.cleanup()


@functools.cache
def _server(loaded: str) -> _Server:
    return _Server(loaded)


# --- the process that forks ------------------------------------------------------------------------------------------


def _preload(names: str) -> None:
    for module in map(importlib.import_module, names.split(",")):
        for inner in pkgutil.walk_packages(getattr(module, "__path__", ()), module.__name__ + "."):
            if not inner.name.endswith(".__main__"):
                importlib.import_module(inner.name)


def _serve(address: str) -> dict[str, Any]:
    """Serve requests for ever; returns in the process of a program, with what it is to do."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no program is waited for here
    os.write(1, b"ready\n")
    while True:
        connection, _ = listener.accept()
        request, streams, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, 3)
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            child = os.fork()
            if child == 0:
                connection.close()
                asked: dict[str, Any] = json.loads(request)
                _become(asked, streams)
                return asked
            for stream in (*streams, 0, 1, 2):
                os.close(stream)
            _report(connection, child)
        connection.close()
        for stream in streams:
            os.close(stream)


def _report(connection: socket.socket, child: int) -> None:
    with contextlib.suppress(OSError):
        connection.send(str(child).encode())
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(asked: dict[str, Any], streams: list[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if asked["owns_terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    sys.path[0] = asked["cwd"]


def _run(option: str, *arguments: str) -> None:
    """Run the program as Python does."""
    if option == COMMAND:
        from holdfast.cli.main import main

        sys.argv = [COMMAND, *arguments]
        sys.exit(main())
    sys.argv = [option, *arguments[1:]]
    if option == "-m":
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return
    assert option == "-c", option
    sys.modules["__main__"] = program = types.ModuleType("__main__")
    exec(compile(arguments[0], "<string>", "exec", dont_inherit=True), program.__dict__)


def _end(code: int) -> NoReturn:
    """End as Python does, without taking apart the modules that were loaded, which takes longer than the program."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _main(address: str, loaded: str) -> NoReturn:
    _preload(loaded)
    gc.freeze()
    asked = _serve(address)
    code = 0
    try:
        _run(*asked["arguments"])
    except SystemExit as exits:
        code = exits.code if isinstance(exits.code, int) else 0 if exits.code is None else 1
        if isinstance(exits.code, str):
            sys.stderr.write(exits.code + "\n")
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)  # as Python ends when nothing catches it
    except BaseException:
        traceback.print_exc()
        code = 1
    _end(code)


if __name__ == "__main__":
    _main(*sys.argv[1:])

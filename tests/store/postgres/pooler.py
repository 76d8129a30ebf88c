"""PgBouncer in transaction mode, where it is installed: every transaction may go to another session of the server."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import time

import psycopg

from tests.store.postgres.server import as_nobody, free_port, guarded_home, newest
from tests.store.postgres.shared_servers import shared

_CONFIG = """
[databases]
* = host={host} port={port} user=tester

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 500
logfile = {home}/log
pidfile = {home}/pooler.pid
"""


def is_installed() -> bool:
    return shutil.which("pgbouncer") is not None


@functools.cache
def pooler_port() -> int:
    """The port of a pooler in front of the newest shared server; it ends with this process."""
    server, listen = shared(newest()), free_port()
    home, guardian = guarded_home()
    (home / "config").write_text(_CONFIG.format(host="127.0.0.1", port=server.port, listen=listen, home=home))
    command = [*as_nobody(), str(shutil.which("pgbouncer")), "-q", str(home / "config")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    atexit.register(_end, process, guardian)
    end = time.monotonic() + 20
    while True:
        try:
            with psycopg.connect(host="127.0.0.1", port=listen, user="tester", dbname="postgres", connect_timeout=2):
                return listen
        except psycopg.Error as error:
            if time.monotonic() > end or process.poll() is not None:
                raise RuntimeError(f"the pooler did not start ({error}): {(home / 'log').read_text()}") from error
            time.sleep(0.05)


def _end(process: subprocess.Popen[bytes], guardian: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert guardian.stdin is not None
    guardian.stdin.close()
    guardian.wait()

"""PgBouncer in transaction mode, where it is installed: every transaction may go to another session of the server."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

from tests.postgres.places import shared
from tests.postgres.server import as_nobody, free_port, newest

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
"""


def is_installed() -> bool:
    return shutil.which("pgbouncer") is not None


@functools.cache
def pooler_port() -> int:
    """The port of a pooler in front of the newest shared server; it ends with this process."""
    server, listen = shared(newest()), free_port()
    home = Path(tempfile.mkdtemp(prefix="hf-pb-"))
    (home / "config").write_text(_CONFIG.format(host="127.0.0.1", port=server.port, listen=listen, home=home))
    command = [*as_nobody(), str(shutil.which("pgbouncer")), "-q", str(home / "config")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    atexit.register(process.kill)
    end = time.monotonic() + 20
    while True:
        try:
            with psycopg.connect(host="127.0.0.1", port=listen, user="tester", dbname="postgres", connect_timeout=2):
                return listen
        except psycopg.Error as error:
            if time.monotonic() > end or process.poll() is not None:
                raise RuntimeError(f"the pooler did not start ({error}): {(home / 'log').read_text()}") from error
            time.sleep(0.05)

"""Debian's PgBouncer before a PostgreSQL, in transaction mode."""

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy import URL

from expirebridge.embedded.server import free_port
from tests.kit.patience import PATIENCE

BINARY = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin")
SETTINGS = """
[databases]
* = host=127.0.0.1 port={server} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
"""


@contextmanager
def pooled(url: URL, folder: Path) -> Iterator[URL]:
    """The same database through a pooler, which refuses to run as root."""
    port = free_port()
    settings = folder / "pgbouncer.ini"
    settings.write_text(SETTINGS.format(server=url.port, user=url.username, port=port))
    with settings.open("rb") as stdin:  # its user may not enter our folders
        process = subprocess.Popen(
            [BINARY or "pgbouncer", "-q", "/dev/stdin"], stdin=stdin,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
            user=pwd.getpwnam("postgres").pw_uid if os.geteuid() == 0 else None,
        )  # fmt: skip
    try:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(
                    host="127.0.0.1", port=port, user=url.username, dbname=url.database
                ).close()
                break
            except psycopg.OperationalError:
                if process.poll() is not None or time.monotonic() > end:
                    raise
                time.sleep(0.02)
        yield url.set(port=port)
    finally:
        process.kill()
        process.wait()

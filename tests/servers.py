"""Finds the servers that this machine can run."""

import os
import shutil
from pathlib import Path

from expirebridge.server import embedded_binary


def find_servers() -> dict[str, Path]:
    """The binaries by name: always the embedded Valkey; also a system redis-server."""
    found = {"valkey": embedded_binary()}
    # Debian's is in /usr/bin, which a bare PATH may lack.
    path = f"{os.environ.get('PATH', '')}:/usr/local/bin:/usr/bin"
    if redis := shutil.which("redis-server", path=path):
        found["redis"] = Path(redis)
    return found


SERVERS = find_servers()
REQUIRED = os.environ.get("EXPIREBRIDGE_TEST_SERVERS", "valkey").split()

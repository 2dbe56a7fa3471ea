"""A table in SQLite, in the folder in which producer and worker run, and Redis's policy of fsync.

What is committed is in the file at once, so it survives the death of any process, and it is on disk
within a second, as with Redis's `appendfsync everysec`. SQLite itself does not wait for the
disk (`synchronous = OFF`); a process of the worker calls fsync each second:

    python -m benchmarks.kit.table
"""

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

FILE = "table.db"


def connect(schema: str) -> sqlite3.Connection:
    """A connection of its own for a process; each statement is committed unless `writing`."""
    with Path("table.lock").open("w") as lock:  # only one at a time may change the journal's mode
        fcntl.flock(lock, fcntl.LOCK_EX)
        table = sqlite3.connect(FILE, timeout=30, isolation_level=None)
        table.execute("PRAGMA journal_mode = WAL")
        table.execute("PRAGMA synchronous = OFF")
        table.executescript(schema)
    return table


@contextlib.contextmanager
def writing(table: sqlite3.Connection) -> Iterator[None]:
    """One transaction, in which nobody else writes."""
    table.execute("BEGIN IMMEDIATE")
    with table:
        yield


def sync_each_second() -> None:
    """Call fsync on the table's files each second, for ever."""
    while True:
        for file in (f"{FILE}-wal", FILE):
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(file, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)
        time.sleep(1.0)


if __name__ == "__main__":
    sync_each_second()

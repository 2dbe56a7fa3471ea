"""A loss of power: what had not reached the disk is gone, and not only the process.

A killed process leaves all that it wrote to the kernel. So here the server's append-only file is
cut back after the kill, to a place that its last fsync must have reached.

Nobody outside the server knows that place. What stands for it is harsher than a real loss, or as
harsh: with `always` the length of the file when the last answer had arrived, as no answer leaves
before its fsync; with `everysec` any length between the one of two seconds before the kill and the
last, for Redis promises an fsync within two seconds. A cut falls into the midst of a command or of
a script's commands as it likes. What is not shown is that the server calls fsync at all, and that
the disk heeds it.
"""

import random
from dataclasses import dataclass
from pathlib import Path

from expirebridge.embedded.server import EmbeddedServer
from tests.faults.background import Background
from tests.kit.history import Forgot, Writer, now

SAMPLE_EVERY = 0.005
NOTED_WITHIN = 100
"""The ms within which a producer notes an answer: the server may be gone by then."""
FSYNC_WITHIN = 2000
"""The ms within which `everysec` has what was acknowledged on disk."""


@dataclass(frozen=True, slots=True)
class Length:
    """How long the append-only file was at a time: what was acknowledged before it, is in it."""

    at: int
    bytes: int


class Power(Background):
    """Watches a server's append-only file while its `with` block runs, and can cut the power."""

    def __init__(self, server: EmbeddedServer) -> None:
        super().__init__()
        self._server = server
        self._lengths = [self.length()]

    def length(self) -> Length:
        """How long the file is now."""
        at = now()
        return Length(at, self._file().stat().st_size)

    def lose_at_once(self, kept: Length, history: Writer) -> None:
        """Kill the server, and leave of its file what was there at that time."""
        self._server.kill()
        self._cut(kept, kept.bytes, history)

    def lose_unsynced(self, chance: random.Random, history: Writer) -> None:
        """Kill the server, and leave some length that the file had in the last two seconds."""
        killed_at = now()
        self._server.kill()
        kept = max(
            (length for length in self._lengths if length.at <= killed_at - FSYNC_WITHIN),
            key=lambda length: length.at,
        )
        self._cut(kept, chance.randint(kept.bytes, self.length().bytes), history)

    def _cut(self, kept: Length, size: int, history: Writer) -> None:
        with self._file().open("r+b") as file:
            file.truncate(size)
        history.write(Forgot(at=kept.at, until=now() + NOTED_WITHIN))

    def _file(self) -> Path:
        # A test's file is too short to be rewritten: there is the base, and one file that grows.
        [file] = self._server.directory.glob("appendonlydir/*.incr.aof")
        return file

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_EVERY):
            self._lengths.append(self.length())

"""Named points at which a test holds another process still, and knows that it does.

A process calls `reach` at each of its points. If POINTS names the test's socket, it
asks there whether to go on, and waits for the answer. Only the thread that is at the point waits.
"""

import os
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.kit.patience import PATIENCE

VARIABLE = "POINTS"
_here = threading.local()


def reach(point: str) -> None:
    """Say that this thread is at a point, and wait until the test lets it go on."""
    path = os.environ.get(VARIABLE)
    if path is None:
        return
    with suppress(OSError):  # the test has ended
        if getattr(_here, "pid", 0) != os.getpid():
            _here.pid, _here.link = os.getpid(), _connect(path)
        _here.link.write(f"{os.getpid()} {point}\n".encode())
        _here.link.readline()


def _connect(path: str) -> Any:
    import socket

    link = socket.socket(socket.AF_UNIX)
    link.connect(path)
    return link.makefile("rwb", buffering=0)


class Held:
    """One process at one point, held there until `release`."""

    def __init__(self, point: str, wanted: Callable[[int], bool]) -> None:
        self.point = point
        self.pid = 0
        self.wanted = wanted
        self._arrived, self._released = threading.Event(), threading.Event()

    def until_reached(self, patience: float = PATIENCE) -> int:
        """Wait until a process is held there; returns its id."""
        assert self._arrived.wait(patience), f"nobody came to {self.point!r}"
        return self.pid

    def release(self) -> None:
        """Let it go on."""
        self._released.set()

    def arrive(self, pid: int) -> None:
        """Called when a process is there: returns when it may go on."""
        self.pid = pid
        self._arrived.set()
        self._released.wait()


class Points:
    """The test's side: processes whose environment has `env` ask it at each of their points."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "points"
        self._lock = threading.Lock()
        self._held: Held | None = None
        self.seen: set[str] = set()
        """The points that were reached."""
        self._server = _Server(str(self._path), _Asked)
        self._server.points = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def env(self) -> dict[str, str]:
        return {VARIABLE: str(self._path)}

    @contextmanager
    def hold(self, point: str, wanted: Callable[[int], bool] = lambda _: True) -> Iterator[Held]:
        """Hold the first process that comes to this point, of those that are `wanted`, by their id.

        It may go on when the block ends, if not before.
        """
        held = Held(point, wanted)
        with self._lock:
            self._held = held
        try:
            yield held
        finally:
            with self._lock:
                self._held = None
            held.release()

    def arrived(self, pid: int, point: str) -> None:
        """Return when this process may go on."""
        with self._lock:
            self.seen.add(point)
            held = self._held
            if held is None or held.point != point or held.pid or not held.wanted(pid):
                return
            held.pid = pid
        held.arrive(pid)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False
    points: Points


class _Asked(socketserver.StreamRequestHandler):
    """One thread of another process."""

    server: _Server

    def handle(self) -> None:
        with suppress(OSError):  # it was killed
            for line in self.rfile:
                pid, _, point = line.decode().rstrip("\n").partition(" ")
                self.server.points.arrived(int(pid), point)
                self.wfile.write(b"\n")

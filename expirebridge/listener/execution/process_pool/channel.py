"""The channel of a process for handlers to its listener."""

import os
import pickle
import socket
import threading
from typing import Any

from expirebridge.listener.execution.process_pool.protocol import (
    LENGTH_SIZE,
    FromProcess,
    encode,
    length_of,
)


class Channel:
    """Sends and receives frames. Any thread may send.

    A process that a handler forks does not send: its frames would mix with those of this one.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.set_inheritable(False)
        self._connection = connection
        self._stream = connection.makefile("rb")
        self._lock = threading.Lock()
        self._process = os.getpid()

    @property
    def is_ours(self) -> bool:
        """Whether this process was started with it, and not forked from the one that was."""
        return os.getpid() == self._process

    def receive(self) -> Any:
        """Wait for the next frame; None if the listener closed the channel, or is gone."""
        head = self._stream.read(LENGTH_SIZE)
        if len(head) < LENGTH_SIZE:
            return None
        return pickle.loads(self._stream.read(length_of(head)))  # noqa: S301 - from our listener

    def send(self, frame: FromProcess) -> None:
        """Send a frame; wait while the listener does not take it."""
        if self.is_ours:
            encoded = encode(frame)
            with self._lock:
                self._connection.sendall(encoded)

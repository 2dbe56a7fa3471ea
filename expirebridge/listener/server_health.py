"""The health of a server: reports once that the server fails, and once that it works again.

Every role retries by itself, several times a second; a log line for each would bury all others.
"""

import logging
import threading
import time

from expirebridge.errors import ServerError
from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")


class ServerHealth:
    """Health of a server, from the reports of the roles that call it. Thread-safe.

    An outage begins with the first role that fails, and ends when each that failed has an answer.
    """

    def __init__(self) -> None:
        self._failing: set[str] = set()
        self._logged: set[type[ServerError]] = set()
        """The kinds of error that were logged in this outage."""
        self._began = 0.0
        self._lock = threading.Lock()

    @property
    def lasts(self) -> bool:
        """True during an outage."""
        return bool(self._failing)

    def failed(self, role: str, error: ServerError) -> None:
        """Report that the server failed or refused a call of this role, which will retry."""
        with self._lock:
            if not self._failing:
                self._logged.clear()
                self._began = time.monotonic()
            self._failing.add(role)
            is_news = type(error) not in self._logged
            self._logged.add(type(error))
        if is_news:
            logger.warning(
                "%s failed: %s (reported once per outage)", role, error,
                extra=event("outage", role=role, kind=type(error).__name__, error=str(error)),
            )  # fmt: skip
        else:
            logger.debug("%s failed: %s", role, error)

    def answered(self, role: str) -> None:
        """Report that the server answered this role."""
        if role not in self._failing:
            return
        with self._lock:
            self._failing.discard(role)
            is_over = not self._failing
        if is_over:
            lasted = round(time.monotonic() - self._began, 1)
            logger.warning(
                "everything works again, after %.1f s",
                lasted,
                extra=event("recovered", seconds=lasted),
            )

    def end(self) -> None:
        """Report that the partition moved to another server."""


class PartitionHealth(ServerHealth):
    """Health of one partition of a cluster node; its slot may move alone.

    The server's health logs it.
    """

    def __init__(self, node: ServerHealth, partition: str) -> None:
        super().__init__()
        self._node = node
        self._partition = partition
        self._ended = False

    def failed(self, role: str, error: ServerError) -> None:
        """Report that the server failed or refused a call of this role, which will retry."""
        with self._lock:
            if self._ended:
                return
            self._failing.add(role)
        self._node.failed(f"{role} of {self._partition}", error)

    def answered(self, role: str) -> None:
        """Report that the server answered this role."""
        if role not in self._failing:
            return
        with self._lock:
            self._failing.discard(role)
        self._node.answered(f"{role} of {self._partition}")

    def end(self) -> None:
        """Report that the partition moved to another server: its failures here are over."""
        with self._lock:
            self._ended = True
        for role in list(self._failing):
            self.answered(role)

"""The health of a server: reports once that the server fails, and once that it works again.

Every role retries by itself, several times a second; a log line for each would bury all others.
"""

import logging
import threading
import time

from expirebridge.errors import ServerError
from expirebridge.model.log_fields import event

logger = logging.getLogger("expirebridge")


class ServerHealth:
    """Hears of each role whether the server answers it. Safe for threads: one of them beats.

    It begins with the first role that fails, and is over when each that failed has had an answer.
    """

    def __init__(self) -> None:
        self._failing: set[str] = set()
        self._logged: set[type[ServerError]] = set()
        """The kinds of error that were logged in this outage."""
        self._began = 0.0
        self._lock = threading.Lock()

    @property
    def lasts(self) -> bool:
        """Whether some role has had no answer since it failed."""
        return bool(self._failing)

    def failed(self, role: str, error: ServerError) -> None:
        """Take note that the server failed or refused a call of this role, which will ask again."""
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
        """Take note that the server answered this role."""
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
        """Take note that the consumer that has it stands elsewhere; others may stand here."""


class PartitionHealth(ServerHealth):
    """The health of one partition of a server that has several: its slot may move alone.

    The server's health logs it.
    """

    def __init__(self, node: ServerHealth, partition: str) -> None:
        super().__init__()
        self._node = node
        self._partition = partition
        self._ended = False

    def failed(self, role: str, error: ServerError) -> None:
        """Take note that the server failed or refused a call of this role, which will ask again."""
        with self._lock:
            if self._ended:
                return
            self._failing.add(role)
        self._node.failed(f"{role} of {self._partition}", error)

    def answered(self, role: str) -> None:
        """Take note that the server answered this role."""
        if role not in self._failing:
            return
        with self._lock:
            self._failing.discard(role)
        self._node.answered(f"{role} of {self._partition}")

    def end(self) -> None:
        """Forget it: the consumer stands on another node."""
        with self._lock:
            self._ended = True
        for role in list(self._failing):
            self.answered(role)

"""The log guard: keeps what is broken in the process's logging out of the listener's code.

Handlers' modules, and the program around a listener, may add filters and handlers of their own to
the log. One that raises does so wherever a line is logged: in a role, it would end the listener.
"""

import logging
import sys
import traceback
from collections.abc import Callable

logger = logging.getLogger("expirebridge")


class _Guarded:
    """Passes a record on, as a logger does, and raises nothing."""

    def __init__(self, handle: Callable[[logging.LogRecord], None]) -> None:
        self._handle = handle

    def __call__(self, record: logging.LogRecord) -> None:
        try:
            self._handle(record)
        except Exception:
            # As logging itself does when a record cannot be written.
            if logging.raiseExceptions and sys.stderr:
                traceback.print_exc()


def guard_log() -> None:
    """From here on, logging as `expirebridge` raises nothing in this process."""
    if not isinstance(logger.handle, _Guarded):
        logger.handle = _Guarded(logger.handle)  # type: ignore[method-assign]

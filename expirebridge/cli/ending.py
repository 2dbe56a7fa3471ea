"""How the process of a command ends.

Exit codes: 0 done; 1 the server failed or refused the call, or the handlers cannot be used; 2 wrong
input; 3 the task or group does not exist, or its state does not allow the change, or compat found
tasks that would fail; 4 a listener is stuck and must be replaced; 5 the doctor found an error.
"""

import contextlib
import logging
import os
import signal
import sys

FAULT, BAD_INPUT, NOT_POSSIBLE, STUCK, ILL = 1, 2, 3, 4, 5
INTERRUPTED = 130
"""By Ctrl-C, as shells say it."""


def ends_at_ctrl_c() -> None:
    """Have SIGINT raise KeyboardInterrupt, whatever this process has inherited.

    A shell starts its background jobs with SIGINT ignored, and Python leaves that as it is.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


def end(error: Exception | None, code: int) -> None:
    """End the process with this code, and the error as one line on stderr."""
    if error is not None:
        sys.stderr.write(f"expirebridge: {error}\n")
    leave(code)


def leave(code: int) -> None:
    """End the process, even if a thread still runs a handler that cannot be stopped."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError):
            stream.flush()
    os._exit(code)

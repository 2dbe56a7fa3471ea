"""How the process of a command ends."""

import contextlib
import logging
import os
import signal
import sys


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
    """End the process, although a thread may still run a handler that nobody can stop."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError):
            stream.flush()
    os._exit(code)

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
import threading

FAULT, BAD_INPUT, NOT_POSSIBLE, STUCK, ILL = 1, 2, 3, 4, 5
WRITES_WITHIN = 2.0
"""Seconds in which the last output must be written."""
INTERRUPTED = 130
"""By Ctrl-C, as shells say it."""


def ends_at_ctrl_c() -> None:
    """Have SIGINT raise KeyboardInterrupt, whatever this process has inherited.

    A shell starts its background jobs with SIGINT ignored, and Python leaves that as it is.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


def end(error: Exception, code: int) -> None:
    """End the process with this code, and the error as one line on stderr."""
    leave(code, line_of(error))


def line_of(error: Exception) -> str:
    """The line on stderr with which a command ends at this error."""
    return f"expirebridge: {error}\n"


def leave(code: int, last_words: str = "") -> None:
    """End the process, even if a thread still runs a handler that cannot be stopped.

    What is still to be written is waited for a moment only: nobody may read the pipe, or a thread
    that waits there may hold the stream.
    """
    codes = [code]

    def write() -> None:
        if last_words:
            with contextlib.suppress(OSError):
                sys.stderr.write(last_words)
        logging.shutdown()
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            pass
        except OSError as error:
            codes.append(codes[0] or FAULT)
            if not last_words:
                with contextlib.suppress(OSError):
                    sys.stderr.write(f"expirebridge: the output cannot be written: {error}\n")
        with contextlib.suppress(OSError):
            sys.stderr.flush()

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    writing.join(WRITES_WITHIN)
    os._exit(codes[-1])


# Before a listener takes signals over.


def end_at_sigterm() -> None:
    """Have SIGTERM end this process as it ends a listener that has nothing to do: with code 0.

    Otherwise it would be reported as killed, while it loads. SIGHUP asks for new workers: those
    that are about to start are new, and it must not end their parent. Neither gets lost while the
    process is replaced by another program: they are held from then on.
    """
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _hear_nothing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)


def hold_signals() -> None:
    """Hold both signals until `end_at_sigterm` is called in the program that follows."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)


def end_at_sighup() -> None:
    """Have SIGHUP end this process again: it has no workers."""
    if signal.getsignal(signal.SIGHUP) is _hear_nothing:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


_HELD = {signal.SIGTERM, signal.SIGHUP}


def _hear_nothing(*_: object) -> None:
    pass

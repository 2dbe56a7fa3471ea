"""Errors that nobody awaits, in a listener with keys: they are logged without what they say."""

import asyncio
import contextlib
import logging
import threading
import traceback
from collections.abc import Iterator
from typing import Any

from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")


@contextlib.contextmanager
def kept_private() -> Iterator[None]:
    """Within it, the running event loop and threads report stray errors by kind and place alone.

    asyncio and threading would write them in clear, with the arguments that may be in them. A
    handler that the program has set for the loop, or for threads, stays.
    """
    loop, in_threads = asyncio.get_running_loop(), threading.excepthook
    takes_loop = loop.get_exception_handler() is None
    takes_threads = in_threads is threading.__excepthook__
    if takes_loop:
        loop.set_exception_handler(_report_of_loop)
    if takes_threads:
        threading.excepthook = _report_of_thread
    try:
        yield
    finally:
        if takes_loop:
            loop.set_exception_handler(None)
        if takes_threads:
            threading.excepthook = in_threads


def _report_of_loop(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # Its message has the arguments of a callback.
    _report("nobody awaited an error", context.get("exception"))


def _report_of_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is not SystemExit:
        _report("a thread ended with an error", args.exc_value)


def _report(what: str, error: BaseException | None) -> None:
    kind = type(error).__name__ if error is not None else "no error"
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"
    logger.error(
        "%s: %s at %s (sealed)", what, kind, place,
        extra=event("stray error", error=kind, place=place),
    )  # fmt: skip

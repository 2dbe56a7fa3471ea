"""Stops its listener's process once, right before the step that HALT_AT names, if it names one."""

import functools
import importlib
import os
import signal
import threading
from typing import Any


def _halt_before(step: str) -> None:
    module, _, name = step.partition(":")
    owner, method = name.split(".")
    cls = getattr(importlib.import_module(module), owner)
    function = getattr(cls, method)
    halted: list[str] = []

    @functools.wraps(function)
    def halting(*args: Any, **options: Any) -> Any:
        if not halted:
            halted.append(step)
            # To this thread, so that it goes no further; all others stop with it.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return function(*args, **options)

    setattr(cls, method, halting)


if "HALT_AT" in os.environ:
    _halt_before(os.environ["HALT_AT"])

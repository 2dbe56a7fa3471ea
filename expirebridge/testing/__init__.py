"""Tests of what runs later: time is moved on, and tasks run in the test itself.

See docs/how-to/test.md. The names are imported when they are used: pytest loads the plugin in this
folder in each of its runs.
"""

from typing import TYPE_CHECKING

from expirebridge.model.lazy_imports import names_of

if TYPE_CHECKING:
    from expirebridge.testing.attempt import Ran
    from expirebridge.testing.clock import Clock
    from expirebridge.testing.errors import NeverIdle, TaskFailed, TravelError
    from expirebridge.testing.unit import arun_handler, run_handler

__all__ = [
    "Clock",
    "NeverIdle",
    "Ran",
    "TaskFailed",
    "TravelError",
    "arun_handler",
    "run_handler",
]

_MODULES = {
    "Clock": "clock",
    "NeverIdle": "errors",
    "Ran": "attempt",
    "TaskFailed": "errors",
    "TravelError": "errors",
    "arun_handler": "unit",
    "run_handler": "unit",
}

if not TYPE_CHECKING:  # with it, type checkers would accept any name
    __getattr__ = names_of(__name__, _MODULES)

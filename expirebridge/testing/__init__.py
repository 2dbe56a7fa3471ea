"""Tests of what runs later: time is moved on, and tasks run in the test itself.

See docs/how-to/test.md. The names are imported when they are used: pytest loads the plugin in this
folder in each of its runs.
"""

from typing import TYPE_CHECKING

from expirebridge.task.lazy_imports import names_of

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

_NAMES = {
    "testing.attempt": "Ran",
    "testing.clock": "Clock",
    "testing.errors": "NeverIdle TaskFailed TravelError",
    "testing.unit": "arun_handler run_handler",
}

if not TYPE_CHECKING:  # with it, type checkers would accept any name
    __getattr__ = names_of(__name__, _NAMES)

"""Series (recurring tasks): a handler, its arguments, and a schedule that makes its tasks."""

from typing import TYPE_CHECKING

from expirebridge.task.lazy_imports import modules_of

if TYPE_CHECKING:
    from expirebridge.series import calls, definition, listing, records, schedule, ticks, values

__all__ = ["calls", "definition", "listing", "records", "schedule", "ticks", "values"]

if not TYPE_CHECKING:  # with it, type checkers would accept any name
    __getattr__ = modules_of(__name__, __all__)

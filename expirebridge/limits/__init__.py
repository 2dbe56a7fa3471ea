"""Limits: how many tasks run at once, how many start in a time, in which order."""

from typing import TYPE_CHECKING

from expirebridge.task.lazy_imports import modules_of

if TYPE_CHECKING:
    from expirebridge.limits import calls, hold, hold_calls, replies, values

__all__ = ["calls", "hold", "hold_calls", "replies", "values"]

if not TYPE_CHECKING:  # with it, type checkers would accept any name
    __getattr__ = modules_of(__name__, __all__)

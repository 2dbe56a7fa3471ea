"""The fleet: listeners with different code, and which functions each of them knows."""

from typing import TYPE_CHECKING

from expirebridge.task.lazy_imports import modules_of

if TYPE_CHECKING:
    from expirebridge.fleet import functions

__all__ = ["functions"]

if not TYPE_CHECKING:  # with it, type checkers would accept any name
    __getattr__ = modules_of(__name__, __all__)

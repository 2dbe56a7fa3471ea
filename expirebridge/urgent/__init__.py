"""Urgent tasks: among those that are due they are taken first."""

from typing import TYPE_CHECKING

from expirebridge.task.lazy_imports import modules_of

if TYPE_CHECKING:
    from expirebridge.urgent import calls

__all__ = ["calls"]

if not TYPE_CHECKING:  # with it, type checkers would accept any name
    __getattr__ = modules_of(__name__, __all__)

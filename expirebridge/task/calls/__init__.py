"""One function for each Redis script: its arguments, and how its reply is read.

The modules below are imported when they are used by their names here, as `calls.looking`: most
producers only make tasks.
"""

from typing import TYPE_CHECKING

from expirebridge.task.lazy_imports import modules_of

if TYPE_CHECKING:
    from expirebridge.task.calls import editing, looking, pages

__all__ = ["editing", "looking", "pages"]

if not TYPE_CHECKING:  # with it, type checkers would accept any name
    __getattr__ = modules_of(__name__, __all__)

"""Handlers: how a function is marked as one, found in its folder, and looked up by its name.

The names are imported when they are used: who makes tasks by the names of their functions needs
none of them.
"""

from typing import TYPE_CHECKING

from expirebridge.task.lazy_imports import names_of

if TYPE_CHECKING:
    from expirebridge.handlers.aliases import suggestion
    from expirebridge.handlers.arguments import check_binding, plain_arguments
    from expirebridge.handlers.call import Call
    from expirebridge.handlers.definition import Handler, Kind, is_private, typed_arguments
    from expirebridge.handlers.registry import Registry, name_of, refuse_left_out, watched
    from expirebridge.handlers.signatures import Shape
    from expirebridge.handlers.then import Then

__all__ = [
    "Call",
    "Handler",
    "Kind",
    "Registry",
    "Shape",
    "Then",
    "check_binding",
    "is_private",
    "name_of",
    "plain_arguments",
    "refuse_left_out",
    "suggestion",
    "typed_arguments",
    "watched",
]

_NAMES = {
    "handlers.aliases": "suggestion",
    "handlers.arguments": "check_binding plain_arguments",
    "handlers.call": "Call",
    "handlers.definition": "Handler Kind is_private typed_arguments",
    "handlers.registry": "Registry name_of refuse_left_out watched",
    "handlers.signatures": "Shape",
    "handlers.then": "Then",
}

if not TYPE_CHECKING:  # with it, type checkers would accept any name
    __getattr__ = names_of(__name__, _NAMES)

"""Handlers: how a function is marked as one, found in its folder, and looked up by its name.

The names are imported when they are used: who makes tasks by the names of their functions needs
none of them.
"""

from typing import TYPE_CHECKING

from expirebridge.model.lazy_imports import names_of

if TYPE_CHECKING:
    from expirebridge.handlers.aliases import inner_name
    from expirebridge.handlers.arguments import check_binding, plain_arguments
    from expirebridge.handlers.call import Call
    from expirebridge.handlers.definition import Handler, Kind, handler, is_private, typed_arguments
    from expirebridge.handlers.periodic import every
    from expirebridge.handlers.registry import Registry, name_of, refuse_left_out, watched
    from expirebridge.handlers.then import Then

__all__ = [
    "Call",
    "Handler",
    "Kind",
    "Registry",
    "Then",
    "check_binding",
    "every",
    "handler",
    "inner_name",
    "is_private",
    "name_of",
    "plain_arguments",
    "refuse_left_out",
    "typed_arguments",
    "watched",
]

_MODULES = {
    "Call": "call",
    "Handler": "definition",
    "Kind": "definition",
    "Registry": "registry",
    "Then": "then",
    "check_binding": "arguments",
    "every": "periodic",
    "handler": "definition",
    "inner_name": "aliases",
    "is_private": "definition",
    "name_of": "registry",
    "plain_arguments": "arguments",
    "refuse_left_out": "registry",
    "typed_arguments": "definition",
    "watched": "registry",
}

if not TYPE_CHECKING:  # with it, type checkers would accept any name
    __getattr__ = names_of(__name__, _MODULES)

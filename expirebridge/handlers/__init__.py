"""Handlers: how a function is marked as one, found in its folder, and looked up by its name."""

from expirebridge.handlers.arguments import check_binding, plain_arguments
from expirebridge.handlers.call import Call
from expirebridge.handlers.declared import every
from expirebridge.handlers.definition import Handler, Kind, handler, typed_arguments
from expirebridge.handlers.folder import HandlersFolder
from expirebridge.handlers.registry import Registry, name_of

__all__ = [
    "Call",
    "Handler",
    "HandlersFolder",
    "Kind",
    "Registry",
    "check_binding",
    "every",
    "handler",
    "name_of",
    "plain_arguments",
    "typed_arguments",
]

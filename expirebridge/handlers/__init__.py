"""Handlers: how a function is marked as one, found in its folder, and looked up by its name."""

from expirebridge.handlers.registry import (
    Handler,
    Registry,
    check_binding,
    check_timeout,
    handler,
    name_of,
)

__all__ = ["Handler", "Registry", "check_binding", "check_timeout", "handler", "name_of"]

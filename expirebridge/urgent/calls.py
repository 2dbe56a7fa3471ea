"""The calls about urgent tasks."""

from collections.abc import Collection, Mapping

from expirebridge.handlers.definition import Handler
from expirebridge.task.calls.call import Command, script


def declare_urgent(urgent: Collection[str], others: Collection[str]) -> Command[None]:
    """Declare which functions of a listener are urgent, and which are not."""
    return script(
        "declare_urgent", len(urgent), *sorted(urgent), *sorted(others), read=lambda _: None
    )


def declaration_of(handlers: Mapping[str, Handler]) -> Command[None]:
    """Declare which of these handlers are urgent, by every name that tasks may use."""
    urgent = {name for name, handler in handlers.items() if handler.urgent}
    return declare_urgent(urgent, handlers.keys() - urgent)

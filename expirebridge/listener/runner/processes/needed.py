"""Whether a listener needs processes for its handlers."""

from typing import TYPE_CHECKING

from expirebridge.handlers import Kind, Registry
from expirebridge.hooks import Hooks
from expirebridge.settings import Settings

if TYPE_CHECKING:
    from expirebridge.listener.execution.process_pool.pool import Processes


def processes_for(registry: Registry, settings: Settings, hooks: Hooks) -> "Processes | None":
    """The processes for these handlers; None if none of them wants one."""
    if not any(handler.kind is Kind.PROCESS for handler in registry):
        return None
    # Here, so that it is imported only where there are processes.
    from expirebridge.listener.execution.process_pool.pool import Processes  # noqa: PLC0415

    return Processes(settings, hooks)

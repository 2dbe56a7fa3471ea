"""What the operations of every subject have in common."""

from typing import Any

from expirebridge.errors import PartlyDone
from expirebridge.hooks import Hooks
from expirebridge.model.task import State
from expirebridge.producer.unknown_functions import UnknownFunction, UnknownFunctions
from expirebridge.settings import Settings
from expirebridge.store import commands
from expirebridge.store.commands import LEFT_OUT, Steps


class Subject:
    """The operations of one subject, with the settings and hooks that they need."""

    def __init__(
        self, settings: Settings, hooks: Hooks, *, unknown: UnknownFunction = "off"
    ) -> None:
        self._settings = settings
        self._hooks = hooks
        self._unknown = UnknownFunctions(unknown, settings)


def refuse_left_out(done: Any) -> Steps[None]:
    """Raise PartlyDone if partitions were left out of what was done."""
    left_out = yield from LEFT_OUT
    if left_out:
        tags = [one.tag for one in left_out]
        raise PartlyDone(done, tags, f"partitions {' '.join(tags)}: {left_out[0].error}")


def task_pages(
    *, state: State | None = None, func: str | None = None, tag: str | None = None
) -> commands.Pages[commands.Page]:
    """A walk over the tasks that match."""
    return commands.Pages(
        lambda cursor: commands.list_page(state=state, func=func, tag=tag, cursor=cursor)
    )

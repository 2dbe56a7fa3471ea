"""What the operations of every subject have in common."""

from typing import Any

from expirebridge.errors import PartlyDone
from expirebridge.hooks import Hooks
from expirebridge.operations.unknown import UnknownFunction, UnknownFunctions
from expirebridge.settings import Settings
from expirebridge.store import calls
from expirebridge.store.calls import LEFT_OUT, Steps
from expirebridge.task import State


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
) -> calls.Pages[calls.Page]:
    """A walk over the tasks that match."""
    return calls.Pages(
        lambda cursor: calls.list_page(state=state, func=func, tag=tag, cursor=cursor)
    )

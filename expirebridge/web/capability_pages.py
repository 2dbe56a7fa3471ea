"""What capabilities add to the dashboard, each in its module `page`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from starlette.routing import BaseRoute

from expirebridge.capabilities import given
from expirebridge.settings import Settings
from expirebridge.task.task import Task
from expirebridge.web.context import Entry, PageContext
from expirebridge.web.overview import Overview


async def _nothing(_: PageContext, __: Task) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, kw_only=True)
class CapabilityPages:
    """A capability's part of the dashboard."""

    routes: Callable[[PageContext, Overview], Sequence[BaseRoute]]
    """Returns its pages, and lets the overview ask for its findings, too."""
    entry: Callable[[Settings], Entry | None] = lambda _: None
    """Returns where the navigation leads to them; None if it does not."""
    of_task: Callable[[PageContext, Task], Awaitable[Mapping[str, Any]]] = _nothing
    """Returns values for the page of a task."""


class GivesPages(Protocol):
    """A module with a part of the dashboard."""

    PAGES: CapabilityPages


def capability_pages() -> list[CapabilityPages]:
    """Return the parts of all capabilities that have one."""
    return [module.PAGES for module in cast("tuple[GivesPages, ...]", given("page"))]

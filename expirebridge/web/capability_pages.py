"""What capabilities add to the dashboard, each in its module `page`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from starlette.routing import BaseRoute

from expirebridge.capabilities import given
from expirebridge.settings import Settings
from expirebridge.task.task import Task
from expirebridge.web.context import Entry, PageContext
from expirebridge.web.overview import Overview


@dataclass(frozen=True, slots=True)
class TaskLink:
    """Leads from a task's page to a form for what can be done with it."""

    label: str
    path: str
    """Without the query, which has its id."""


@dataclass(frozen=True, kw_only=True)
class CapabilityPages:
    """A capability's part of the dashboard."""

    routes: Callable[[PageContext, Overview], Sequence[BaseRoute]]
    """Returns its pages, and lets the overview ask for its findings, too."""
    entry: Callable[[Settings], Entry | None] = lambda _: None
    """Returns where the navigation leads to them; None if it does not."""
    task_links: Callable[[Task], Sequence[TaskLink]] = lambda _: ()
    """Returns what its pages can do with a task."""


class GivesPages(Protocol):
    """A module with a part of the dashboard."""

    PAGES: CapabilityPages


def capability_pages() -> list[CapabilityPages]:
    """Return the parts of all capabilities that have one."""
    return [module.PAGES for module in cast("tuple[GivesPages, ...]", given("page"))]


def links_of(task: Task) -> Iterator[TaskLink]:
    """What the pages of all capabilities can do with a task."""
    return (link for one in capability_pages() for link in one.task_links(task))

"""Compares the tasks that wait with other code, before that code runs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, cast

from expirebridge.capabilities import given
from expirebridge.fleet.compatibility import Comparison
from expirebridge.handlers import Registry
from expirebridge.settings import Settings
from expirebridge.task.calls import inspection
from expirebridge.task.calls.call import Steps
from expirebridge.task.calls.inspection import StoredCall
from expirebridge.task.calls.pages import Pages
from expirebridge.task.task import UNCLAIMED, State


class GivesCalls(Protocol):
    """The module `stored_calls` of a capability."""

    def add_calls(
        self, add: Callable[[StoredCall], None], settings: Settings, due_within: float | None
    ) -> Steps[int]:
        """Add the calls that it stores apart from tasks.

        `due_within` leaves out those due in so many seconds or later: return their number.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which tasks are compared, and how many there were of them."""

    counts: dict[State, int]
    until: int | None = None
    """Only pending tasks that are due before, in ms on the server's clock; None: all."""
    later: int = 0
    """Pending tasks that are due then or later."""
    paused: int = 0
    """Paused tasks that are left out because of it: they have no due time."""

    @property
    def total(self) -> int:
        """The number of tasks to compare."""
        return sum(self.counts.values())


def scope_of(*, due_within: float | None = None, failed: bool = False) -> Steps[Scope]:
    """Count what is to be compared: what is pending, waiting, paused or running.

    `due_within` leaves out paused tasks, and pending ones that are due in so many seconds or later.
    `failed` adds failed tasks, which `run_now` would start again.

    A running task counts because it is tried again if it fails, or if its listener stops.
    """
    counts: dict[State, int] = {}
    for state in (*UNCLAIMED, State.RUNNING, State.FAILED):
        counts[state] = (yield from inspection.count_before(state, [])).total
    if not failed:
        del counts[State.FAILED]
    if due_within is None:
        return Scope(counts=counts)
    now = (yield from inspection.count_before(State.PENDING, [])).now
    until = now + round(due_within * 1000)
    pending = yield from inspection.count_before(State.PENDING, [until])
    [counts[State.PENDING]] = pending.before
    later = pending.total - counts[State.PENDING]
    return Scope(counts=counts, until=until, later=later, paused=counts.pop(State.PAUSED))


def compare(
    registry: Registry, scope: Scope, *, progress: Callable[[int], None]
) -> Steps[Comparison]:
    """Compare the tasks of a scope with a registry, in pages of 100.

    `progress` is called after each page with the number of tasks in it. A task that stays where it
    is meanwhile is compared once; one that moves may be compared twice, or not at all.
    """
    comparison = Comparison(registry)
    for state in scope.counts:
        until = scope.until if state is State.PENDING else None
        pages = Pages(partial(inspection.calls_page, state, until=until))
        while page := (yield from pages.next()):
            for call in page.calls:
                comparison.add(call)
            progress(page.examined)
    return comparison


def compare_beside(
    comparison: Comparison, settings: Settings, due_within: float | None
) -> Steps[int]:
    """Compare also what is no task yet, such as series; return how many of it are due later."""
    later = 0
    for one in cast("tuple[GivesCalls, ...]", given("stored_calls")):
        later += yield from one.add_calls(comparison.add, settings, due_within)
    return later

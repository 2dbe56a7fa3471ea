"""The checks that capabilities give, each in its module `checks`."""

from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from expirebridge.capabilities import given
from expirebridge.checks.finding import Check, Finding, Occasion, ServersCheck
from expirebridge.settings import Settings
from expirebridge.store.partitions import Partitions


class GivesChecks(Protocol):
    """The module `checks` of a capability."""

    def checks(self, settings: Settings, max_overdue: float) -> Sequence[Check | ServersCheck]:
        """Give its checks; `max_overdue` is how many seconds work may wait."""


def checks_on(occasion: Occasion, settings: Settings, max_overdue: float) -> list[Check]:
    """Return those that are made on an occasion, in the order of the report."""
    found = [
        one for one in _all(settings, max_overdue) if isinstance(one, Check) and occasion in one.on
    ]
    return sorted(found, key=lambda one: one.order)


def servers_checks(settings: Settings, max_overdue: float) -> list[ServersCheck]:
    """Return those that ask each server."""
    return [one for one in _all(settings, max_overdue) if isinstance(one, ServersCheck)]


def _all(settings: Settings, max_overdue: float) -> Iterator[Check | ServersCheck]:
    for one in cast("tuple[GivesChecks, ...]", given("checks")):
        yield from one.checks(settings, max_overdue)


class ExternalChecks(Protocol):
    """The module `external_checks` of a capability that keeps something outside of Redis."""

    def check_external(
        self, store: Partitions, settings: Settings, max_overdue: float, *, whole: bool
    ) -> list[Finding]:
        """Check that; `whole` is for the doctor, which may write and take its time."""
        ...


def check_external(
    store: Partitions, settings: Settings, max_overdue: float, *, whole: bool
) -> list[Finding]:
    """Make the checks of all that is kept outside of Redis."""
    found = list[Finding]()
    for one in cast("tuple[ExternalChecks, ...]", given("external_checks")):
        found += one.check_external(store, settings, max_overdue, whole=whole)
    return found

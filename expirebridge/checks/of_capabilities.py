"""The checks that capabilities give, each in its module `checks`."""

from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from expirebridge.capabilities import given
from expirebridge.checks.finding import Check, Occasion, ServersCheck
from expirebridge.settings import Settings


class GivesChecks(Protocol):
    """The module `checks` of a capability."""

    def checks(self, settings: Settings, limit: float) -> Sequence[Check | ServersCheck]:
        """Give its checks; `limit` is for how many seconds work may wait."""


def checks_on(occasion: Occasion, settings: Settings, limit: float) -> list[Check]:
    """Return those that are made on an occasion, in the order of the report."""
    found = [one for one in _all(settings, limit) if isinstance(one, Check) and occasion in one.on]
    return sorted(found, key=lambda one: one.rank)


def servers_checks(settings: Settings, limit: float) -> list[ServersCheck]:
    """Return those that ask each server."""
    return [one for one in _all(settings, limit) if isinstance(one, ServersCheck)]


def _all(settings: Settings, limit: float) -> Iterator[Check | ServersCheck]:
    for one in cast("tuple[GivesChecks, ...]", given("checks")):
        yield from one.checks(settings, limit)

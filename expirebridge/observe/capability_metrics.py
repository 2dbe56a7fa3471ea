"""What capabilities add to the metrics, each in its module `metrics`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from expirebridge.bridge import Operations
from expirebridge.capabilities import given
from expirebridge.hooks import Event
from expirebridge.settings import Settings
from expirebridge.task.calls.call import Steps
from expirebridge.task.listings import Counts

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """What a scrape knows before it asks for the numbers of capabilities."""

    operations: Operations
    counts: Counts
    series: Sequence[str]
    """The ids of the series that become labels."""


class EventMetrics(Protocol):
    """Metrics that count what happens here."""

    def count(self, event: Event) -> None:
        """Count an event, if it is one of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityMetrics:
    """A capability's part of the metrics."""

    order: int = 0
    """Where what it measures is in a scrape, the lowest first."""
    measure: Callable[[Scrape], Steps[Sequence[Metric]]] | None = None
    """Asks the server at each scrape."""
    events: Callable[[CollectorRegistry], EventMetrics] | None = None
    """Registers metrics that begin at zero."""
    collector: Callable[[Settings], Collector | None] | None = None
    """Returns what asks something else than the server at each scrape; None if there is nothing."""
    serve: Callable[[WsgiApp, Settings], WsgiApp] | None = None
    """Adds a path to those that are served."""


class GivesMetrics(Protocol):
    """A module with a part of the metrics."""

    METRICS: CapabilityMetrics


def capability_metrics() -> list[CapabilityMetrics]:
    """Return the parts of all capabilities that have one."""
    return [module.METRICS for module in cast("tuple[GivesMetrics, ...]", given("metrics"))]

"""The numbers of the ledger's relay, and of its database if there is one, for Prometheus.

This imports without the extra `sql`; to read the database needs it.
"""

from functools import partial

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.registry import Collector

from expirebridge.hooks import Direction, Event, Passed
from expirebridge.observe.capability_metrics import CapabilityMetrics
from expirebridge.settings import Settings


class RelayMetrics:
    """The metrics of the ledger's relay, which begin at zero."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self._made = counter(
            "expirebridge_ledger_passes", "Passes of the ledger's relay, by direction.",
            ["direction"],
        )  # fmt: skip
        self._carried = counter(
            "expirebridge_ledger_carried_rows", "Rows that passes carried, by direction.",
            ["direction"],
        )  # fmt: skip
        self._rebuilt = counter(
            "expirebridge_ledger_rebuilt_rows",
            "Rows that were carried again, since the server had lost them.",
        )
        self._refused = counter("expirebridge_ledger_refused_rows", "Rows that cannot be tasks.")
        for direction in Direction:
            self._made.labels(direction)
            self._carried.labels(direction)

    def count(self, event: Event) -> None:
        """Count an event, if it is one of these."""
        match event:
            case Passed():
                self._made.labels(event.direction).inc()
                self._carried.labels(event.direction).inc(event.rows)
                self._rebuilt.inc(event.rebuilt)
                self._refused.inc(event.refused)


def _collector(settings: Settings) -> Collector | None:
    if settings.ledger is None:
        return None
    # Here, so that SQLAlchemy is imported only where there is a ledger.
    from expirebridge.ledger.sql_metrics import OfTheLedger  # noqa: PLC0415

    return OfTheLedger(settings)


METRICS = CapabilityMetrics(events=RelayMetrics, collector=_collector)

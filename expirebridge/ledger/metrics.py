"""The numbers of the ledger's relay, and of its database if there is one, for Prometheus.

This imports without the extra `sql`; to read the database needs it.
"""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from expirebridge.connection import clients
from expirebridge.errors import LedgerError, ServerError
from expirebridge.hooks import Direction, Event, Passed
from expirebridge.ledger.calls import read_ledgers
from expirebridge.observe.capability_metrics import CapabilityMetrics
from expirebridge.settings import Settings
from expirebridge.store.partitions import Partitions

if TYPE_CHECKING:
    from expirebridge.ledger.figures import LedgerFigures


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


class OfTheLedger(Collector):
    """Reads them at each scrape; a database that hangs is waited for 5 s."""

    def __init__(self, settings: Settings) -> None:
        from expirebridge.ledger.inspection import LedgerInspector  # noqa: PLC0415 - SQLAlchemy

        self._settings = settings
        self._inspector = LedgerInspector(settings)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metrics of this scrape."""
        up = "Whether the ledger's database and the server answered this scrape."
        try:
            figures = self._ask()
        except (LedgerError, ServerError):
            yield GaugeMetricFamily("expirebridge_ledger_up", up, value=0)
            return
        yield GaugeMetricFamily("expirebridge_ledger_up", up, value=1)
        yield from _of(figures)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing: to ask here would make a listener unable to start without its database."""
        return iter(())

    def _ask(self) -> "LedgerFigures":
        url, prefix = self._settings.url, self._settings.prefix
        with closing(Partitions(clients.probe_client(url, prefix), prefix=prefix)) as store:
            checkpoints = store.run(read_ledgers())
        return self._inspector.figures(checkpoints)


def _of(figures: "LedgerFigures") -> Iterator[GaugeMetricFamily]:
    rows = GaugeMetricFamily(
        "expirebridge_ledger_rows",
        "Rows that are to be carried: new or changed ones, those that Redis has lost, and those "
        "whose ids other tasks have.",
        labels=["todo"],
    )
    rows.add_metric(["relay"], figures.to_relay)
    rows.add_metric(["rebuild"], figures.to_rebuild)
    rows.add_metric(["taken"], figures.for_ids.count)
    yield rows
    for name, about, value in (
        (
            "expirebridge_ledger_oldest_row_seconds",
            "How long the oldest new row has waited to be carried.",
            figures.oldest,
        ),
        (
            "expirebridge_ledger_kept_back_rows",
            "Rows that are due later than the horizon, and stay in SQL until then.",
            figures.kept_back.count,
        ),
        (
            "expirebridge_ledger_dirty_tasks",
            "Tasks of which something is not written back yet.",
            figures.write_back.dirty,
        ),
        (
            "expirebridge_ledger_oldest_dirty_seconds",
            "How long the first of them has waited.",
            figures.write_back.oldest or 0.0,
        ),
        (
            "expirebridge_ledger_recently_refused_rows",
            "Rows that were refused within the last day.",
            figures.refused,
        ),
    ):
        yield GaugeMetricFamily(name, about, value=value)


def _collector(settings: Settings) -> Collector | None:
    return None if settings.ledger is None else OfTheLedger(settings)


METRICS = CapabilityMetrics(events=RelayMetrics, collector=_collector)

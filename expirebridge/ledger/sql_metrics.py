"""Reads the numbers of a ledger from its database and the server, for Prometheus."""

from collections.abc import Iterator
from contextlib import closing

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from expirebridge.connection import clients
from expirebridge.errors import LedgerError, ServerError
from expirebridge.ledger.calls import read_ledgers
from expirebridge.ledger.inspection import LedgerFigures, LedgerInspector
from expirebridge.settings import Settings
from expirebridge.store.partitions import Partitions


class OfTheLedger(Collector):
    """Reads them at each scrape; a database that hangs is waited for 5 s."""

    def __init__(self, settings: Settings) -> None:
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

    def _ask(self) -> LedgerFigures:
        url, prefix = self._settings.url, self._settings.prefix
        with closing(Partitions(clients.probe_client(url, prefix), prefix=prefix)) as store:
            checkpoints = store.run(read_ledgers())
        return self._inspector.figures(checkpoints)


def _of(figures: LedgerFigures) -> Iterator[GaugeMetricFamily]:
    rows = GaugeMetricFamily(
        "expirebridge_ledger_rows",
        "Rows that are to be carried: new or changed ones, and those that Redis has lost.",
        labels=["todo"],
    )
    rows.add_metric(["relay"], figures.to_relay)
    rows.add_metric(["rebuild"], figures.to_rebuild)
    yield rows
    for name, about, value in (
        (
            "expirebridge_ledger_oldest_row_seconds",
            "How long the oldest new row has waited to be carried.",
            figures.oldest,
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

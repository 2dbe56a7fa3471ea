"""The numbers of series, for Prometheus."""

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily

from expirebridge.observe.capability_metrics import CapabilityMetrics, Scrape
from expirebridge.series.values import Series
from expirebridge.task.calls.call import Steps


def _measure(scrape: Scrape) -> Steps[list[GaugeMetricFamily]]:
    first = (yield from scrape.operations.list_series(limit=1)).series
    if not first:
        return []
    found = []
    for id in scrape.series:
        one = yield from scrape.operations.get_series(id)
        if one is not None:
            found.append(one)
    return _of_series(found, first[0])


def _of_series(series: Iterable[Series], first: Series) -> list[GaugeMetricFamily]:
    """The numbers of these series, and how late the first of all series is with its next tick."""
    behind = GaugeMetricFamily(
        "expirebridge_series_behind_seconds",
        "How long ago the first tick should have been made that is not there.",
        value=first.behind.total_seconds(),
    )
    succeeded = GaugeMetricFamily(
        "expirebridge_series_last_success_timestamp_seconds",
        "When a tick of the series last succeeded, in any listener.",
        labels=["series"],
    )
    due = GaugeMetricFamily(
        "expirebridge_series_next_due_timestamp_seconds",
        "When the waiting tick of the series is due.",
        labels=["series"],
    )
    for one in series:
        if one.succeeded is not None:
            succeeded.add_metric([one.id], one.succeeded.timestamp())
        if one.due is not None:
            due.add_metric([one.id], one.due.timestamp())
    return [behind, succeeded, due]


METRICS = CapabilityMetrics(order=60, measure=_measure)

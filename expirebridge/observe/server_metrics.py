"""The numbers of a database that only its server knows, for Prometheus."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from operator import itemgetter

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from expirebridge.bridge import Operations
from expirebridge.connection import clients
from expirebridge.errors import ServerError
from expirebridge.hooks import Hooks
from expirebridge.observe.capability_metrics import Scrape, capability_metrics
from expirebridge.settings import Settings
from expirebridge.store.partitions import Partitions
from expirebridge.task.calls import inspection
from expirebridge.task.calls.inspection import Health
from expirebridge.task.listings import Counts
from expirebridge.task.task import State

OWN_ORDER, PARTITIONS_ORDER = 10, 50
"""Where what is measured here is, among what capabilities measure."""


class OfTheServer(Collector):
    """Reads them at each scrape."""

    def __init__(self, settings: Settings, series: Sequence[str]) -> None:
        self._settings = settings
        self._series = series

    def collect(self) -> Iterator[Metric]:
        """The metrics of this scrape."""
        answers = GaugeMetricFamily(
            "expirebridge_server_up", "Whether the server answered this scrape."
        )
        try:
            found = list(self._ask())
        except ServerError:
            answers.add_metric([], 0)
            yield answers
            return
        answers.add_metric([], 1)
        yield answers
        yield from found

    def describe(self) -> Iterator[Metric]:
        """Nothing: to ask here would make a listener unable to start without its server."""
        return iter(())

    def _ask(self) -> Iterator[Metric]:
        settings = self._settings
        with closing(
            Partitions(clients.probe_client(settings.url, settings.prefix), prefix=settings.prefix)
        ) as store:
            operations = Operations(settings, Hooks())
            counts = store.run(operations.count())
            several = store.layout.count > 1
            each = store.run(operations.list_partitions()) if several else []
            health = store.run(inspection.read_health(settings.lease))
            primary = clients.server_of(store.client)
            scrape = Scrape(operations=operations, counts=counts, series=self._series)
            found: list[tuple[int, Sequence[Metric]]] = [
                (one.order, store.run(one.measure(scrape)))
                for one in capability_metrics()
                if one.measure is not None
            ]
        own = [_of_states(counts), _of_primary(primary), *_of_work(health)]
        found.append((OWN_ORDER, own))
        if several:
            found.append((PARTITIONS_ORDER, [*_of_partitions(each)]))
        for _, metrics in sorted(found, key=itemgetter(0)):
            yield from metrics


def _of_states(counts: Counts) -> GaugeMetricFamily:
    states = GaugeMetricFamily("expirebridge_tasks", "Tasks by state.", labels=["state"])
    numbers = asdict(counts)
    for state in State:
        states.add_metric([state], numbers[state])
    return states


def _of_primary(address: str) -> GaugeMetricFamily:
    named = GaugeMetricFamily(
        "expirebridge_primary", "Always 1; the server is in the label.", labels=["address"]
    )
    named.add_metric([address], 1)
    return named


def _of_work(health: Health) -> Iterator[GaugeMetricFamily]:
    """How well listeners keep up."""
    yield GaugeMetricFamily(
        "expirebridge_overdue_tasks",
        "Pending tasks whose due time has passed.",
        value=health.overdue,
    )
    yield GaugeMetricFamily(
        "expirebridge_oldest_overdue_seconds",
        "How long the first overdue task has waited.",
        value=health.waited,
    )
    yield GaugeMetricFamily(
        "expirebridge_waiting_tasks",
        "Tasks that are due and wait for a slot, for a start of a rate, or for the end of a hold.",
        value=health.waiting,
    )
    yield GaugeMetricFamily(
        "expirebridge_oldest_waiting_seconds",
        "How long ago the first waiting task was due.",
        value=health.oldest_waiting,
    )
    yield GaugeMetricFamily(
        "expirebridge_listeners", "Listeners that send heartbeats.", value=len(health.listeners)
    )


def _of_partitions(partitions: Sequence[Counts]) -> Iterator[GaugeMetricFamily]:
    """What waits in each partition, and whether it can be asked."""
    overdue = GaugeMetricFamily(
        "expirebridge_partition_overdue_tasks",
        "Pending tasks of the partition whose due time has passed.",
        labels=["partition"],
    )
    served = GaugeMetricFamily(
        "expirebridge_partition_served",
        "1 if the partition answers; 0 for the reason why it does not.",
        labels=["partition", "why"],
    )
    for number, counts in enumerate(partitions):
        if counts.left_out:
            served.add_metric([str(number), counts.left_out[0].why], 0)
        else:
            served.add_metric([str(number), ""], 1)
            overdue.add_metric([str(number)], counts.overdue)
    yield overdue
    yield served

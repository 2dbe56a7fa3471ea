"""The numbers of a database that only its server knows, for Prometheus."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from expirebridge.bridge import Operations
from expirebridge.connection import clients
from expirebridge.errors import ServerError
from expirebridge.groups.calls import find_unended
from expirebridge.groups.values import Group
from expirebridge.hooks import Hooks
from expirebridge.limits.calls import read_limits
from expirebridge.limits.lanes import Lane, limit_name_of
from expirebridge.series.values import Series
from expirebridge.settings import Settings
from expirebridge.store.partitions import Partitions
from expirebridge.task.answers import Counts, Moving
from expirebridge.task.calls import inspection
from expirebridge.task.calls.inspection import Health
from expirebridge.task.task import State

MOST_LANES = 10
"""Lanes that become labels, those with most tasks: there may be one for each customer."""


MEASURED_GROUPS = 1000
"""Groups that a scrape reads at most, which takes the server some milliseconds."""


class OfTheServer(Collector):
    """Reads them at each scrape."""

    def __init__(self, settings: Settings, series: Sequence[str]) -> None:
        self._settings = settings
        self._series = series

    def collect(self) -> Iterator[GaugeMetricFamily]:
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

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing: to ask here would make a listener unable to start without its server."""
        return iter(())

    def _ask(self) -> Iterator[GaugeMetricFamily]:
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
            first = store.run(operations.list_series(limit=1)).series
            held = sum(hold.waiting for hold in store.run(operations.holds()))
            series = [store.run(operations.get_series(id)) for id in self._series]
            lanes = store.run(read_limits(MOST_LANES)).lanes
            groups = store.run(find_unended(MEASURED_GROUPS))
        yield _of_states(counts)
        yield _of_primary(primary)
        yield from _of_work(health)
        yield _of_holds(held)
        yield from _of_groups(groups)
        if counts.moving is not None and counts.moving.leaves:
            yield from _of_move(counts.moving)
        if lanes:
            yield from _of_lanes(lanes)
        if several:
            yield from _of_partitions(each)
        if first:
            yield from _of_series([one for one in series if one is not None], first[0])


def _of_states(counts: Counts) -> GaugeMetricFamily:
    states = GaugeMetricFamily("expirebridge_tasks", "Tasks by state.", labels=["state"])
    numbers = asdict(counts)
    for state in State:
        states.add_metric([state], numbers[state])
    return states


def _of_move(moving: Moving) -> Iterator[GaugeMetricFamily]:
    """How far the move is by which tasks leave this database."""
    yield GaugeMetricFamily(
        "expirebridge_move_on_their_way",
        "Tasks and series that nobody can run until the move goes on.",
        value=moving.on_their_way,
    )
    if moving.idle is not None:
        yield GaugeMetricFamily(
            "expirebridge_move_idle_seconds",
            "How long nobody has carried the move on.",
            value=moving.idle,
        )


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


def _of_lanes(lanes: Iterable[Lane]) -> Iterator[GaugeMetricFamily]:
    """The fullest lanes."""
    held = GaugeMetricFamily(
        "expirebridge_lane_held_slots",
        "Tasks that have a slot in one of the fullest lanes.",
        labels=["limit", "lane"],
    )
    waiting = GaugeMetricFamily(
        "expirebridge_lane_waiting_tasks",
        "Tasks that wait in one of the fullest lanes.",
        labels=["limit", "lane"],
    )
    for lane in lanes:
        labels = [limit_name_of(lane.name), lane.name]
        held.add_metric(labels, lane.held)
        waiting.add_metric(labels, lane.waiting)
    yield held
    yield waiting


def _of_holds(held: int) -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "expirebridge_held_tasks", "Due tasks that wait for the end of a hold.", value=held
    )


def _of_groups(unended: Sequence[Group]) -> Iterator[GaugeMetricFamily]:
    yield GaugeMetricFamily(
        "expirebridge_groups", "Groups that have not ended.", value=len(unended)
    )
    yield GaugeMetricFamily(
        "expirebridge_group_members_left",
        "Members of these groups that have not ended.",
        value=sum(group.left for group in unended),
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


def _of_series(series: Iterable[Series], first: Series) -> Iterator[GaugeMetricFamily]:
    """The numbers of these series, and how late the first of all series is with its next tick."""
    yield GaugeMetricFamily(
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
    yield succeeded
    yield due

"""The numbers of lanes and holds, for Prometheus."""

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily

from expirebridge.limits.calls import read_limits
from expirebridge.limits.hold_calls import list_holds
from expirebridge.limits.lanes import Lane
from expirebridge.observe.capability_metrics import CapabilityMetrics, Scrape
from expirebridge.task.calls.call import Steps
from expirebridge.task.queue_place import limit_name_of

MOST_LANES = 10
"""Lanes that become labels, those with most tasks: there may be one for each customer."""


def _measure(_: Scrape) -> Steps[list[GaugeMetricFamily]]:
    waiting = sum(hold.waiting for hold in (yield from list_holds()))
    lanes = (yield from read_limits(MOST_LANES)).lanes
    held = GaugeMetricFamily(
        "expirebridge_held_tasks", "Due tasks that wait for the end of a hold.", value=waiting
    )
    return [held, *(_of_lanes(lanes) if lanes else [])]


def _of_lanes(lanes: Iterable[Lane]) -> list[GaugeMetricFamily]:
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
    return [held, waiting]


METRICS = CapabilityMetrics(order=40, measure=_measure)

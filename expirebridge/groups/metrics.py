"""The numbers of groups, for Prometheus."""

from prometheus_client.core import GaugeMetricFamily

from expirebridge.groups.calls import find_unended
from expirebridge.observe.capability_metrics import CapabilityMetrics, Scrape
from expirebridge.task.calls.call import Steps

MEASURED_GROUPS = 1000
"""Groups that a scrape reads at most, which takes the server some milliseconds."""


def _measure(_: Scrape) -> Steps[list[GaugeMetricFamily]]:
    unended = yield from find_unended(MEASURED_GROUPS)
    return [
        GaugeMetricFamily("expirebridge_groups", "Groups that have not ended.", value=len(unended)),
        GaugeMetricFamily(
            "expirebridge_group_members_left",
            "Members of these groups that have not ended.",
            value=sum(group.left for group in unended),
        ),
    ]


METRICS = CapabilityMetrics(order=20, measure=_measure)

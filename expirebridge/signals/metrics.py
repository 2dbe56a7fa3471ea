"""How tasks were decided that waited for a signal, for Prometheus."""

from collections.abc import Sequence

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily

from expirebridge.observe.capability_metrics import CapabilityMetrics, Scrape
from expirebridge.signals.calls import read_decisions
from expirebridge.task.calls.call import Steps


def _measure(_: Scrape) -> Steps[Sequence[Metric]]:
    found = yield from read_decisions()
    if found is None:
        return []
    return [
        CounterMetricFamily(
            "expirebridge_signalled", "Tasks that a signal has decided.", value=found.signalled
        ),
        CounterMetricFamily(
            "expirebridge_deadlines_passed",
            "Tasks that waited for a signal, and were claimed before one came.",
            value=found.passed,
        ),
    ]


METRICS = CapabilityMetrics(order=65, measure=_measure)

"""How far the move is by which tasks leave this database, for Prometheus."""

from prometheus_client.core import GaugeMetricFamily

from expirebridge.observe.capability_metrics import CapabilityMetrics, Scrape
from expirebridge.task.calls.call import Steps


def _measure(scrape: Scrape) -> Steps[list[GaugeMetricFamily]]:
    yield from ()  # the counts have it
    moving = scrape.counts.moving
    if moving is None or not moving.leaves:
        return []
    measured = [
        GaugeMetricFamily(
            "expirebridge_move_on_their_way",
            "Tasks and series that nobody can run until the move goes on.",
            value=moving.on_their_way,
        )
    ]
    if moving.idle is not None:
        measured.append(
            GaugeMetricFamily(
                "expirebridge_move_idle_seconds",
                "How long nobody has carried the move on.",
                value=moving.idle,
            )
        )
    return measured


METRICS = CapabilityMetrics(order=30, measure=_measure)

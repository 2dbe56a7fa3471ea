"""Counts what happens in a listener, or a producer, for Prometheus.

A function that is not in the registry is counted as "other": whoever can write to Redis can write
any name, and each label value costs memory here and in Prometheus for as long as both live.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from expirebridge.errors import InvalidSetting, ServerError
from expirebridge.hooks import (
    Claimed,
    End,
    Ended,
    Event,
    Gap,
    Hooks,
    Lapsed,
    Made,
    Rung,
    Source,
    Started,
)
from expirebridge.operations import Operations
from expirebridge.settings import Settings
from expirebridge.store import calls, clients
from expirebridge.store.store import Store
from expirebridge.task import Outcome, State

OTHER = "other"
EMPTY, FULL = "empty", "full"
_LATENESS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60, 300, 3600)
_DURATION = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


class Metrics:
    """A hook that counts.

    `functions` are the names that have a label value of their own. `registry` is what the numbers
    are registered with: a new one, unless the caller's own is given.
    """

    def __init__(
        self, functions: Iterable[str] = (), *, registry: CollectorRegistry | None = None
    ) -> None:
        self._known = frozenset(functions)
        self.registry = registry if registry is not None else CollectorRegistry()
        of = self.registry
        self._made = Counter(
            "expirebridge_tasks_made", "Calls of make_task that returned, by what they did.",
            ["function", "outcome"], registry=of,
        )  # fmt: skip
        self._ended = Counter(
            "expirebridge_attempts", "Attempts that ended, and how.",
            ["function", "outcome"], registry=of,
        )  # fmt: skip
        self._lateness = Histogram(
            "expirebridge_lateness_seconds", "From due to the start of the handler.",
            ["function"], buckets=_LATENESS, registry=of,
        )  # fmt: skip
        self._duration = Histogram(
            "expirebridge_handler_duration_seconds", "How long handlers took.",
            ["function"], buckets=_DURATION, registry=of,
        )  # fmt: skip
        self._succeeded = Gauge(
            "expirebridge_last_success_timestamp_seconds", "When the last attempt succeeded here.",
            ["function"], registry=of,
        )  # fmt: skip
        self._claims = Counter(
            "expirebridge_claims", "Looks for due tasks, by whether there were any.",
            ["result"], registry=of,
        )  # fmt: skip
        self._claimed = Counter("expirebridge_claimed_tasks", "Tasks claimed.", registry=of)
        self._doorbells = Counter(
            "expirebridge_doorbells", "Doorbells heard, by what rang.", ["source"], registry=of
        )
        self._gaps = Counter(
            "expirebridge_gaps", "Times in which events may have been missed.", registry=of
        )
        self._lapses = Counter(
            "expirebridge_lapses", "Tasks found whose listener died, or fell silent.", registry=of
        )
        self._begin_at_zero()

    def __call__(self, event: Event) -> None:
        """Count one event."""
        match event:
            case Made(task=task):
                self._made.labels(self._label(task.func), task.outcome).inc()
            case Claimed(count=count):
                self._claims.labels(FULL if count else EMPTY).inc()
                self._claimed.inc(count)
            case Started(task=task, lateness=lateness):
                self._lateness.labels(self._label(task.func)).observe(max(lateness, 0.0))
            case Ended(task=task, end=end, duration=duration):
                self._ended.labels(self._label(task.func), end).inc()
                self._duration.labels(self._label(task.func)).observe(duration)
                if end is End.SUCCEEDED:
                    self._succeeded.labels(self._label(task.func)).set(time.time())
            case Rung(source=source):
                self._doorbells.labels(source).inc()
            case Gap():
                self._gaps.inc()
            case Lapsed():
                self._lapses.inc()

    def watch(self, settings: Settings) -> None:
        """At each scrape ask the server, too, how many tasks stand in each state."""
        self.registry.register(_OfTheServer(settings))

    def serve(self, host: str, port: int) -> str:
        """Serve the numbers by HTTP, from a thread, and return the URL; port 0 is a free one.

        Raises InvalidSetting when it cannot be listened on.
        """
        try:
            server, _ = start_http_server(port, host, self.registry)
        except OSError as error:
            raise InvalidSetting(f"metrics on {host}:{port}: {error}") from None
        return f"http://{host}:{server.server_port}/metrics"

    def _label(self, function: str) -> str:
        return function if function in self._known else OTHER

    def _begin_at_zero(self) -> None:
        """A counter that appears with its first event hides that event from `increase`."""
        for function in (*self._known, OTHER):
            for end in End:
                self._ended.labels(function, end)
            self._made.labels(function, Outcome.CREATED)
        for source in Source:
            self._doorbells.labels(source)
        for result in (EMPTY, FULL):
            self._claims.labels(result)


class _OfTheServer(Collector):
    """What only the server knows, asked for at each scrape."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def collect(self) -> Iterator[GaugeMetricFamily]:
        answers = GaugeMetricFamily(
            "expirebridge_server_up", "Whether the server answered just now."
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
        # Asking the server, to be registered, would make it a condition for starting.
        return iter(())

    def _ask(self) -> Iterator[GaugeMetricFamily]:
        settings = self._settings
        with closing(Store(clients.probe_client(settings.url), prefix=settings.prefix)) as store:
            counts = store.run(Operations(settings, Hooks()).count())
            health = store.run(calls.read_health(settings.lease))
        states = GaugeMetricFamily("expirebridge_tasks", "Tasks by state.", labels=["state"])
        numbers = asdict(counts)
        for state in State:
            states.add_metric([state], numbers[state])
        yield states
        for name, about, value in (
            ("expirebridge_overdue_tasks", "Pending tasks whose time has passed.", health.overdue),
            (
                "expirebridge_oldest_overdue_seconds",
                "How long the first has waited.",
                health.waited,
            ),
            ("expirebridge_listeners", "Listeners that beat.", len(health.listeners)),
        ):
            yield GaugeMetricFamily(name, about, value=value)

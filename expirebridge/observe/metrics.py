"""Counts what happens in a listener or a producer, for Prometheus.

A function that is not in the registry counts as "other". Anyone who can write to Redis can write
any name, and each label value costs memory here and in Prometheus until both are restarted.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, make_wsgi_app
from prometheus_client.registry import Collector

from expirebridge.errors import InvalidSetting
from expirebridge.hooks import (
    Claimed,
    End,
    Ended,
    Event,
    FailedOver,
    Gap,
    Lapsed,
    Made,
    Misfired,
    Misplaced,
    ProcessEnd,
    ProcessEnded,
    ProcessStarted,
    Rung,
    Source,
    Started,
)
from expirebridge.observe.capability_metrics import EventMetrics, WsgiApp, capability_metrics
from expirebridge.observe.metrics_server import MetricsServer
from expirebridge.observe.server_metrics import OfTheServer
from expirebridge.settings import Settings
from expirebridge.task.lateness import LateCause
from expirebridge.task.task import Outcome

OTHER = "other"
EMPTY, FULL = "empty", "full"
WITHIN, OVER = "within", "over"
_LATENESS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60, 300, 3600)
_DURATION = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


class Metrics:
    """A hook that counts.

    `functions` are the names that get a label value of their own, and so are the ids in `series`:
    those that handlers declare, of which there are only so many. `objectives` are the seconds that
    tasks of functions may begin late. The metrics are registered with `registry`, or with a new
    registry if none is given.
    """

    def __init__(
        self,
        functions: Iterable[str] = (),
        *,
        series: Iterable[str] = (),
        objectives: Mapping[str, float] = MappingProxyType({}),
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._series = tuple(series)
        self.registry = registry if registry is not None else CollectorRegistry()
        own = CollectorRegistry()
        self._parts: tuple[EventMetrics, ...] = (
            _TaskMetrics(own, frozenset(functions)), _ListenerMetrics(own),
            *(one.events(own) for one in capability_metrics() if one.events is not None),
            _ObjectiveMetrics(own, objectives),
        )  # fmt: skip
        self.registry.register(_WithoutCreated(own))

    def __call__(self, event: Event) -> None:
        """Count one event."""
        for part in self._parts:
            part.count(event)

    def watch(self, settings: Settings) -> None:
        """At each scrape, also ask the server how many tasks are in each state."""
        self.registry.register(OfTheServer(settings, self._series))
        for one in capability_metrics():
            if one.collector is not None and (collector := one.collector(settings)) is not None:
                self.registry.register(collector)

    def serve(self, host: str, port: int, settings: Settings | None = None) -> str:
        """Serve the metrics by HTTP, from a thread, and return the URL. Port 0 is any free port.

        With `settings`, `/scale` says how many listeners the next minutes need. Raises
        InvalidSetting if the address cannot be used.
        """
        app: WsgiApp = make_wsgi_app(self.registry)
        if settings is not None:
            for one in capability_metrics():
                if one.serve is not None:
                    app = one.serve(app, settings)
        try:
            server = MetricsServer(app, host, port)
        except OSError as error:
            raise InvalidSetting(f"metrics on {host}:{port}: {error}") from None
        server.start()
        return f"http://{host}:{server.server_port}/metrics"


class _WithoutCreated(Collector):
    """The metrics of a registry without their `_created` series, which double what is stored.

    prometheus-client can only leave them out for a whole process, and so also for metrics that are
    not ours.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics without the samples of creation times."""
        for metric in self._registry.collect():
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            yield metric

    describe = collect


class _TaskMetrics:
    """The metrics of tasks and their attempts, by function.

    All counters begin at zero: one that appears with its first event hides it from `increase`.
    """

    def __init__(self, registry: CollectorRegistry, functions: frozenset[str]) -> None:
        self._known = functions
        counter, histogram = (
            partial(Counter, registry=registry),
            partial(Histogram, registry=registry),
        )
        self._made = counter(
            "expirebridge_tasks_made", "Calls of make_task that returned, by outcome.",
            ["function", "outcome"],
        )  # fmt: skip
        self._ended = counter(
            "expirebridge_attempts", "Attempts that ended, by outcome.", ["function", "outcome"]
        )
        self._lateness = histogram(
            "expirebridge_lateness_seconds", "Time from the due time to the start of the handler.",
            ["function"], buckets=_LATENESS,
        )  # fmt: skip
        self._duration = histogram(
            "expirebridge_handler_duration_seconds", "How long handlers took.",
            ["function"], buckets=_DURATION,
        )  # fmt: skip
        self._succeeded = Gauge(
            "expirebridge_last_success_timestamp_seconds", "When the last attempt succeeded here.",
            ["function"], registry=registry,
        )  # fmt: skip
        for function in (*functions, OTHER):
            for end in End:
                self._ended.labels(function, end)
            self._made.labels(function, Outcome.CREATED)

    def count(self, event: Event) -> None:
        """Count an event, if it is one of these."""
        match event:
            case Made(task=task):
                self._made.labels(self._label(task.func), task.outcome).inc()
            case Started(task=task, lateness=lateness):
                self._lateness.labels(self._label(task.func)).observe(max(lateness, 0.0))
            case Ended(task=task, end=end, duration=duration):
                function = self._label(task.func)
                self._ended.labels(function, end).inc()
                self._duration.labels(function).observe(duration)
                if end is End.SUCCEEDED:
                    self._succeeded.labels(function).set(time.time())

    def _label(self, function: str) -> str:
        return function if function in self._known else OTHER


class _ListenerMetrics:
    """The metrics of a listener: claims, doorbells, its server, and its processes.

    All counters begin at zero, as those of tasks do.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self._claims = counter(
            "expirebridge_claims", "Claims, by whether there were due tasks.", ["result"]
        )
        self._claimed = counter("expirebridge_claimed_tasks", "Tasks claimed.")
        self._doorbells = counter(
            "expirebridge_doorbells", "Doorbells heard, by source.", ["source"]
        )
        self._gaps = counter("expirebridge_gaps", "Gaps in which events may have been missed.")
        self._failovers = counter(
            "expirebridge_failovers", "Changes to another primary, as the sentinels named it."
        )
        self._misplaced = counter(
            "expirebridge_misplaced_keys",
            "Tasks of other clients that are not run: the tag of their key is wrong.",
        )
        self._lapses = counter(
            "expirebridge_lapses", "Tasks that lapsed: their listener died, or fell silent."
        )
        self._late_seconds = counter(
            "expirebridge_late_seconds",
            "Seconds from the due time to the start of tasks that began late, by cause.",
            ["cause"],
        )
        self._late_tasks = counter(
            "expirebridge_late_tasks", "Tasks that began late, by cause.", ["cause"]
        )
        self._processes = Gauge(
            "expirebridge_processes", "Processes for handlers with process=True.",
            registry=registry,
        )  # fmt: skip
        self._process_ends = counter(
            "expirebridge_process_ends", "Processes for handlers that ended, by reason.", ["reason"]
        )
        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        for result in (EMPTY, FULL):
            self._claims.labels(result)
        for source in Source:
            self._doorbells.labels(source)
        for cause in LateCause:
            self._late_seconds.labels(cause)
            self._late_tasks.labels(cause)
        for reason in ProcessEnd:
            self._process_ends.labels(reason)

    def count(self, event: Event) -> None:
        """Count an event, if it is one of these."""
        match event:
            case Claimed(count=count):
                self._claims.labels(FULL if count else EMPTY).inc()
                self._claimed.inc(count)
            case Started(cause=cause) | Misfired(cause=cause) if cause is not None:
                self._late_seconds.labels(cause).inc(event.lateness + event.task.waited)
                self._late_tasks.labels(cause).inc()
            case Rung(source=source):
                self._doorbells.labels(source).inc()
            case Gap():
                self._gaps.inc()
            case FailedOver():
                self._failovers.inc()
            case Misplaced():
                self._misplaced.inc()
            case Lapsed():
                self._lapses.inc()
            case ProcessStarted():
                self._processes.inc()
            case ProcessEnded(end=reason):
                self._processes.dec()
                self._process_ends.labels(reason).inc()


class _ObjectiveMetrics:
    """The metrics of the functions that have an objective, which begin at zero."""

    def __init__(self, registry: CollectorRegistry, objectives: Mapping[str, float]) -> None:
        self._objectives = objectives
        seconds = Gauge(
            "expirebridge_objective_seconds", "How late tasks of the function may begin.",
            ["function"], registry=registry,
        )  # fmt: skip
        self._starts = Counter(
            "expirebridge_objective_starts",
            "Attempts by whether they began within the objective of their function, or over it.",
            ["function", "result"],
            registry=registry,
        )
        for function, most in objectives.items():
            seconds.labels(function).set(most)
            for result in (WITHIN, OVER):
                self._starts.labels(function, result)

    def count(self, event: Event) -> None:
        """Count an event, if it is one of these."""
        match event:
            case Started(task=task, lateness=late) | Misfired(task=task, lateness=late) if (
                most := self._objectives.get(task.func)
            ) is not None:
                self._starts.labels(task.func, WITHIN if late <= most else OVER).inc()

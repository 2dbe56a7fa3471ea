"""Traces with OpenTelemetry: a span where a task is made, and one for each attempt to run it.

An attempt begins a trace of its own, with a link to the span that made its task: days may lie
between the two, and there may be many attempts. Names follow the conventions for messaging. Spans
hold no arguments and no texts of exceptions: they may be secrets.
"""

from opentelemetry import context, trace
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from expirebridge.hooks import End, Ended, Event, Made, Making, NotMade, Started

_HEADER = "traceparent"
_W3C = TraceContextTextMapPropagator()


class Tracing:
    """A hook that makes spans, for bridges and for listeners.

    Without a `provider` it uses the global one.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer: Tracer = trace.get_tracer("expirebridge", tracer_provider=provider)
        self._making: dict[str, Span] = {}
        self._running: dict[tuple[str, int], tuple[Span, int]] = {}

    def __call__(self, event: Event) -> None:
        """Begin or end a span."""
        match event:
            case Making():
                self._begin_making(event)
            case Made(task=task):
                self._end_making(task.id, str(task.outcome), None)
            case NotMade(id=id, error=error):
                self._end_making(id, "", type(error).__qualname__)
            case Started():
                self._begin_run(event)
            case Ended():
                self._end_run(event)

    def _begin_making(self, making: Making) -> None:
        span = self._tracer.start_span(
            f"make {making.func}",
            kind=SpanKind.PRODUCER,
            attributes=_attributes("make", "send", making.func, making.id),
        )
        carrier: dict[str, str] = {}
        _W3C.inject(carrier, trace.set_span_in_context(span))
        making.trace = carrier.get(_HEADER)
        self._making[making.id] = span

    def _end_making(self, id: str, outcome: str, error: str | None) -> None:
        span = self._making.pop(id, None)
        if span is None:
            return
        if error is None:
            span.set_attribute("expirebridge.outcome", outcome)
        else:
            _fail(span, error)
        span.end()

    def _begin_run(self, started: Started) -> None:
        task = started.task
        origin = _W3C.extract({_HEADER: task.trace or ""}, context.Context())
        made = trace.get_current_span(origin).get_span_context()
        span = self._tracer.start_span(
            f"run {task.func}",
            context=context.Context(),  # a trace of its own
            kind=SpanKind.CONSUMER,
            links=[Link(made)] if made.is_valid else [],
            attributes=_attributes("run", "process", task.func, task.id)
            | {"expirebridge.attempt": task.attempt, "expirebridge.lateness": started.lateness},
        )
        began = getattr(span, "start_time", None) or 0
        self._running[task.id, task.attempt] = (span, began)
        # Each attempt has its own asyncio task, and so its own context: nothing must be detached.
        context.attach(trace.set_span_in_context(span, context.get_current()))

    def _end_run(self, ended: Ended) -> None:
        span, began = self._running.pop((ended.task.id, ended.task.attempt), (None, 0))
        if span is None:
            return
        span.set_attribute("expirebridge.outcome", ended.end)
        if ended.end in {End.RETRY, End.FAILED}:
            _fail(span, type(ended.error).__qualname__ if ended.error else "_OTHER")
        # The span ends with the handler, before its outcome was recorded.
        span.end(began + round(ended.duration * 1e9) if began else None)


def _attributes(name: str, kind: str, func: str, id: str) -> dict[str, str | int | float]:
    return {
        "messaging.system": "expirebridge",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": func,
        "messaging.message.id": id,
    }


def _fail(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))

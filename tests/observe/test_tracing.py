"""Spans where tasks are made and run, as a backend would receive them."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from expirebridge import AsyncBridge, Bridge, TaskExists
from expirebridge.errors import ServerUnreachable
from expirebridge.hooks import Event
from expirebridge.observe.tracing import Tracing
from expirebridge.settings import Settings
from tests.kit.witness import Witness, listening

ROOT = Path(__file__).parents[2]


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> Iterator[TracerProvider]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider
    provider.shutdown()


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


async def test_an_attempt_is_linked_to_where_its_task_was_made(
    url: str, settings: Settings, exporter: InMemorySpanExporter, provider: TracerProvider
) -> None:
    tracing, tracer = Tracing(provider), provider.get_tracer("test")
    witness = Witness()

    def hook(event: Event) -> None:
        tracing(event)
        witness(event)

    async def works() -> None:
        await asyncio.sleep(0)
        with tracer.start_as_current_span("inside async"):
            pass

    def fails() -> None:
        with tracer.start_as_current_span("inside plain"):
            pass
        raise KeyError("secret")

    async with (
        listening(settings, hook, works=works, fails=fails),
        AsyncBridge(url, hooks=[tracing]) as bridge,
    ):
        with tracer.start_as_current_span("a request"):
            await bridge.make_task("test.works", [], 0, id="a", tags=["t"])
        await witness.until_ended(1)
        await bridge.make_task("test.fails", [], 0, id="b", retry=[0])
        await witness.until_ended(3)
        async with AsyncBridge(url) as untraced:
            await untraced.make_task("test.works", [], 0, id="c")
        await witness.until_ended(4)

    [request] = named(exporter, "a request")
    [made] = named(exporter, "make test.works")
    first, second = named(exporter, "run test.works")
    assert made.kind is SpanKind.PRODUCER
    assert made.parent == request.context
    assert made.attributes == {
        "messaging.system": "expirebridge",
        "messaging.operation.name": "make",
        "messaging.operation.type": "send",
        "messaging.destination.name": "test.works",
        "messaging.message.id": "a",
        "expirebridge.outcome": "created",
    }
    assert first.kind is SpanKind.CONSUMER
    assert first.parent is None
    assert first.context is not None
    assert made.context is not None
    assert first.context.trace_id != made.context.trace_id
    [link] = first.links
    assert (link.context.trace_id, link.context.span_id) == (
        made.context.trace_id, made.context.span_id,
    )  # fmt: skip
    assert first.attributes is not None
    assert first.attributes["messaging.operation.type"] == "process"
    assert first.attributes["expirebridge.outcome"] == "succeeded"
    assert first.status.status_code is StatusCode.UNSET
    [inside] = named(exporter, "inside async")[:1]
    assert inside.parent == first.context
    assert second.links == ()

    attempts = named(exporter, "run test.fails")
    [producer] = named(exporter, "make test.fails")
    assert producer.parent is None
    assert [span.attributes["expirebridge.attempt"] for span in attempts if span.attributes] == [
        1, 2
    ]  # fmt: skip
    for span, within in zip(attempts, named(exporter, "inside plain"), strict=True):
        assert within.parent == span.context
        assert [one.context.span_id for one in span.links] == [producer.context.span_id]
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes is not None
        assert span.attributes["error.type"] == "KeyError"
    assert "secret" not in "".join(span.to_json() for span in exporter.get_finished_spans())


def test_a_call_that_makes_nothing_is_an_error(
    url: str, exporter: InMemorySpanExporter, provider: TracerProvider
) -> None:
    tracing = Tracing(provider)
    with Bridge(url, hooks=[tracing]) as bridge:
        task = bridge.make_task("mail.send", [], "1h", id="a")
        with pytest.raises(TaskExists):
            bridge.make_task("mail.send", [], "1h", id="a")
        kept = bridge.make_tasks(
            [{"func": "mail.send", "delay": 60, "id": id, "if_exists": "keep"} for id in "ab"]
        )
        found = bridge.get("a")
    assert [task.outcome for task in (task, *kept)] == ["created", "kept", "created"]
    with Bridge("redis://127.0.0.1:1/1", hooks=[tracing]) as away, pytest.raises(ServerUnreachable):
        away.make_task("mail.send", [], "1h")
    spans = named(exporter, "make mail.send")
    told = [dict(span.attributes or {}) for span in spans]
    assert [one.get("expirebridge.outcome") or one["error.type"] for one in told] == [
        "created", "TaskExists", "kept", "created", "ServerUnreachable"
    ]  # fmt: skip
    # The task that stands there keeps what it carried.
    assert found is not None
    assert spans[0].context is not None
    assert found.trace is not None
    made = spans[0].context
    assert found.trace.startswith(f"00-{made.trace_id:032x}-{made.span_id:016x}-")


def test_the_example_on_the_page_is_a_hook(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "monitor.md").read_text()
    [example] = re.findall(r"```python\n(# tasks/tracing.py.*?)```", page, re.DOTALL)
    found: dict[str, object] = {}
    exec(compile(example, "tracing.py", "exec"), found)  # noqa: S102 - the page's own
    assert callable(found["trace"])
    assert getattr(found["trace"], "__expirebridge_role__", None) == "hook"

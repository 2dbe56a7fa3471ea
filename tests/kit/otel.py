"""OpenTelemetry's SDK, which `make test` installs into a folder of its own.

Where it is installed, redis-py imports it: in the environment itself, each process that tests start
would take a fifth longer to begin.
"""

import sys
from pathlib import Path

sys.path.append(f"{Path(sys.prefix) / 'otel'}")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)

__all__ = ["InMemorySpanExporter", "ReadableSpan", "SimpleSpanProcessor", "TracerProvider"]

"""What a process loads that only makes tasks: nothing that others need.

And what none loads unasked: the packages of extras.
"""

import importlib.util
import subprocess
import sys

import pytest

from tests.kit.processes import ROOT

# All that a producer loads for its first task. Each takes from 0.1 to 2 ms of its start: what is
# needed later is imported by the first call that uses it.
NEEDED = [
    "bridge", "capabilities", "connection", "connection.clients", "connection.connections",
    "connection.redis_client", "connection.urls", "errors", "fleet", "fleet.operations", "groups",
    "groups.names", "groups.operations", "handlers", "handlers.call", "hooks", "limits",
    "limits.holding", "limits.operations", "series", "series.operations", "settings", "signals",
    "signals.operations", "store",
    "store.assembly",
    "store.batching", "store.client", "store.errors", "store.partition_availability",
    "store.partition_count", "store.partitions", "store.record_values", "store.routing",
    "store.script_loader", "store.tls", "task", "task.argument_writer",
    "task.calls", "task.calls.call", "task.calls.fleet", "task.calls.partitions",
    "task.calls.producing", "task.codec", "task.durations", "task.forks",
    "task.framework", "task.key_ring", "task.keys", "task.keywords", "task.lazy_imports",
    "task.methods", "task.new_task", "task.operations", "task.operations.base",
    "task.operations.changing", "task.operations.editing",
    "task.operations.looking", "task.operations.making", "task.operations.operations",
    "task.partitions", "task.task", "task.texts",
]  # fmt: skip

# Each of these, with all that it brings, takes from 1 to 10 ms.
NOT_NEEDED = [
    "cronsim",
    "cryptography",
    "decimal",
    "difflib",
    "rich",
    "sqlalchemy",
    "typer",
    "zoneinfo",
]

LOADED = "\nimport sys; print(*sys.modules)"
WAITS = "from expirebridge import make_task; make_task('mail.send', [1], '1h')"
AWAITS = """
import asyncio
from expirebridge import AsyncBridge
async def make():
    async with AsyncBridge() as bridge:
        await bridge.make_task('mail.send', [1], '1h', kwargs={'urgent': True}, tags=['order-17'])
asyncio.run(make())
"""
LISTENS = "import expirebridge.listener.listener"
RUNS = """
import asyncio
from expirebridge import AsyncBridge, Listener
async def run():
    async with Listener(), AsyncBridge() as bridge:
        task = await bridge.make_task('mail.send', [1, 'hello'], 0)
        while not (await bridge.get(task.id)).state.finished:
            await asyncio.sleep(0.01)
asyncio.run(run())
"""

OF_EXTRAS = {
    "asgiref", "cryptography", "django", "jinja2", "opentelemetry", "prometheus_client", "pydantic",
    "pytest", "sqlalchemy", "starlette", "uvicorn", "watchfiles",
}  # fmt: skip
"""What only those install who need it."""


def loaded_by(program: str, url: str = "") -> set[str]:
    told = subprocess.run(
        [sys.executable, "-c", program + LOADED], cwd=ROOT,
        env={"EXPIREBRIDGE_URL": url}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(told.stdout.split())


@pytest.fixture(scope="module")
def redis_loads() -> set[str]:
    """What redis-py needs itself, which differs from version to version."""
    return loaded_by("import redis, redis.asyncio")


@pytest.mark.parametrize(
    ("program", "needed"),
    [
        pytest.param(WAITS, NEEDED, id="waits"),
        pytest.param(AWAITS, [*NEEDED, "task.policies"], id="awaits", marks=pytest.mark.rest),
    ],
)
def test_the_first_task_is_made_with_these_modules(
    program: str, needed: list[str], url: str, redis_loads: set[str]
) -> None:
    loaded = loaded_by(program, url) - redis_loads
    assert loaded & set(NOT_NEEDED) == set()
    own = {name.removeprefix("expirebridge.") for name in loaded if "expirebridge." in name}
    assert own == set(needed)


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("import expirebridge", id="import"),
        pytest.param(WAITS, id="make"),
        pytest.param(RUNS, id="run"),
    ],
)
def test_nothing_of_the_extras_is_loaded(program: str, url: str, redis_loads: set[str]) -> None:
    assert (loaded_by(program, url) - redis_loads) & OF_EXTRAS == set()


def test_these_exist() -> None:
    """Otherwise, under a new name, they would be loaded unseen."""
    assert all(importlib.util.find_spec(name) for name in [*NOT_NEEDED, *OF_EXTRAS])


def test_a_listener_loads_at_once_what_it_needs_later() -> None:
    """An import in the middle of its work would hold up its event loop."""
    named = {f"expirebridge.{name}" for name in ("events", "handlers.registry")}
    calls = {
        f"expirebridge.{name}"
        for name in ("task.calls.claiming", "task.calls.reconciling", "task.calls.inspection")
    }
    assert named | calls <= loaded_by(LISTENS)

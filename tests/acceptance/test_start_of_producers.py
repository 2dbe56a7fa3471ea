"""What a process loads that only makes tasks: nothing that others need."""

import importlib.util
import subprocess
import sys

import pytest

# Each of these, with all that it brings, takes from 1 to 10 ms of a producer's start.
NOT_NEEDED = [
    "cronsim",
    "cryptography",
    "decimal",
    "difflib",
    "rich",
    "sqlalchemy",
    "typer",
    "zoneinfo",
    "expirebridge.checks",
    "expirebridge.events",
    "expirebridge.handlers.definition",
    "expirebridge.handlers.registry",
    "expirebridge.handlers.fleet",
    "expirebridge.ledger",
    "expirebridge.listener",
    "expirebridge.producer.clear_values",
    "expirebridge.producer.listing",
    "expirebridge.producer.series_work",
    "expirebridge.model.schedule",
    "expirebridge.series",
    "expirebridge.store.commands.inspection",
    "expirebridge.store.commands.claiming",
    "expirebridge.store.commands.series",
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


def loaded_by(program: str, url: str = "") -> set[str]:
    told = subprocess.run(
        [sys.executable, "-c", program + LOADED],
        env={"EXPIREBRIDGE_URL": url}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(told.stdout.split())


@pytest.fixture(scope="module")
def redis_loads() -> set[str]:
    """What redis-py needs itself, which differs from version to version."""
    return loaded_by("import redis, redis.asyncio")


@pytest.mark.parametrize("program", [WAITS, AWAITS], ids=["waits", "awaits"])
def test_the_first_task_is_made_without_what_others_need(
    program: str, url: str, redis_loads: set[str]
) -> None:
    loaded = loaded_by(program, url)
    assert "expirebridge.producer.making" in loaded
    assert loaded & set(NOT_NEEDED) - redis_loads == set()


def test_these_exist() -> None:
    """Otherwise, under a new name, they would be loaded unseen."""
    assert all(importlib.util.find_spec(name) for name in NOT_NEEDED)


def test_a_listener_loads_at_once_what_it_needs_later() -> None:
    """An import in the middle of its work would hold up its event loop."""
    named = {f"expirebridge.{name}" for name in ("events", "handlers.registry")}
    calls = {
        f"expirebridge.store.commands.{name}" for name in ("claiming", "reconciling", "inspection")
    }
    assert named | calls <= loaded_by(LISTENS)

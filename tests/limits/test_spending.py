"""What handlers tell of their budgets, wherever they run, and what is charged for it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from expirebridge import AsyncBridge, State
from expirebridge.handlers import Registry
from expirebridge.settings import Settings
from tests.kit.modules import forgotten, put
from tests.kit.witness import Witness, listening_with

pytestmark = pytest.mark.servers("oldest")

DAY = 86_400_000_000
"""One of a budget is there again after a day: nothing is while a test runs."""

HANDLERS = """
    from datetime import timedelta
    from expirebridge import Budget, Busy, Rate, Snooze, current_task, handler

    def budget(of, **more):
        return Budget(1000, timedelta(days=1000), of=of, **more)

    def _act(does):
        for amount, of in does.get("spends", []):
            current_task().spend(amount, of=of)
        match does.get("ends"):
            case "raises":
                raise ValueError("no answer")
            case "snoozes":
                raise Snooze("1h")
            case "was not begun":
                raise Snooze("1h", charge=False)
            case "busy":
                raise Busy("1h", name="answers")

    RATES = [budget("tokens", name="tokens"), Rate(1, "1s", name="answers")]

    @handler(rate=RATES, retry=[])
    async def in_loop(does, tokens=5): _act(does)

    @handler(rate=RATES, retry=[])
    def in_thread(does, tokens=5): _act(does)

    @handler(rate=RATES, retry=[], process=True)
    def in_process(does, tokens=5): _act(does)

    @handler(rate=[budget("tokens", name="tokens"), budget("pages", name="pages")], retry=[])
    async def two(does, tokens=5, pages=1): _act(does)

    @handler(retry=[])
    async def none(does): _act(does)
"""
IN_THREAD = ("it spends", "it spends and raises", "it did not begin", "it spends and is busy")


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    return tmp_path / "spending_"


@pytest.fixture
def registry(tmp_path: Path, tasks: Path) -> Iterator[Registry]:
    tasks.mkdir()
    put(tasks, "llm.py", HANDLERS)
    with forgotten(tmp_path):
        yield Registry.load(tasks)


@pytest.fixture
def settings(url: str, tasks: Path) -> Settings:
    return Settings(url=url, tasks=tasks, concurrency=1, processes=1)


def charged(client: redis.Redis, lane: str = "tokens") -> int:
    """What a budget has been charged, in all."""
    seconds, micros = client.time()
    arrival = client.zscore("expirebridge:rates", lane)
    return 0 if arrival is None else round((arrival - seconds * 1_000_000 - micros) / DAY)


async def run(
    registry: Registry, settings: Settings, bridge: AsyncBridge, func: str, **does: Any
) -> str | None:
    """Run one task; returns why it failed, if it did."""
    witness = Witness()
    task = await bridge.make_task(f"llm.{func}", [does], 0)
    async with listening_with(registry, settings, witness):
        await witness.until_ended(1)
    found = await bridge.get(task.id)
    assert found is not None
    return found.error if found.state is State.FAILED else None


# What an attempt of a task that costs 5 does, and what is charged.
CASES: dict[str, tuple[dict[str, Any], int]] = {
    "it spends nothing": ({}, 5),
    "it spends": ({"spends": [[30, None]]}, 35),
    "it spends 0": ({"spends": [[0, None]]}, 5),
    "it names the budget": ({"spends": [[30, "tokens"]]}, 35),
    "it spends and raises": ({"spends": [[30, None]], "ends": "raises"}, 35),
    "it spends and snoozes": ({"spends": [[30, None]], "ends": "snoozes"}, 35),
    "it did not begin": ({"ends": "was not begun"}, 0),
    "it did not begin, but spent": ({"spends": [[30, None]], "ends": "was not begun"}, 30),
    "it is busy": ({"ends": "busy"}, 5),
    "it spends and is busy": ({"spends": [[30, None]], "ends": "busy"}, 35),
    "it spends twice": ({"spends": [[30, None], [30, None]]}, 35),
    "it spends less than nothing": ({"spends": [[-1, None]]}, 5),
    "it spends a text": ({"spends": [["30", None]]}, 5),
    "it spends a part": ({"spends": [[1.5, None]]}, 5),
    "it spends true": ({"spends": [[True, None]]}, 5),
    "it spends more than one may": ({"spends": [[1_000_000_001, None]]}, 5),
    "it names another budget": ({"spends": [[30, "pages"]]}, 5),
}


@pytest.mark.parametrize(
    ("way", "case"),
    [
        *(("in_loop", case) for case in CASES),
        *(("in_process", case) for case in CASES),
        *(("in_thread", case) for case in IN_THREAD),
    ],
)
async def test_what_an_attempt_tells_is_charged(
    settings: Settings, async_bridge: AsyncBridge, registry: Registry, client: redis.Redis,
    way: str, case: str,
) -> None:  # fmt: skip
    does, total = CASES[case]
    await run(registry, settings, async_bridge, way, **does)
    assert charged(client) == total
    rests = client.zscore("expirebridge:rates", "rest answers")
    assert (rests is not None) == (does.get("ends") == "busy")


@pytest.mark.parametrize(
    ("spends", "tokens", "pages", "words"),
    [
        ([[30, "tokens"], [2, "pages"]], 35, 3, None),
        ([[2, "pages"]], 5, 3, None),
        ([[30, None]], 5, 1, "give of=, one of pages, tokens"),
        ([[30, "tokens"], [2, "words"]], 35, 1, "no such budget; it has: pages, tokens"),
    ],
)
async def test_a_handler_with_several_budgets_tells_of_each(
    settings: Settings, async_bridge: AsyncBridge, registry: Registry, client: redis.Redis,
    spends: list[list[object]], tokens: int, pages: int, words: str | None,
) -> None:  # fmt: skip
    error = await run(registry, settings, async_bridge, "two", spends=spends)
    assert (charged(client), charged(client, "pages")) == (tokens, pages)
    assert (error is None) == (words is None)
    assert words is None or words in str(error)


async def test_a_handler_without_a_budget_has_nothing_to_spend(
    settings: Settings, async_bridge: AsyncBridge, registry: Registry, client: redis.Redis
) -> None:
    error = await run(registry, settings, async_bridge, "none", spends=[[30, None]])
    assert error is not None
    assert "has no budget to spend" in error
    assert charged(client) == 0

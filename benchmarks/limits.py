"""What limits cost: tasks a second, and the server's and the listener's CPU for each task.

Tasks of one function are due at one instant, and one listener runs them, once for each kind of
limit, in turns. Each figure is the median of the rounds, with the ratio to no limit.

    python -m benchmarks.limits [--tasks 5000] [--rounds 5] [--work 0.01] [--concurrency 100]
"""

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.adoption import cpu
from benchmarks.growing import listener
from expirebridge import Bridge
from expirebridge.embedded.server import EmbeddedServer

LEAD = 1.0
"""Seconds from when the last task was made until all are due."""
HANDLERS = """
import asyncio

from expirebridge import Limit, Rate, handler


async def work():
    if {work}:
        await asyncio.sleep({work})


@handler
async def none(customer):
    await work()


@handler(limit=Limit(1_000_000))
async def never_full(customer):
    await work()


@handler(limit=Limit({tasks}, per="customer"))
async def never_full_per_value(customer):
    await work()


@handler(limit=Limit({concurrency}))
async def as_the_capacity(customer):
    await work()


@handler(limit=Limit({half}))
async def half_the_capacity(customer):
    await work()


@handler(limit=Limit({half}, fair="customer"))
async def half_and_fair(customer):
    await work()


@handler(limit=Limit(1, per="customer", ordered=True))
async def ordered(customer):
    await work()


@handler(rate=Rate(1_000_000, "1m", burst=1_000_000))
async def rate(customer):
    await work()
"""
KINDS = (
    "none",
    "never_full",
    "never_full_per_value",
    "as_the_capacity",
    "half_the_capacity",
    "half_and_fair",
    "ordered",
    "rate",
)
CUSTOMERS = 50


def run(kind: str, given: argparse.Namespace) -> tuple[float, float, float]:
    """Tasks a second, and the µs of CPU that the server and the listener used for each."""
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "tasks"
        folder.mkdir()
        text = HANDLERS
        for name, value in {
            "work": given.work,
            "tasks": given.tasks,
            "concurrency": given.concurrency,
            "half": max(given.concurrency // 2, 1),
        }.items():
            text = text.replace("{" + name + "}", repr(value))
        (folder / "shop.py").write_text(text)
        process = listener(server.url, folder, stack, "--concurrency", str(given.concurrency))
        bridge = stack.enter_context(Bridge(server.url))
        while not bridge.count().listeners:
            time.sleep(0.05)
        due = datetime.now(UTC) + timedelta(seconds=LEAD + given.tasks / 5000)
        bridge.make_tasks(
            {"func": f"shop.{kind}", "args": [number % CUSTOMERS], "at": due}
            for number in range(given.tasks)
        )
        pids = [server.pid or 0, process.pid]
        time.sleep(max((due - datetime.now(UTC)).total_seconds() - 0.1, 0))
        before = [cpu(pid) for pid in pids]
        while bridge.count().succeeded < given.tasks:
            time.sleep(0.02)
        took = (datetime.now(UTC) - due).total_seconds()
        spent = [
            (cpu(pid) - then) / given.tasks * 1e6 for pid, then in zip(pids, before, strict=True)
        ]
        return given.tasks / took, spent[0], spent[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=float, default=0.01)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    given = parser.parse_args()
    found: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in given.kinds}
    for _ in range(given.rounds):
        for kind, figures in found.items():
            figures.append(run(kind, given))
    base = [statistics.median(each) for each in zip(*found[given.kinds[0]], strict=True)]
    for kind, figures in found.items():
        own = [statistics.median(each) for each in zip(*figures, strict=True)]
        ratios = [mine / other for mine, other in zip(own, base, strict=True)]
        print(
            f"{kind:22} {own[0]:7,.0f} tasks/s ({ratios[0]:.2f}), a task takes "
            f"{own[1]:4.0f} µs of the server ({ratios[1]:.2f}), {own[2]:4.0f} µs of the listener "
            f"({ratios[2]:.2f})"
        )


if __name__ == "__main__":
    main()

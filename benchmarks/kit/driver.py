"""The producer's process: makes tasks with a contender's own client, when the lab says so.

    python -m benchmarks.kit.driver benchmarks.contenders.NAME

Each line on stdin is one order: {"first": 0, "count": 1000, "due_ms": ..., "spread_ms": 10000,
"bulk": false}. The tasks are `first`, `first + 1`, ..., due evenly over `spread_ms` from `due_ms`.
The answer, a line on stdout, is {"seconds": how long the calls took}, or {"error": ...}. The order
{"keep": [numbers], "seconds": 60} puts tasks off: then the module has `keep(numbers, seconds)`.

The contender's module has `schedule(number, due)`, and `schedule_many([(number, due), ...])` if it
makes several in one call; `due` is in seconds since 1970. Both, and `open()`, which comes before
the first order, may be coroutines.
"""

import asyncio
import importlib
import inspect
import itertools
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from types import ModuleType
from typing import Any, TextIO

BATCH = 1000
"""Tasks of one call of `schedule_many`."""


async def obey(module: ModuleType, order: dict[str, Any]) -> float:
    """Make the tasks, or put them off, and return how many seconds the calls took."""
    if "keep" in order:
        began = time.perf_counter()
        await _done(module.keep(order["keep"], order["seconds"]))
        return time.perf_counter() - began
    # One after the other: where tasks run in this process, a list of all would count as its memory.
    tasks = _tasks(**{name: order[name] for name in ("first", "count", "due_ms", "spread_ms")})
    began = time.perf_counter()
    if order["bulk"]:
        while batch := list(itertools.islice(tasks, BATCH)):
            await _done(module.schedule_many(batch))
    elif inspect.iscoroutinefunction(module.schedule):
        for number, due in tasks:
            await module.schedule(number, due)
    else:
        for number, due in tasks:
            module.schedule(number, due)
    return time.perf_counter() - began


def _tasks(first: int, count: int, due_ms: int, spread_ms: int) -> Iterator[tuple[int, float]]:
    for n in range(count):
        yield first + n, (due_ms + n * spread_ms // count) / 1000


async def _done(result: Any) -> None:
    if inspect.isawaitable(result):
        await result


async def main(name: str, answers: TextIO) -> None:
    """Obey orders until there are no more."""
    module = importlib.import_module(name)
    if hasattr(module, "open"):
        await _done(module.open())
    print(json.dumps({"bulk": hasattr(module, "schedule_many")}), file=answers, flush=True)
    # Read in a thread: the loop goes on for contenders that run tasks in this very process.
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            answer: dict[str, Any] = {"seconds": await obey(module, json.loads(line))}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    # What a library prints must not come between the answers.
    to_the_lab = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asyncio.run(main(sys.argv[1], to_the_lab))

"""Makes a contender's series with its own client, when that is not in its configuration.

    python -m benchmarks.kit.recur MODULE [--stay]

The module's `recur()`, which may be a coroutine, makes them, after its `open()`. With `--stay` the
process stays: it is the scheduler.
"""

import asyncio
import importlib
import inspect
import sys
from typing import Any


async def main(name: str, *, stay: bool) -> None:
    module = importlib.import_module(name)
    if hasattr(module, "open"):
        await _done(module.open())
    await _done(module.recur())
    if stay:
        await asyncio.Event().wait()


async def _done(result: Any) -> None:
    if inspect.isawaitable(result):
        await result


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], stay="--stay" in sys.argv))

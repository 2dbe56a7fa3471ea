"""Kills processes for handlers, many times, in each way in which they can end."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from expirebridge.hooks import Event, Hooks, ProcessEnd, ProcessEnded
from expirebridge.listener.execution.exceptions import ProcessDied, ProcessNotStarted
from expirebridge.listener.execution.process_pool.pool import ProcessPool
from expirebridge.listener.execution.process_pool.process import Process
from expirebridge.listener.execution.process_pool.protocol import CallFrame, Setup
from expirebridge.settings import Settings
from expirebridge.task.task import State, Task, from_ms

SIDE_BY_SIDE = 4
WAYS = ("timeout", "outside", "itself")
AT_START = 4
"""How many are killed before they have loaded the handlers, for each that is killed in a call."""
HANDLERS = """
import os, time
from expirebridge import handler

@handler(process=True)
def end(way):
    if way == "itself":
        os._exit(3)
    time.sleep(600)
"""


class Killing:
    """Has processes killed in turn: by their pool, by somebody else, and by their handler."""

    def __init__(self, folder: Path) -> None:
        self.ends: list[ProcessEnd] = []
        """How each process ended that had loaded the handlers."""
        self.killed_at_start = 0
        folder.mkdir(exist_ok=True)
        (folder / "killed.py").write_text(HANDLERS)
        settings = Settings(tasks=folder, processes=SIDE_BY_SIDE)
        self._processes = ProcessPool(settings, Hooks([self._note]))
        self._setup = Setup(settings=settings, levels={})

    async def kill(self, times: int) -> None:
        """Kill so many, several side by side; then end the pool."""
        in_calls = times // (1 + AT_START)
        ways = iter(
            ["start"] * (times - in_calls)
            + [WAYS[number % len(WAYS)] for number in range(in_calls)]
        )

        async def in_turn() -> None:
            for way in ways:
                await self._kill(way)

        await asyncio.gather(*(in_turn() for _ in range(SIDE_BY_SIDE)))
        await self._processes.close()

    async def _kill_at_start(self) -> None:
        process = Process()
        starting = asyncio.create_task(process.start(self._setup))
        while process.pid is None:  # noqa: ASYNC110 - a thread starts it
            await asyncio.sleep(0.001)
        process.kill(ProcessEnd.DIED)
        # On a busy machine it may have been ready before.
        with contextlib.suppress(ProcessNotStarted):
            await starting
        await process.ended
        self.killed_at_start += 1

    async def _kill(self, way: str) -> None:
        if way == "start":
            return await self._kill_at_start()
        process = await self._processes.take()
        task = Task(
            id=way, func="killed.end", args=[way], key=b"", state=State.RUNNING, due=from_ms(0)
        )
        call = CallFrame(name=task.func, task=task, lease_end=float("inf"))
        running = asyncio.create_task(process.call(call))
        await asyncio.sleep(0)
        if way == "timeout":
            process.kill(ProcessEnd.TIMEOUT)
        elif way == "outside" and process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)
        try:
            await running
        except ProcessDied:
            await process.ended
        else:
            raise AssertionError(f"{way}: it lives on")
        finally:
            self._processes.give_back(process)

    def _note(self, event: Event) -> None:
        if isinstance(event, ProcessEnded):
            self.ends.append(event.end)

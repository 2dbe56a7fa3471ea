"""The call of a handler in a process of its own, which is killed at the timeout."""

import asyncio
import time
from typing import Any

import orjson

from expirebridge.hooks import ProcessEnd
from expirebridge.listener.execution.attempt import Attempt
from expirebridge.listener.execution.deadlines import Deadlines
from expirebridge.listener.execution.exceptions import (
    HandlerDiffers,
    HandlerMissing,
    ProcessDied,
    StartRefused,
    TimedOut,
)
from expirebridge.listener.execution.process_pool.pool import ProcessPool
from expirebridge.listener.execution.process_pool.process import Process
from expirebridge.listener.execution.process_pool.protocol import CallFrame, Reply, unpack

NEVER_BEGAN = "its process ended before it began"
NEWER_CODE = "in the process that was to call it, which has newer code than its listener"


class ProcessCall:
    """The call of a handler in a process of the pool, made if its attempt may still begin.

    The attempt begins when the call is sent to its process, which checks the end of the lease again
    right before it calls the handler: it may have stood still meanwhile. After a kill, the outcome
    is reported only once the process has ended, so that two attempts never overlap.
    """

    def __init__(self, attempt: Attempt, processes: ProcessPool, deadlines: Deadlines) -> None:
        self._attempt = attempt
        self._processes = processes
        self._deadlines = deadlines

    async def run(self) -> Any:
        """Return the handler's result.

        Raises its error, TimedOut, ProcessFailure and StartRefused.
        """
        process = await self._take()
        try:
            self._attempt.begin()
            reply = await self._call(process)
        finally:
            self._processes.give_back(process)
        return self._outcome(reply)

    async def _take(self) -> Process:
        try:
            return await self._processes.take()
        except BaseException:
            # The attempt ends without a process, and so it may not be withdrawn any more.
            self._attempt.begin()
            raise

    async def _call(self, process: Process) -> Reply:
        attempt = self._attempt
        name = attempt.handler.name if attempt.handler is not None else attempt.task.func
        call = CallFrame(name=name, task=attempt.task, lease_end=attempt.lease_end())
        began = time.perf_counter()
        try:
            with self._deadlines.set(attempt.limit, lambda: process.kill(ProcessEnd.TIMEOUT)):
                reply = await process.call(call)
        except ProcessDied:
            if not process.has_begun:
                raise StartRefused(NEVER_BEGAN) from None
            attempt.took = time.perf_counter() - began
            if process.end is ProcessEnd.TIMEOUT:
                raise TimedOut from None
            raise
        except asyncio.CancelledError:
            process.kill(ProcessEnd.CANCELLED)
            await asyncio.shield(process.ended)
            attempt.took = time.perf_counter() - began
            raise
        if reply.lacked_memory:
            process.dismiss(ProcessEnd.MEMORY)
        return reply

    def _outcome(self, reply: Reply) -> Any:
        if reply.not_begun:
            raise StartRefused(reply.not_begun)
        if reply.is_missing:
            raise HandlerMissing(NEWER_CODE)
        if reply.misfit:
            raise HandlerDiffers(f"{reply.misfit}, {NEWER_CODE}")
        self._attempt.took = reply.took
        if (spending := self._attempt.task.spending) is not None:
            spending.spent.update(reply.spent)
        if reply.took > self._attempt.limit:
            raise TimedOut
        if reply.raised is not None:
            raise unpack(reply.raised)
        if reply.then is not None:
            return reply.then
        return orjson.Fragment(reply.result) if reply.result else None

"""Unsettled: the attempts whose outcome is not recorded yet."""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator

from expirebridge.listener.execution.attempt import Attempt


class InFlight:
    """Every attempt of this process from its claim until its outcome is recorded, or refused."""

    def __init__(self) -> None:
        self._attempts: set[Attempt] = set()
        self._settled = asyncio.Event()

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self._attempts)

    def __contains__(self, attempt: Attempt) -> bool:
        return attempt in self._attempts

    def __bool__(self) -> bool:
        return bool(self._attempts)

    @property
    def at_rest(self) -> bool:
        """Whether none is left but those whose node is away."""
        return all(attempt.consumer.session.is_away for attempt in self._attempts)

    def add(self, attempt: Attempt) -> None:
        """Take note of an attempt whose task was claimed."""
        self._attempts.add(attempt)

    def discard(self, attempt: Attempt) -> None:
        """Take note that its outcome is recorded, or was refused."""
        self._attempts.discard(attempt)
        self.look_again()

    def look_again(self) -> None:
        """Let those who wait look whether they still must."""
        self._settled.set()

    async def wait_until(self, reached: Callable[[], bool], seconds: float | None) -> None:
        """Wait until `reached` holds, at most so many seconds; None: however long it takes.

        It is asked after each attempt that was settled, and after `look_again`.
        """
        # Not asyncio.timeout: this is for the end of a listener, which may have been cancelled, and
        # Python 3.11.2 then takes the time that is over for another cancellation.
        waiting = asyncio.create_task(self._until(reached))
        try:
            await asyncio.wait([waiting], timeout=seconds)
        finally:
            waiting.cancel()

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._settled.clear()
            await self._settled.wait()


# Running: the attempts that are on their way through their steps, each in a task of asyncio.


class Running:
    """Every attempt from its first step until it is over; each can be stopped, if its kind can.

    Plain functions cannot be stopped, but as long as an attempt only asks for its row in the
    ledger, its function has not been called.
    """

    def __init__(self) -> None:
        self._tasks: dict[Attempt, asyncio.Task[None]] = {}
        self._asking: set[Attempt] = set()

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self._tasks)

    def __contains__(self, attempt: Attempt) -> bool:
        return attempt in self._tasks

    @property
    def asking(self) -> list[Attempt]:
        """Those of the ledger that do not know yet whether they are to run."""
        return list(self._asking)

    def add(self, attempt: Attempt, task: asyncio.Task[None]) -> None:
        """Take note of an attempt, and of the task in which it takes its steps."""
        self._tasks[attempt] = task
        if attempt.row_check is not None:
            self._asking.add(attempt)

    def notice_answer(self, attempt: Attempt) -> None:
        """Take note that it asks no longer."""
        self._asking.discard(attempt)

    def leave(self, attempt: Attempt) -> None:
        """Take note that it is over."""
        self._asking.discard(attempt)
        del self._tasks[attempt]

    def owns(self, attempt: Attempt) -> bool:
        """Whether there are steps that will conclude it."""
        task = self._tasks.get(attempt)
        return task is not None and not task.done()

    def stop(self, attempts: Iterable[Attempt], reason: str) -> None:
        """Stop those of them that can be stopped."""
        for attempt in attempts:
            can_be_stopped = attempt.can_be_stopped or attempt in self._asking
            if can_be_stopped and not attempt.stopped and not attempt.is_stuck:
                attempt.stopped = reason
                task = self._tasks[attempt]
                # Cancelled before its first step, which looks at `stopped`, it would take none.
                if not _is_new(task):
                    task.cancel()

    def attempt_in(self, task: asyncio.Task[object] | None) -> Attempt | None:
        """The attempt that this asyncio task is, if it is one. For any thread."""
        return next((a for a, running in list(self._tasks.items()) if running is task), None)


def _is_new(task: asyncio.Task[None]) -> bool:
    """Whether it has not taken its first step."""
    steps = task.get_coro()
    return inspect.iscoroutine(steps) and inspect.getcoroutinestate(steps) == inspect.CORO_CREATED

"""In flight: the attempts whose outcome is not recorded yet, and how far they are."""

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator

from expirebridge.listener.execution.attempt import Attempt
from expirebridge.listener.execution.exceptions import (
    HELD_UP,
    WITHDRAWN,
    StartRefused,
    Withdrawn,
)


class InFlight:
    """The attempts of this process whose outcomes are not recorded or refused yet."""

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
        """True if all that is left waits for servers that are away."""
        return all(attempt.consumer.session.is_away for attempt in self._attempts)

    def add(self, attempt: Attempt) -> None:
        """Add an attempt whose task was claimed."""
        self._attempts.add(attempt)

    def discard(self, attempt: Attempt) -> None:
        """Remove an attempt whose outcome is recorded, or was refused."""
        self._attempts.discard(attempt)
        self.look_again()

    def look_again(self) -> None:
        """Have every `wait_until` check its condition."""
        self._settled.set()

    async def wait_until(self, reached: Callable[[], bool], seconds: float | None) -> None:
        """Wait until `reached` holds, at most so many seconds; None: without a limit.

        It is checked after each attempt that was settled, and after `look_again`.
        """
        # Not asyncio.timeout: this is for the end of a listener, which may have been cancelled, and
        # Python 3.11.2 then takes the expired timeout for another cancellation.
        waiting = asyncio.create_task(self._until(reached))
        try:
            await asyncio.wait([waiting], timeout=seconds)
        finally:
            waiting.cancel()

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._settled.clear()
            await self._settled.wait()


# Those whose handlers have not been called yet.


class PendingStarts:
    """The attempts that have not begun; each is removed once, to begin or to be withdrawn.

    The event loop, the handlers' threads and the heartbeat's thread all remove attempts. The atomic
    operations of the set decide which of them gets an attempt.
    """

    def __init__(self) -> None:
        self._attempts: set[Attempt] = set()

    def add(self, attempt: Attempt) -> None:
        """Add an attempt whose task was claimed."""
        self._attempts.add(attempt)

    def check(self, attempt: Attempt) -> None:
        """Check it before anything is reported. Raises the error that `begin` would raise now."""
        if attempt not in self._attempts:
            raise Withdrawn(WITHDRAWN)
        if not attempt.has_lease():
            self._take(attempt)
            raise StartRefused(HELD_UP)

    def begin(self, attempt: Attempt) -> None:
        """Remove it, in the thread that calls its handler, right before the call.

        Raises StartRefused if its lease may have lapsed, since another listener may run it by now,
        and Withdrawn if it was withdrawn.
        """
        self._take(attempt)
        if not attempt.has_lease():
            raise StartRefused(HELD_UP)

    def withdraw(self) -> list[Attempt]:
        """Remove all, for the heartbeat's thread, and drop their leases."""
        withdrawn = []
        with contextlib.suppress(KeyError):
            while True:
                attempt = self._attempts.pop()
                attempt.consumer.leases.drop(attempt.claimed.id, attempt.claimed.token)
                withdrawn.append(attempt)
        return withdrawn

    def forget(self, attempt: Attempt) -> None:
        """Remove an attempt that is over, so that it does not begin any more."""
        self._attempts.discard(attempt)

    def _take(self, attempt: Attempt) -> None:
        try:
            self._attempts.remove(attempt)
        except KeyError:
            raise Withdrawn(WITHDRAWN) from None


# Those that take their steps, each in an asyncio task.


class Running:
    """The attempts from their first step to their last, with the asyncio task of each.

    Plain functions cannot be stopped. Their attempts can as long as they wait for their row in the
    ledger, or for a codec: the function has not been called.
    """

    def __init__(self) -> None:
        self._tasks: dict[Attempt, asyncio.Task[None]] = {}

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self._tasks)

    def __contains__(self, attempt: Attempt) -> bool:
        return attempt in self._tasks

    @property
    def asking(self) -> list[Attempt]:
        """Attempts that wait for their rows in the ledger, or until their arguments are decoded."""
        return [attempt for attempt in self._tasks if _waits(attempt)]

    def add(self, attempt: Attempt, task: asyncio.Task[None]) -> None:
        """Add an attempt, with the asyncio task in which it takes its steps."""
        self._tasks[attempt] = task

    def leave(self, attempt: Attempt) -> None:
        """Remove an attempt that took its last step."""
        del self._tasks[attempt]

    def owns(self, attempt: Attempt) -> bool:
        """True if its asyncio task still runs, and so will settle it."""
        task = self._tasks.get(attempt)
        return task is not None and not task.done()

    def stop(self, attempts: Iterable[Attempt], reason: str) -> None:
        """Stop these attempts, as far as they can be stopped, and give the reason."""
        for attempt in attempts:
            can_be_stopped = attempt.can_be_stopped or _waits(attempt)
            if can_be_stopped and not attempt.stopped and not attempt.is_stuck:
                attempt.stopped = reason
                task = self._tasks[attempt]
                # Cancelled before its first step, the task takes none; that step reads `stopped`.
                if not _is_new(task):
                    task.cancel()

    def attempt_in(self, task: asyncio.Task[object] | None) -> Attempt | None:
        """The attempt that runs in this asyncio task; None if none does. Safe for any thread."""
        return next((a for a, running in list(self._tasks.items()) if running is task), None)


def _waits(attempt: Attempt) -> bool:
    return attempt.awaits_row or attempt.encoded is not None


def _is_new(task: asyncio.Task[None]) -> bool:
    """True if it has not taken its first step."""
    steps = task.get_coro()
    return inspect.iscoroutine(steps) and inspect.getcoroutinestate(steps) == inspect.CORO_CREATED

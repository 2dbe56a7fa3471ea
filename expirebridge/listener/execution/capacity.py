"""Capacity: how many tasks a process runs at once, and what wakes those who claim them."""

import asyncio

from expirebridge.listener.execution.in_flight import InFlight


class Wakeup:
    """Wakes the claimer of a partition. Wake-ups before it runs are coalesced."""

    def __init__(self) -> None:
        self._is_set = asyncio.Event()

    def set(self) -> None:
        """Have the claimer claim: a task may be due."""
        self._is_set.set()

    async def wait(self) -> None:
        """Wait for a wake-up, and clear it."""
        await self._is_set.wait()
        self._is_set.clear()


# The places.


class Capacity:
    """A weighted semaphore: the places for running tasks that the partitions of a process share.

    A claimer acquires places before it asks its server, and releases those that it did not fill.
    The place of a task is released once its handler has ended. A claimer that gets no place waits
    in a queue, and is woken when it is its turn.

    A task that may be what kills its listeners runs alone. A claimer that met one requests all
    places, and gets them once all are released and all outcomes recorded. Until then no claimer
    gets any.
    """

    def __init__(self, size: int, in_flight: InFlight) -> None:
        self._size = size
        self._in_flight = in_flight
        self._free = size
        self._waiters: dict[Wakeup, None] = {}
        self._exclusive: dict[Wakeup, None] = {}
        """Claimers that requested all places, in order."""
        self._is_closed = False

    @property
    def free(self) -> int:
        """The number of places that are not acquired."""
        return self._free

    @property
    def in_use(self) -> int:
        """Places that are acquired, for a claim or a running task."""
        return self._size - self._free

    @property
    def is_idle(self) -> bool:
        """True if no place is in use, and outcomes wait only for servers that are away."""
        return self._free == self._size and self._in_flight.at_rest

    @property
    def is_open(self) -> bool:
        """True if a claimer gets places as soon as there are some."""
        return not self._is_closed and not self._exclusive

    def acquire(self, waiter: Wakeup, most: int) -> int:
        """Acquire up to so many places, and return how many; after 0 the waiter is woken for some.

        A waiter that requested all places gets some only when it is its turn to have all.
        """
        if not self._admits(waiter):
            self._waiters[waiter] = None
            return 0
        self._waiters.pop(waiter, None)
        places = min(most, self._free)
        self._free -= places
        self.wake_next()
        return places

    def release(self, places: int = 1) -> None:
        """Release places that were acquired."""
        self._free += places
        if self._waiters or self._exclusive:
            self.wake_next()

    def withdraw(self, waiter: Wakeup) -> None:
        """Leave the queues: its claimer stops, or its server does not answer."""
        self._waiters.pop(waiter, None)
        self._exclusive.pop(waiter, None)
        self.wake_next()

    def close(self) -> None:
        """Give out no more places. Safe for the heartbeat's thread."""
        self._is_closed = True

    def is_exclusive(self, waiter: Wakeup) -> bool:
        """True if this waiter requested all places, and so runs alone with those it acquires."""
        return waiter in self._exclusive

    def request_exclusive(self, waiter: Wakeup) -> None:
        """Request all places, again behind others that wait for them."""
        self._exclusive.pop(waiter, None)
        self._exclusive[waiter] = None
        self.wake_next()

    def release_exclusive(self, waiter: Wakeup) -> None:
        """Share the places again."""
        if waiter in self._exclusive:
            del self._exclusive[waiter]
            self.wake_next()

    def wake_next(self) -> None:
        """Wake the next waiter, if there is a place for it now."""
        if self._exclusive:
            if self.is_idle:
                next(iter(self._exclusive)).set()
        elif self._waiters and self._free:
            next(iter(self._waiters)).set()

    def _admits(self, waiter: Wakeup) -> bool:
        if self._is_closed:
            return False
        if self._exclusive:
            return self.is_idle and waiter is next(iter(self._exclusive))
        return self._free > 0 and waiter is next(iter(self._waiters), waiter)

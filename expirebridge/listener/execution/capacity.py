"""The room: how many tasks a process runs at a time, whichever station they come from."""

from expirebridge.listener.execution.in_flight import InFlight
from expirebridge.listener.wakeups import Wakeup


class Capacity:
    """Places for running tasks, which the stations of a process share.

    A claimer reserves places before it asks its server and gives back those that it did not fill;
    each task leaves its own once its handler has ended. Whoever finds no place stands in line, and
    is rung when it is its turn.

    A task that may be what kills its listeners runs alone. A station that met one asks for the
    whole room: nobody gets a place until all have been left and what ran is recorded, and then that
    station alone.
    """

    def __init__(self, size: int, unsettled: InFlight) -> None:
        self._size = size
        self._unsettled = unsettled
        self._free = size
        self._line: dict[Wakeup, None] = {}
        self._alone: dict[Wakeup, None] = {}
        """Who wants the whole room, in order."""
        self._is_closed = False

    @property
    def free(self) -> int:
        """Places that nobody has reserved."""
        return self._free

    @property
    def taken(self) -> int:
        """Places that are reserved, or in which a task runs."""
        return self._size - self._free

    @property
    def idle(self) -> bool:
        """Whether nothing runs here, or is claimed; outcomes wait only for nodes that are away."""
        return self._free == self._size and self._unsettled.at_rest

    def acquire(self, who: Wakeup, most: int) -> int:
        """Take up to so many places, and return how many; 0: the caller is rung when some are free.

        Whoever wants the whole room gets places only when it has it.
        """
        if not self._admits(who):
            self._line[who] = None
            return 0
        self._line.pop(who, None)
        places = min(most, self._free)
        self._free -= places
        self.look()
        return places

    def leave(self, places: int = 1) -> None:
        """Give back places that were reserved."""
        self._free += places
        if self._line or self._alone:
            self.look()

    def withdraw(self, who: Wakeup) -> None:
        """Leave the queue: this station stops."""
        self._line.pop(who, None)
        self._alone.pop(who, None)
        self.look()

    def close(self) -> None:
        """Give nobody a place any more. Safe for the heartbeat's thread."""
        self._is_closed = True

    def is_exclusive(self, who: Wakeup) -> bool:
        """Whether the places just reserved are the only reserved ones."""
        return who in self._alone

    def request_exclusive(self, who: Wakeup) -> None:
        """Ask for the whole room, again behind others that wait for it."""
        self._alone.pop(who, None)
        self._alone[who] = None
        self.look()

    def want_no_more(self, who: Wakeup) -> None:
        """Share the room again."""
        if who in self._alone:
            del self._alone[who]
            self.look()

    def look(self) -> None:
        """Ring for whoever's turn it is, if there is a place now."""
        if self._alone:
            if self.idle:
                next(iter(self._alone)).ring()
        elif self._line and self._free:
            next(iter(self._line)).ring()

    def _admits(self, who: Wakeup) -> bool:
        if self._is_closed:
            return False
        if self._alone:
            return self.idle and who is next(iter(self._alone))
        return self._free > 0 and who is next(iter(self._line), who)

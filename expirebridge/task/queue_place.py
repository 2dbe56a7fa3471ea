"""Where a waiting task stands: in the line of a lane of a limit, or of a hold."""

from dataclasses import dataclass, replace

from expirebridge.task.durations import human
from expirebridge.task.texts import short_repr

HOLD = "hold "
"""The beginning of the name of a lane in which tasks wait for the end of a hold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredLimit:
    """A limit or a rate, as a listener declared it, but for a number that was set since."""

    name: str
    """Its name: that which its handlers give it, or `<function>`, or `<function>:<argument>`."""
    most: int | None = None
    """The slots of each of its lanes. None for a rate."""
    starts: int | None = None
    """Of a rate: how many start in `every`; of a budget: how much is spent in it."""
    every: float | None = None
    """Of a rate: in seconds."""
    burst: int | None = None
    """Of a rate: the most starts at once after a pause; of a budget: the most that is spent so."""
    of: str = ""
    """Of a budget: the parameter that says what a task costs."""
    wait: float | None = None
    """Seconds after which a task that waits fails. None: it waits on."""
    fair: bool = False
    """True if the values of an argument take turns at its slots."""
    ordered: bool = False
    """True if the tasks of a lane run in the order of their due times."""
    declared: int | None = None
    """The number that handlers declare, if another one that was set counts instead: its `most`, or
    the `starts` of a rate."""
    functions: tuple[str, ...] = ()
    """The functions that it limits."""

    @property
    def interval(self) -> float | None:
        """Of a rate: seconds between two starts, to the microsecond."""
        if self.starts is None or self.every is None:
            return None
        return -(-round(self.every * 1_000_000) // self.starts) / 1_000_000

    @property
    def number(self) -> int | None:
        """What `set_limit` changes: its `most`, or the `starts` of a rate."""
        return self.most if self.starts is None else self.starts

    def with_number(self, number: int | None) -> "DeclaredLimit":
        """The same with a number that was set; itself, if none was."""
        if number is None:
            return self
        declared = self.number
        if self.starts is None:
            return replace(self, most=number, declared=declared)
        if number == 0:  # its lanes have no slot
            return replace(self, most=0, starts=None, every=None, burst=None, declared=declared)
        # The burst of a budget that has none of its own is all of it.
        burst = number if self.of and self.burst == self.starts else self.burst
        return replace(self, starts=number, burst=burst, declared=declared)

    def __repr__(self) -> str:
        return short_repr(self)

    def __str__(self) -> str:
        """Its numbers, in words."""
        if self.interval is not None and self.of:
            burst = f", {self.burst:,} at once" if self.burst != self.starts else ""
            return f"{self.starts:,} {self.of} in {human(self.every or 0)}{burst}{self._instead}"
        if self.interval is not None:
            burst = f", {self.burst} at once" if (self.burst or 1) > 1 else ""
            return f"one start every {human(self.interval)}{burst}{self._instead}"
        wait = f", waits {human(self.wait)} at most" if self.wait is not None else ""
        who = ", in order" if self.ordered else ", by turns" if self.fair else ""
        return f"{self.most} at once{who}{wait}{self._instead}"

    @property
    def _instead(self) -> str:
        return f", declared {self.declared:,}" if self.declared is not None else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuePlace:
    """Where a waiting task stands in line."""

    lane: str
    """The lane in which it waits: see `Lane`; `hold func <name>`, `hold tag <tag>`, `hold all`."""
    position: int | None
    """Its place in line, from 1; None if it is in no line."""
    held: int
    """How many tasks have a slot in the lane."""
    limit: DeclaredLimit | None
    """None for a hold, and for a limit that no listener declares any more."""
    hold: str = ""
    """Of a hold: until when, by whom and why, as far as that was said."""

    def __repr__(self) -> str:
        return short_repr(self)

    def __str__(self) -> str:
        """A sentence such as `waits for a slot of sms=17: 2 of 2 taken, 3rd in line`."""
        line = f", {_ordinal(self.position)} in line" if self.position is not None else ""
        if self.lane.startswith(HOLD):
            return f"on hold: {self.lane.removeprefix(HOLD)}{self.hold}{line}"
        if self.limit is None:
            return f"waits for a slot of {self.lane}: its limit is not declared{line}"
        if self.limit.interval is not None:
            return f"waits for a start of {self.lane}: {self.limit}{line}"
        most, declared = self.limit.most, self.limit.declared
        instead = f" (declared: {declared:,})" if declared is not None else ""
        return f"waits for a slot of {self.lane}: {self.held} of {most} taken{instead}{line}"


def limit_name_of(lane: str) -> str:
    """The name of the limit to which a lane belongs."""
    return lane.partition("=")[0]


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{'th' if 10 < number % 100 < 14 else ending}"

"""What people get of groups: a group as it was read, its state, and a list of groups."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from expirebridge.groups.names import OnFailed
from expirebridge.task.listings import LeftOut
from expirebridge.task.texts import plural, short_repr


class GroupState(StrEnum):
    """The states of a group."""

    OPEN = "open"  # it takes more members
    CLOSED = "closed"  # it waits until all members have ended
    ENDED = "ended"  # all have ended; its follow-up is due, or was
    CANCELLED = "cancelled"  # its follow-up will not run, and its members are cancelled


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """A group, as it was when it was read."""

    name: str
    created: datetime
    """When it was made, on the server's clock."""
    on_failed: OnFailed
    """What a failed member does: `wait` (the group waits until it runs again), `run` (it has ended
    like any other), or `cancel` (the group is cancelled)."""
    closed: bool
    """True if no members are added any more."""
    total: int
    """How many members it has."""
    left: int
    """How many of them have not ended; failed ones among them, if it waits for these."""
    succeeded: int
    failed: int
    cancelled: int
    then: str | None
    """The id of its follow-up, which is paused until all members have ended."""
    failed_at: datetime | None
    """When a member last failed."""
    ended: datetime | None
    """When its last member ended."""
    stopped: datetime | None
    """Since when it is cancelled."""

    def __repr__(self) -> str:
        return short_repr(self, "name", "closed", "total", "left", "failed", "ended", "stopped")

    @property
    def state(self) -> GroupState:
        """Whether it is open, closed, ended or cancelled."""
        if self.stopped is not None:
            return GroupState.CANCELLED
        if self.ended is not None:
            return GroupState.ENDED
        return GroupState.CLOSED if self.closed else GroupState.OPEN

    @property
    def only_failed_left(self) -> bool:
        """True if it is closed, and waits for failed members alone: it does not end by itself."""
        return (
            self.state is GroupState.CLOSED
            and self.on_failed == "wait"
            and 0 < self.left <= self.failed
        )

    @property
    def progress(self) -> str:
        """How far it is, in words: `40 of 100 members left, 2 failed`."""
        failed = f", {self.failed:,} failed" if self.failed else ""
        return f"{self.left:,} of {plural(self.total, 'member', 'members')} left{failed}"


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupListing:
    """Groups: those that have not ended, then those that ended last."""

    groups: list[Group]
    complete: bool
    """True if there are no more."""
    left_out: tuple[LeftOut, ...] = ()
    """Partitions that could not be asked: their groups are not among these."""

    def __repr__(self) -> str:
        return short_repr(self)

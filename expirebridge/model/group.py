"""Groups: tasks that belong together, and what follows when all have ended."""

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal, get_args

from expirebridge.errors import InvalidTask
from expirebridge.model.task import LeftOut

OnFailed = Literal["wait", "run", "cancel"]
ON_FAILED: tuple[OnFailed, ...] = get_args(OnFailed)
MOST_MEMBERS = 100_000
FOLLOW_UP = "@then"
"""Ends the id of a group's follow-up, behind the group's name."""

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,100}", re.ASCII)
_MEMBER = re.compile(r"([A-Za-z0-9_.:-]{1,100})@(?:g[0-9]+|then)", re.ASCII)


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
        return f"{self.left:,} of {self.total:,} members left{failed}"


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupListing:
    """Groups: those that have not ended, then those that ended last."""

    groups: list[Group]
    complete: bool
    """True if there are no more."""
    left_out: tuple[LeftOut, ...] = ()
    """Partitions that could not be asked: their groups are not among these."""


def check_group(name: object) -> str:
    """Return a legal name of a group unchanged; raise InvalidTask for any other."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidTask(
            f"group={name!r:.60}: a group's name has 1 to 100 characters from A-Z a-z 0-9 and "
            "_ . : -"
        )
    return name


def member_id(name: str, number: int) -> str:
    """The id of a member."""
    return f"{name}@g{number}"


def group_of(id: str) -> str | None:
    """The name of the group to which a member, or a follow-up, belongs; None for other ids."""
    found = _MEMBER.fullmatch(id)
    return found[1] if found else None

"""The calls about groups."""

from datetime import datetime
from enum import IntEnum
from typing import Any, NamedTuple

from expirebridge.groups.names import ON_FAILED, OnFailed
from expirebridge.groups.values import Group
from expirebridge.store.record_values import text
from expirebridge.task.calls.call import CHUNK, Command, OfId, Steps, milliseconds, script
from expirebridge.task.calls.pages import BEGINNING, Pages
from expirebridge.task.calls.producing import NewTask, Obstacle
from expirebridge.task.task import from_ms


class MakeGroupCode(IntEnum):
    """The result of making a group."""

    MADE = 1
    THERE = 2  # it was made before, with the same arguments
    DIFFERS = 3  # it was made before, with others
    TAKEN = 4  # an unfinished task has the id of its follow-up


class MakeGroupReply(NamedTuple):
    """The reply about a new group, and its follow-up."""

    code: MakeGroupCode
    now: int
    """The server's time, in ms."""
    due: int = 0
    """When the follow-up would be due, in ms, if the group ended now."""
    key: bytes = b""
    """Its trigger key."""


def make_group(
    name: str, *, on_failed: OnFailed, definition: str, count: int, follow_up: NewTask | None
) -> Command[MakeGroupReply]:
    """Make a group, and its paused follow-up. Its maker makes the members 0 to `count` - 1.

    `definition` is a digest by which a repeated call is told from another group of that name; or
    several in words, of which the first is stored.
    """
    item = follow_up.encode() if follow_up is not None else ()
    return script(
        "make_group", name, on_failed, definition, count, *item, route=OfId(name),
        read=lambda reply: MakeGroupReply(MakeGroupCode(reply[0]), *reply[1:]),
    )  # fmt: skip


_NO_MEMBER = {-1: Obstacle.NO_GROUP, -2: Obstacle.GROUP_CLOSED}


def reserve_members(name: str, count: int) -> Command[int | Obstacle]:
    """Reserve so many numbers for new members; returns the first, or why it takes none."""
    return script(
        "reserve_members", name, count, read=lambda reply: _NO_MEMBER.get(reply, reply),
        route=OfId(name),
    )  # fmt: skip


def count_lacking(name: str, first: int, count: int) -> Command[int | None]:
    """How many of so many numbers, from the first on, were not made; None: no such group."""
    return script(
        "count_lacking", name, first, count, read=lambda reply: reply if reply >= 0 else None,
        route=OfId(name),
    )  # fmt: skip


def close_group(name: str) -> Command[int | None]:
    """Add no more members, if those are there that its maker was to make.

    Returns how many of these it lacks, and then it stays open; None: there is no such group.
    """
    codes = {1: 0, 0: None}
    return script(
        "close_group", name, read=lambda reply: codes.get(reply, -reply), route=OfId(name)
    )


class Cancelling(IntEnum):
    """The result of cancelling a part of a group."""

    MORE = 1  # members are left to be cancelled
    ALL = 0
    NO_GROUP = -1
    ENDED = -2


def cancel_group(name: str, *, keep: float) -> Command[Cancelling]:
    """Cancel a group's follow-up, and the next of its members; they are kept for `keep` seconds."""
    return script(
        "cancel_group", name, milliseconds(keep), CHUNK, read=Cancelling, route=OfId(name)
    )


def get_group(name: str) -> Command[Group | None]:
    """Read a group; None if there is none of that name."""
    return script(
        "get_group", name, read=lambda fields: _group(name, fields) if fields else None,
        route=OfId(name),
    )  # fmt: skip


class GroupPage(NamedTuple):
    """A part of a listing."""

    cursor: str
    """The cursor of the next page; "0" if this was the last."""
    groups: list[Group]


def list_groups(cursor: str, count: int = CHUNK) -> Command[GroupPage]:
    """Read a page of the groups of a partition: those that have not ended come first."""

    return script("list_groups", cursor, count, read=_page)


def find_unended(most: int) -> Steps[list[Group]]:
    """Read up to so many groups that have not ended, of all partitions that can be asked."""
    found: list[Group] = []
    pages = Pages(_list_unended)
    while len(found) < most and (page := (yield from pages.next())):
        found += page.groups
    return found[:most]


def _list_unended(cursor: str) -> Command[GroupPage]:
    """Read a page of those that have not ended; it is the last if it has others, too."""

    def read(reply: list[Any]) -> GroupPage:
        page = _page(reply)
        groups = [group for group in page.groups if group.ended is None]
        return GroupPage(page.cursor if len(groups) == len(page.groups) else BEGINNING, groups)

    return script("list_groups", cursor, CHUNK, read=read)


def _page(reply: list[Any]) -> GroupPage:
    rows = zip(reply[1::2], reply[2::2], strict=True)
    return GroupPage(text(reply[0]), [_group(text(name), fields) for name, fields in rows])


def _group(name: str, fields: list[bytes]) -> Group:
    stored = {
        text(field): text(value) for field, value in zip(fields[::2], fields[1::2], strict=True)
    }

    def whole(field: str) -> int:
        value = stored.get(field, "")
        return int(value) if value.isdecimal() else 0

    def moment(field: str) -> datetime | None:
        return from_ms(whole(field)) if field in stored else None

    on_failed = stored.get("on_failed")
    waits_for_failed = on_failed not in ON_FAILED or on_failed == "wait"
    ended = whole("succeeded") + whole("cancelled") + (0 if waits_for_failed else whole("failed"))
    return Group(
        name=name,
        created=from_ms(whole("made")),
        on_failed=on_failed if on_failed in ON_FAILED else "wait",
        closed="closed" in stored,
        total=whole("left") + ended,
        left=whole("left"),
        succeeded=whole("succeeded"),
        failed=whole("failed"),
        cancelled=whole("cancelled"),
        then=stored.get("then"),
        failed_at=moment("failed_at"),
        ended=moment("ended"),
        stopped=moment("stopped"),
    )

"""The names of groups, and the ids of their members."""

from typing import Literal, get_args

OnFailed = Literal["wait", "run", "cancel"]
"""What a failed member does: see `Group.on_failed`."""
ON_FAILED: tuple[OnFailed, ...] = get_args(OnFailed)
MOST_MEMBERS = 100_000
FOLLOW_UP = "@then"
"""Ends the id of a group's follow-up, behind the group's name."""


def member_id(name: str, number: int) -> str:
    """The id of a member."""
    return f"{name}@g{number}"

"""The names of groups, and the ids of their members."""

import re
from typing import Literal, get_args

from expirebridge.task.keys import GROUP_NAME

OnFailed = Literal["wait", "run", "cancel"]
"""What a failed member does: see `Group.on_failed`."""
ON_FAILED: tuple[OnFailed, ...] = get_args(OnFailed)
MOST_MEMBERS = 100_000
FOLLOW_UP = "@then"
"""Ends the id of a group's follow-up, behind the group's name."""

_MEMBER = rf"({GROUP_NAME})@(?:g[0-9]+|then)"


def member_id(name: str, number: int) -> str:
    """The id of a member."""
    return f"{name}@g{number}"


def group_of(id: str) -> str | None:
    """The name of the group to which a member, or a follow-up, belongs; None for other ids."""
    found = re.fullmatch(_MEMBER, id)
    return found[1] if found else None

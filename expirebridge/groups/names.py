"""The names of groups, and the ids of their members."""

import re
from typing import Literal, get_args

from expirebridge.errors import InvalidTask

OnFailed = Literal["wait", "run", "cancel"]
"""What a failed member does: see `Group.on_failed`."""
ON_FAILED: tuple[OnFailed, ...] = get_args(OnFailed)
MOST_MEMBERS = 100_000
FOLLOW_UP = "@then"
"""Ends the id of a group's follow-up, behind the group's name."""

_NAME = r"[A-Za-z0-9_.:-]{1,100}"
_MEMBER = rf"({_NAME})@(?:g[0-9]+|then)"


def check_group(name: object) -> str:
    """Return a legal name of a group unchanged; raise InvalidTask for any other."""
    if not isinstance(name, str) or not re.fullmatch(_NAME, name):
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
    found = re.fullmatch(_MEMBER, id)
    return found[1] if found else None

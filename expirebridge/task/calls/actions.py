"""The calls of the log of what operators did."""

from datetime import datetime
from typing import NamedTuple

import orjson

from expirebridge.task.calls.call import Command, new_nonce, script
from expirebridge.task.task import from_ms


class Action(NamedTuple):
    """An action of an operator."""

    at: datetime
    """On the server's clock."""
    who: str
    action: str
    target: str
    """A task's id, or a filter."""
    result: str


def note_action(*, who: str, action: str, target: str, result: str) -> Command[None]:
    """Write an action down; the last thousand are kept."""
    return script("note_action", who, action, target, result, new_nonce(), read=lambda _: None)


def read_actions(limit: int) -> Command[list[Action]]:
    """Read the last actions, the latest first. What another client put there is left out."""
    return script(
        "read_actions",
        limit,
        read=lambda reply: [action for raw in reply if (action := _action(raw))],
    )


def _action(raw: bytes) -> Action | None:
    try:
        match orjson.loads(raw):
            case [int() | float() as ms, str(who), str(action), str(target), str(result), *_]:
                return Action(from_ms(int(ms)), who, action, target, result)
    except ValueError:
        pass
    return None

"""What the tests of mixed versions share."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from expirebridge import Bridge

PROGRAMS = Path(__file__).parent / "programs"


def until_settled(bridge: Bridge, states: Mapping[str, str], *, attempts: int = 0) -> None:
    """Wait until these tasks are in these states, after so many attempts at least.

    What waits in the end for an hour must have been attempted before, so nothing may be due. The
    test's own timeout is the limit.
    """
    while True:
        found = {id: bridge.get(id) for id in states}
        reached = {id: task.state for id, task in found.items() if task is not None}
        tried = all(task is not None and task.attempt >= attempts for task in found.values())
        if reached == states and tried and not bridge.count().running:
            return
        time.sleep(0.02)


def differences(one: Any, other: Any, *, where: str = "") -> Iterator[str]:
    """Where two answers differ, by path; fields that only one of them has do not count.

    When a paused task is due is counted from the moment of the question.
    """
    match one, other:
        case dict(), dict():
            moving = {"due"} if one.get("state") == "paused" else set()
            for name in one.keys() & other.keys() - moving:
                yield from differences(one[name], other[name], where=f"{where}/{name}")
        case list(), list() if len(one) == len(other):
            for place, pair in enumerate(zip(one, other, strict=True)):
                yield from differences(*pair, where=f"{where}/{place}")
        case _ if one != other:
            yield f"{where}: {one!r}, {other!r}"

"""The values that choose the lanes of limits, in clear beside arguments that are not.

Which arguments these are is read from the limits that listeners declared, once in ten seconds.
"""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from expirebridge.errors import InvalidTask, NotPermitted, ScriptFailed
from expirebridge.limits.calls import read_lane_arguments
from expirebridge.limits.values import lane_value
from expirebridge.task.calls.call import PARTITIONS, Steps
from expirebridge.task.keys import decode_args

BELIEVED_FOR = 10.0
"""Seconds for which the limits are cached."""


class LaneValues:
    """Finds the arguments of new tasks that choose their lanes."""

    def __init__(self) -> None:
        self._read_at = -math.inf
        self._declared: Mapping[str, Sequence[Any]] = {}

    def of(self, funcs: Sequence[str], args: bytes) -> Steps[bytes]:
        """Return what stands behind the arguments in a record; nothing if no limit asks for any.

        `args` are the arguments as JSON, which each of these functions may get. Raises InvalidTask
        if one name stands for two values of them.
        """
        if time.monotonic() - self._read_at >= BELIEVED_FOR:
            self._declared = yield from _read()
            self._read_at = time.monotonic()
        limits = [limit for func in funcs for limit in self._declared.get(func, ())]
        if not limits:
            return b""
        positional, named = decode_args(args)
        values = dict[str, str]()
        for place, name, default in (one for limit in limits for one in _arguments(limit)):
            value = _value(positional, named, place, name, default)
            if values.setdefault(name, value) != value:
                raise InvalidTask(
                    f"on_signal: the limits of {' and '.join(funcs)} both ask for {name!r}, which "
                    "is another argument of each: give it the same place in both"
                )
        return b" " + orjson.dumps(values) if values else b""


values_in_clear = LaneValues


def _read() -> Steps[Mapping[str, Sequence[Any]]]:
    """The limits of each function. A login that may not read them leaves them out."""
    if (yield from PARTITIONS) > 1:  # then there are none
        return {}
    try:
        return (yield from read_lane_arguments())
    except (NotPermitted, ScriptFailed):
        return {}


def _arguments(limit: object) -> list[tuple[int, str, str | None]]:
    """The arguments of one declared limit, for its lane, its tenant and its cost.

    See `BoundLimit.entry`.
    """
    entry = limit if isinstance(limit, list) else []
    three = [entry[at : at + 3] for at in (1, 4, 7)]
    return [
        (place, name, None if default is None else str(default))
        for place, name, default in (one for one in three if len(one) == 3)
        if isinstance(place, int) and isinstance(name, str)
    ]


def _value(
    args: Sequence[Any], kwargs: Mapping[str, Any], place: int, name: str, default: str | None
) -> str:
    """The value as the name of its lane has it: see include/admission.lua."""
    if name in kwargs:
        return lane_value(kwargs[name])
    if 0 <= place < len(args):
        return lane_value(args[place])
    return default or ""

"""The calls about the fleet: the code version of each listener, and its functions."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from expirebridge.store.record_values import text
from expirebridge.task.calls.call import (
    Anywhere,
    Command,
    milliseconds,
    rows_of,
    script,
)

CONCURRENCY = "="
"""The beginning of the word that says how many handlers a listener runs at once."""
KEY = "key="
"""The beginning of the words that name the keys with which a listener opens; see KeyRing.checks."""
OVERRUN = "over="
"""The beginning of the words that name tasks whose handlers run on after their timeouts."""
_COUNT = "#"
"""The field of a declared code that holds how many functions there are."""
_NUMBER = r"[0-9]{1,9}"
_LENGTH = 16
"""Hexadecimal digits of a fingerprint: two codes of one fleet never have the same by chance."""


class Idle(StrEnum):
    """Why a live listener claims nothing: a word of its heartbeats."""

    STOPPING = "stopping"
    SUSPENDED = "suspended"
    BLOCKED = "blocked"  # a handler does not let its event loop go on


class FleetListener(NamedTuple):
    """A live listener and its code version."""

    name: str
    """`<host>:<pid>:<nonce>`."""
    ago: float
    """Seconds since its last heartbeat."""
    fingerprint: str | None
    """The fingerprint of its functions; None if another client overwrote it."""
    concurrency: int | None = None
    """How many handlers it runs at once; None if it does not say so."""
    idle: Idle | None = None
    """Why it claims nothing, as of its last heartbeat; None if it claims."""
    overruns: tuple[str, ...] = ()
    """Some of the tasks whose handlers run on after their timeouts, and cannot be stopped."""
    keys: tuple[str, ...] = ()
    """What its keys are known by: see KeyRing.checks."""
    words: tuple[str, ...] = ()
    """All words of its heartbeats behind the fingerprint, with those of capabilities."""


class Fleet(NamedTuple):
    """The live listeners, and their functions."""

    listeners: list[FleetListener]
    """In the order of their last heartbeats, the longest ago first."""
    codes: dict[str, dict[str, str]]
    """For each fingerprint: the shape of each function's signature, by the function's name."""

    @property
    def concurrency(self) -> int | None:
        """How many handlers all listeners run at once; None if one does not say, or none beats."""
        each = [one.concurrency for one in self.listeners if one.concurrency is not None]
        return sum(each) if each and len(each) == len(self.listeners) else None

    @property
    def believed(self) -> dict[str, dict[str, str]]:
        """The codes without those that another client overwrote: these have another fingerprint."""
        return {code: shapes for code, shapes in self.codes.items() if digest_of(shapes) == code}

    @property
    def claiming(self) -> "Fleet":
        """The same without listeners that claim nothing, and the functions that only they have."""
        claiming = [one for one in self.listeners if one.idle is None]
        kept = {one.fingerprint for one in claiming}
        return Fleet(
            claiming, {code: shapes for code, shapes in self.codes.items() if code in kept}
        )


def digest_of(shapes: Mapping[str, str]) -> str:
    """Return the fingerprint of a code version: of the shapes of its functions, in any order."""
    canonical = orjson.dumps(shapes, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).hexdigest()[:_LENGTH]


def declare(fingerprint: str, shapes: Mapping[str, str]) -> Command[None]:
    """Declare the functions of a code version: the shape of each, by its name."""
    items = [item for pair in shapes.items() for item in pair]
    return script("declare", fingerprint, *items, read=lambda _: None)


def read_fleet(lease: float) -> Command[Fleet]:
    """Read code version and functions of each listener with a heartbeat within `lease` seconds."""
    return script("read_fleet", milliseconds(lease), read=_read_fleet, route=Anywhere())


def _read_fleet(reply: list[Any]) -> Fleet:
    listeners, *codes = reply
    return Fleet(
        [
            _listener(text(name), ago / 1000, text(code).split())
            for name, ago, code in rows_of(listeners, 3)
        ],
        {text(fingerprint): _shapes(fields) for fingerprint, fields in rows_of(codes, 2)},
    )


def _listener(name: str, ago: float, words: Sequence[str]) -> FleetListener:
    """A listener by the words of its heartbeats: see heartbeat.lua."""

    def behind(mark: str) -> tuple[str, ...]:
        return tuple(word.removeprefix(mark) for word in words if word.startswith(mark))

    numbers = behind(CONCURRENCY)
    return FleetListener(
        name,
        ago,
        fingerprint=words[0] if words else None,
        concurrency=int(numbers[0]) if numbers and re.fullmatch(_NUMBER, numbers[0]) else None,
        idle=next((Idle(word) for word in words if word in set(Idle)), None),
        overruns=behind(OVERRUN),
        keys=behind(KEY),
        words=tuple(words[1:]),
    )


def _shapes(fields: list[bytes]) -> dict[str, str]:
    shapes = {text(name): text(shape) for name, shape in rows_of(fields, 2)}
    shapes.pop(_COUNT, None)
    return dict(sorted(shapes.items()))

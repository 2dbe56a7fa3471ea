"""The settings and their defaults. A value is checked when it is set."""

import difflib
import os
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from expirebridge.durations import LONGEST
from expirebridge.errors import InvalidSetting

DEFAULT_URL = "redis://localhost:6379/1"
_ENVIRONMENT = {"EXPIREBRIDGE_URL": "url", "EXPIREBRIDGE_TASKS": "tasks"}


class Doorbells(StrEnum):
    """What wakes a listener to look for due tasks."""

    EVENTS = "events"  # only the server's `expired` events, which the server sends at its own pace
    CLOCK = "clock"  # only its own clock and the producers' doorbell channel
    BOTH = "both"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of producers and listeners. Times are in seconds unless a name says otherwise.

    Raises InvalidSetting for an invalid value.
    """

    url: str = field(default=DEFAULT_URL, repr=False)  # it may hold a password
    """The server and its database, which should hold nothing else."""
    prefix: str = "expirebridge"
    """The prefix of every key except the trigger keys. Use one per database: listeners with another
    prefix would take its trigger keys for tasks of their own, and run them, too."""
    tasks: Path = Path("tasks")
    """The folder of the handlers' modules."""

    concurrency: int = 100
    """How many handlers one listener runs at once."""
    doorbell: Doorbells = Doorbells.BOTH
    lease: float = 10.0
    """How long a claim holds without a heartbeat. All listeners of a database need the same."""
    grace: float = 30.0
    """How long a stopping listener waits for its handlers, and how long a plain function may run on
    after its timeout before its listener gives up."""
    timeout: float = 300.0
    """How long a handler may run, unless it or its task has a timeout of its own."""

    keep_succeeded: float = 3600.0
    """How long a succeeded or cancelled task can be looked up. All listeners of a database need the
    same: one with a shorter time would forget a task about which another still gets an event."""
    keep_succeeded_count: int = 10_000
    """The most succeeded tasks that are kept (each one is kept for at least 15 s)."""
    keep_failed: float = 30 * 86400.0
    """How long a failed task is kept."""

    def __post_init__(self) -> None:
        self._check_number("concurrency", at_least=1, whole=True)
        self._check_number("lease", at_least=0.5)
        self._check_number("grace", at_least=0)
        self._check_number("timeout", at_least=0.001)
        # Doorbells of a run may arrive after it, and must find its record.
        self._check_number("keep_succeeded", at_least=15)
        self._check_number("keep_failed", at_least=15)
        self._check_number("keep_succeeded_count", at_least=0, whole=True)
        if not isinstance(self.prefix, str) or not self.prefix or "?" in self.prefix:
            raise InvalidSetting(f"prefix={self.prefix!r}: it must be text without '?'")
        if self.doorbell not in list(Doorbells):
            raise InvalidSetting(f"doorbell={self.doorbell!r}: one of {', '.join(Doorbells)}")
        object.__setattr__(self, "doorbell", Doorbells(self.doorbell))

    def _check_number(self, name: str, *, at_least: float, whole: bool = False) -> None:
        value: object = getattr(self, name)
        kinds = (int,) if whole else (int, float)
        if not isinstance(value, kinds) or not at_least <= value <= LONGEST:
            kind = "a whole number" if whole else "a number"
            raise InvalidSetting(f"{name}={value!r}: it must be {kind}, at least {at_least}")

    @classmethod
    def read(cls, **given: Any) -> Self:
        """Take each setting from the arguments that are not None, the environment, or its default.

        The environment variables are EXPIREBRIDGE_URL and EXPIREBRIDGE_TASKS. Raises
        InvalidSetting for a name that is not a setting, and suggests the nearest one.
        """
        known = {one.name for one in fields(cls)}
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise InvalidSetting(f"{name!r} is not a setting{hint}")
        values: dict[str, Any] = {
            setting: os.environ[variable]
            for variable, setting in _ENVIRONMENT.items()
            if os.environ.get(variable)
        }
        values |= {name: value for name, value in given.items() if value is not None}
        if "tasks" in values:
            values["tasks"] = Path(values["tasks"])
        return cls(**values)

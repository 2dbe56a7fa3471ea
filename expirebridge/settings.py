"""The settings and their defaults. A value is checked when it is set."""

import functools
import logging
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from expirebridge.errors import InvalidSetting, InvalidTask
from expirebridge.task import framework
from expirebridge.task.codec import Codec, check_codec
from expirebridge.task.durations import LONGEST, seconds_of
from expirebridge.task.keywords import advising
from expirebridge.task.texts import event, short_repr

if TYPE_CHECKING:
    from expirebridge.task.key_ring import KeyRing

logger = logging.getLogger("expirebridge")

DEFAULT_URL = "redis://localhost:6379/1"
LEAST_KEPT = 15
"""Seconds that a finished task is kept at least: late events of its key must find its record."""
LEAST_MEMORY = 64 * 1024 * 1024
"""Bytes: Python with the handlers' modules needs nearly as much."""
LEAST_HORIZON = 600.0
"""Seconds: clocks may differ, and the relay of a listener may stand still for a while."""
MOST_MEMORY = 2**62
"""What systems can count."""
HandlersPlace = Path | str
"""The folder of the handlers' modules, or `module:function`, which lists them."""
_LISTING = re.compile(r"[^\W\d][\w.]*:[^\W\d]\w*")
_LEDGER_NAME = re.compile(r"[A-Za-z0-9_.:@-]{1,64}", re.ASCII)
VARIABLES = "EXPIREBRIDGE_"
"""Begins the names of all environment variables that are read."""
_NO_SETTINGS = {"DASHBOARD_TOKEN", "DASHBOARD_USERS", "LISTEN", "RELOADER", "WORKER", "JOURNAL"}
"""Other variables that are read; without their beginning."""
_OF_A_SERVICE = re.compile(r"(\w+_)?(SERVICE|PORT)(_\w+)?")
"""What Kubernetes adds for a service that is named expirebridge."""


class Doorbells(StrEnum):
    """What wakes a listener to look for due tasks."""

    CLOCK = "clock"  # only its own clock and the producers' doorbell channel
    BOTH = "both"


@advising
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
    ledger: str | None = field(default=None, repr=False)  # it may hold a password
    """The SQL database that holds the ledger, as a URL of SQLAlchemy. None: there is no ledger."""
    ledger_name: str = "default"
    """Which ledger: several applications can share its table."""
    ledger_keep: float = 30 * 86400.0
    """How long a row of the ledger is kept after its task has finished."""
    ledger_horizon: float | None = None
    """How far ahead rows of the ledger are brought to Redis: what is due later stays in SQL until
    it comes so near. None: all are, at once."""
    tasks: HandlersPlace = Path("tasks")
    """The folder of the handlers' modules; or `module:function`, a function that returns a dict:
    for each module's dotted name, the module part of its handlers' names."""
    app_dir: Path | None = None
    """The directory in which the outermost package of the handlers' modules is. None: the first one
    above `tasks` that has no `__init__.py`."""
    only_marked: bool = False
    """Whether a function needs `@handler`, or a place in its module's HANDLERS, to be a handler."""
    functions: tuple[str, ...] = ()
    """Patterns, such as `mail.*`, of the handlers that a listener runs. Empty: all."""
    codec: Codec | str | None = None
    """What keeps arguments of more than 64 KiB elsewhere, or its place, `module:object`. None:
    producers refuse such arguments."""
    keys: str | None = field(default=None, repr=False)
    """Keys that seal arguments, results and errors: "name:base64 name2:base64". The first one
    seals, all open. None: they are stored as they are."""

    concurrency: int = 100
    """How many handlers one listener runs at once."""
    processes: int | None = None
    """How many processes one listener has at most for handlers with `process=True`. None: one for
    each core that it may use."""
    process_memory: int | None = None
    """How many bytes such a process may use. None: no limit."""
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

    def __repr__(self) -> str:
        return short_repr(self)

    def __post_init__(self) -> None:
        place = os.fspath(self.tasks)
        object.__setattr__(self, "tasks", place if _LISTING.fullmatch(place) else Path(place))
        self._check_number("concurrency", at_least=1, whole=True)
        if self.processes is not None:
            self._check_number("processes", at_least=1, whole=True)
        if self.process_memory is not None:
            self._check_memory(self.process_memory)
        self._check_number("lease", at_least=0.5)
        self._check_number("grace", at_least=0)
        self._check_number("timeout", at_least=0.001)
        for name in ("keep_succeeded", "keep_failed", "ledger_keep"):
            self._check_number(name, at_least=LEAST_KEPT)
        if self.ledger_horizon is not None:
            self._check_number("ledger_horizon", at_least=LEAST_HORIZON)
        self._check_number("keep_succeeded_count", at_least=0, whole=True)
        if not isinstance(self.prefix, str) or not self.prefix or "?" in self.prefix:
            raise _invalid("prefix", self.prefix, "it must be text without '?'")
        if not isinstance(self.ledger_name, str) or not _LEDGER_NAME.fullmatch(self.ledger_name):
            advice = "1 to 64 characters from A-Z a-z 0-9 and _ . : @ -"
            raise _invalid("ledger_name", self.ledger_name, advice)
        if self.keys is not None:
            from expirebridge.task.key_ring import parse_keys  # noqa: PLC0415 - only with keys

            parse_keys(self.keys)
        if fault := check_codec(self.codec):
            raise _invalid("codec", self.codec, fault)
        if self.doorbell not in list(Doorbells):
            raise _invalid("doorbell", self.doorbell, f"one of {', '.join(Doorbells)}")
        object.__setattr__(self, "doorbell", Doorbells(self.doorbell))

    @property
    def key_ring(self) -> "KeyRing | None":
        """The keys. Raises InvalidSetting if `cryptography` is not installed."""
        if self.keys is None:
            return None
        from expirebridge.task.key_ring import key_ring  # noqa: PLC0415 - only with keys

        return key_ring(self.keys)

    def _check_number(self, name: str, *, at_least: float, whole: bool = False) -> None:
        value: object = getattr(self, name)
        kinds = (int,) if whole else (int, float)
        if not isinstance(value, kinds) or not at_least <= value <= LONGEST:
            kind = "a whole number" if whole else "a number"
            raise _invalid(name, value, f"it must be {kind}, at least {at_least}")

    def _check_memory(self, value: object) -> None:
        if not isinstance(value, int):
            raise _invalid("process_memory", value, "it must be a number of bytes")
        if not LEAST_MEMORY <= value < MOST_MEMORY:
            raise _invalid("process_memory", value, "it must be from 64m to 4194303t")

    @classmethod
    def read(cls, **given: Any) -> Self:
        """Take each setting from the arguments that are not None, the environment, the project of
        this process (such as Django's settings), or its default.

        The environment variable of a setting is EXPIREBRIDGE_ and its name in capitals:
        EXPIREBRIDGE_URL, EXPIREBRIDGE_CONCURRENCY. `functions` may be text with commas, or several
        such texts; times, numbers and sizes may be text, such as "30d", "10s", "4" and "512m".

        Raises InvalidSetting for a value that cannot be, by the name of the variable or the key
        that holds it, and for a name that is not a setting: then it suggests the nearest one.
        """
        known = {one.name for one in fields(cls)}
        for name in given:
            if name not in known:
                raise InvalidSetting(f"{name!r} is not a setting{_hint(name, known)}")
        said = dict(framework.defaults())
        places = {name: f"EXPIREBRIDGE[{name.upper()!r}]={value!r}" for name, value in said.items()}
        for name in known:
            variable = VARIABLES + name.upper()
            if value := os.environ.get(variable):
                said[name], places[name] = value, f"{variable}={value}"
        for name, value in given.items():
            if value is not None:
                said[name] = value
                places.pop(name, None)
        try:
            return cls(**{name: _read(name, value) for name, value in said.items()})
        except InvalidSetting as error:
            name, fault = error.setting, error.fault
            if not name:  # of the keys, which must not be shown
                raise
            if name in places:
                raise InvalidSetting(f"{places[name]}: {fault}") from None
            raise _invalid(name, said[name], fault) from None


def named_url() -> str | None:
    """The server's URL as the environment or the project says it; None if neither does."""
    return os.environ.get("EXPIREBRIDGE_URL") or framework.defaults().get("url")


@functools.cache
def warn_of_variables() -> None:
    """Warn once of environment variables that look like settings, and are none."""
    known = {VARIABLES + one.name.upper() for one in fields(Settings)}
    known |= {VARIABLES + name for name in _NO_SETTINGS}
    for name in sorted(os.environ):
        own = name.removeprefix(VARIABLES)
        if own != name and name not in known and not _OF_A_SERVICE.fullmatch(own):
            logger.warning(
                "the environment variable %s is no setting, and is ignored%s",
                name, _hint(name, known), extra=event("unknown variable", variable=name),
            )  # fmt: skip


def _hint(name: str, known: Iterable[str]) -> str:
    """The nearest name that is known, as a question."""
    import difflib  # noqa: PLC0415 - only for a mistake

    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _invalid(name: str, value: object, fault: str) -> InvalidSetting:
    return InvalidSetting(fault, setting=name, value=value)


def _read(name: str, value: Any) -> Any:
    """The value of a setting, which may be text."""
    match name:
        case "app_dir":
            return Path(value)
        case "only_marked":
            return _read_flag(name, value)
        case "functions":
            return _read_patterns(value)
        case "ledger_keep" | "ledger_horizon" | "keep_succeeded" | "keep_failed" | "timeout":
            return _read_duration(name, value)
        case "lease" | "grace":
            return _read_seconds(name, value)
        case "processes" | "concurrency" | "keep_succeeded_count":
            return _read_count(name, value)
        case "process_memory":
            return _read_size(name, value)
    return value


def _read_flag(name: str, value: object) -> bool:
    """A setting that is on or off, as environment variables say it."""
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    found = words.get(str(value).lower())
    if found is None:
        raise _invalid(name, value, f"one of {', '.join(words)}")
    return found


def _read_duration(name: str, value: object) -> object:
    """Seconds, as text with a unit says them: 30d."""
    if not isinstance(value, str):
        return value
    try:
        return seconds_of(value, name=name)
    except InvalidTask:
        raise _invalid(name, value, "write it like 90s, 15m, 12h or 30d") from None


def _read_seconds(name: str, value: object) -> object:
    """As `_read_duration`, where a number alone is seconds too, as these options always took it."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return _read_duration(name, value)


def _read_count(name: str, value: object) -> object:
    """A whole number, as environment variables say it."""
    if not isinstance(value, str):
        return value
    if not (value.isascii() and value.isdigit()):
        raise _invalid(name, value, "it must be a whole number")
    return int(value)


def _read_size(name: str, value: object) -> object:
    """Bytes, as text with a unit says them: 512m is 512 MiB."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"([0-9]{1,15})([kmgt]?)(?:i?b)?", value.strip().lower())
    if found is None:
        raise _invalid(name, value, "give a size, such as 512m or 2g")
    number, unit = found.groups()
    return int(number) * 1024 ** " kmgt".index(unit or " ")


def _read_patterns(given: object) -> tuple[str, ...]:
    """The patterns in one text or several, each with commas between them."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise _invalid("functions", given, "give patterns, such as 'mail.*,orders.rate'")
    patterns = tuple(part.strip() for text in texts for part in text.split(","))
    if not all(patterns):
        raise _invalid("functions", given, "a pattern is empty")
    return patterns

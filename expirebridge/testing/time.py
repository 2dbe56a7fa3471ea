"""The server's time in tests: scripts with a clock that is ahead by an adjustable offset.

The offset is kept in the database, in ms. A script adds it to what the server's clock says and to
when a key expires, and takes it away from the end that it gives a timer. So its times are those of
the moved clock, and a key's TTL is what is left until then, as any client expects.
"""

from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from types import TracebackType
from typing import Self

from expirebridge.errors import InvalidSetting
from expirebridge.store.client import Store
from expirebridge.store.script_loader import SHIPPED, ScriptLibrary
from expirebridge.task.calls.call import Command, script

_OFFSET = "local offset = tonumber(redis.call('GET', own_key('offset')) or 0)\n"
_CHANGES = {
    "include/clock": [
        ("-- gives ", "-- gives offset, "),
        ("-- The server's clock", f"{_OFFSET}\n-- The server's clock"),
        ("+ tonumber(time[2])", "+ tonumber(time[2]) + offset * 1000"),
        (
            "'PXAT', math.floor(math.min(due, LATEST))",
            "'PXAT', math.floor(math.min(due, LATEST)) - offset",
        ),
        (
            "  if redis.REDIS_VERSION_NUM then "
            "return math.min(redis.call('PEXPIRETIME', name), LATEST) end\n",
            "  if redis.REDIS_VERSION_NUM then\n"
            "    local ends = redis.call('PEXPIRETIME', name)\n"
            "    return ends < 0 and ends or math.min(ends + offset, LATEST)\n"
            "  end\n",
        ),
    ],
}
"""The text that is replaced in each file that asks the server for a time, or gives it one."""


@cache
def movable() -> ScriptLibrary:
    """The scripts with a clock that can be moved, and `shift`, which moves it."""
    texts = {file: _changed(file, changes) for file, changes in _CHANGES.items()}
    texts["shift"] = (resources.files(__package__) / "shift.lua").read_text(encoding="utf-8")
    return ScriptLibrary(texts)


def _changed(file: str, changes: list[tuple[str, str]]) -> str:
    text = SHIPPED.text(file)
    for old, new in changes:
        if text.count(old) != 1:
            raise ValueError(f"{file}.lua has changed: {old!r} is to stand in it once")
        text = text.replace(old, new)
    return text


def shift(to: int) -> Command[int]:
    """Move the clock forward to this ms since 1970, if that is to come; now in microseconds."""
    return script("shift", to, read=int)


def ahead(store: Store) -> int:
    """The ms by which the clock was moved so far."""
    return int(store.client.get(f"{store.database.prefix}:offset") or 0)


def now() -> Command[int]:
    """Read the moved clock, in microseconds since 1970."""
    return shift(0)


# Python's own clock, moved together with the server's.

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PythonClock:
    """Python's clock: replaces `datetime.now()` and `time.time()` until its `with` block ends.

    Time goes on in between. Raises InvalidSetting if time-machine is not installed.
    """

    def __init__(self) -> None:
        try:
            import time_machine  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise InvalidSetting(
                "python_clock: time-machine is not installed: pip install 'expirebridge[testing]'"
            ) from error
        self._travel = time_machine.travel(datetime.now(UTC), tick=True)
        self._coordinates = self._travel.start()

    def move(self, now_us: int) -> None:
        """Show this time, in microseconds since 1970."""
        self._coordinates.move_to(_EPOCH + timedelta(microseconds=now_us))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._travel.stop()

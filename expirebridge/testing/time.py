"""The server's time in tests: scripts whose clock is ahead by an offset, which can be moved.

The offset is kept in the database, in ms. A script adds it to what the server's clock says and to
when a key expires, and takes it away from the end that it gives a timer. So its times are those of
the moved clock, and a key's TTL is what is left until then, as any client expects.
"""

from functools import cache
from importlib import resources

from expirebridge.store.client import Store
from expirebridge.store.commands import Call
from expirebridge.store.commands.call import script
from expirebridge.store.script_loader import SHIPPED, Library

_OFFSET = "local offset = tonumber(redis.call('GET', own_key('offset')) or 0)\n"
_CHANGES = {
    "include/clock": [
        ("-- The server's clock", f"-- include names\n\n{_OFFSET}\n-- The server's clock"),
        ("+ tonumber(time[2])", "+ tonumber(time[2]) + offset * 1000"),
    ],
    "include/timers": [
        ("'PXAT', due)", "'PXAT', due - offset)"),
        (
            "  if redis.REDIS_VERSION_NUM then return redis.call('PEXPIRETIME', name) end\n",
            "  if redis.REDIS_VERSION_NUM then\n"
            "    local ends = redis.call('PEXPIRETIME', name)\n"
            "    return ends < 0 and ends or ends + offset\n"
            "  end\n",
        ),
    ],
}
"""What is written otherwise in each file that asks the server for a time, or gives it one."""


@cache
def movable() -> Library:
    """The scripts with a clock that can be moved, and `shift`, which moves it."""
    texts = {file: _changed(file, changes) for file, changes in _CHANGES.items()}
    folder = resources.files(__package__) / "lua"
    texts["shift"] = (folder / "shift.lua").read_text(encoding="utf-8")
    return Library(texts)


def _changed(file: str, changes: list[tuple[str, str]]) -> str:
    text = SHIPPED.text(file)
    for old, new in changes:
        if text.count(old) != 1:
            raise ValueError(f"{file}.lua has changed: {old!r} is to stand in it once")
        text = text.replace(old, new)
    return text


def shift(to: int) -> Call[int]:
    """Move the clock forward to this ms since 1970, if that is to come; now in microseconds."""
    return script("shift", to, read=int)


def ahead(store: Store) -> int:
    """How many ms the clock was moved so far."""
    return int(store.client.get(f"{store.database.prefix}:offset") or 0)


def now() -> Call[int]:
    """What the clock shows, in microseconds since 1970."""
    return shift(0)

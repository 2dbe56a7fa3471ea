"""The calls of a listener that reconciles keys: after events, on scans, and for expired leases."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

from expirebridge.settings import Settings
from expirebridge.task.calls.call import CHUNK, Argument, Command, ids_of, milliseconds, script
from expirebridge.task.keys import InvalidKey, TriggerKey


class Adoption(IntEnum):
    """The outcome for a key that an event named, or a scan found."""

    ADOPTED = 1
    KNOWN = 2
    INVALID = 3  # kept as a failed task, with the reason
    NOTHING = 4
    TAKEN = 5  # its ids belong to other tasks: it is not run


class EventKind(StrEnum):
    """The event about a key."""

    EXPIRED = "expired"
    DELETED = "deleted"
    LIVE = "live"  # anything else: it was set or edited, or a scan found it
    EXPIRED_IN_LEDGER = "expired in ledger"  # it expired, and its id has a row in the ledger


@dataclass(frozen=True, slots=True)
class KeyEvent:
    """A trigger key that an event named, or a scan found."""

    name: bytes
    id: str
    call: bytes
    heard: EventKind
    invalid: str = ""
    """Why it cannot be a task, if it cannot."""

    @classmethod
    def of(cls, key: TriggerKey, name: bytes, heard: EventKind) -> "KeyEvent":
        """The hint for a key whose name was read. Its arguments must be in the name."""
        return cls(name, key.id, key.call, heard)

    @classmethod
    def of_invalid(cls, name: bytes, error: InvalidKey, heard: EventKind) -> "KeyEvent":
        """The hint for a key of our form that cannot be a task; long names are cut."""
        call = name.partition(b":?")[2]
        return cls(name, error.id, call[:512], heard, str(error))

    def encode(self) -> tuple[Argument, ...]:
        """The arguments for adopt.lua."""
        return (self.name, self.id, self.call, self.heard, self.invalid)


def find_unexplained(names: Iterable[bytes], heard: EventKind) -> Command[set[bytes]]:
    """Return the keys that need reconciling after this event: records explain most."""
    return script("find_unexplained", heard, *names, read=set)


def adopt(hints: Iterable[KeyEvent], settings: Settings) -> Command[list[Adoption]]:
    """Make records for foreign tasks, and follow edits of the timers of known ones."""
    items = [argument for hint in hints for argument in hint.encode()]
    return script(
        "adopt", milliseconds(settings.keep_failed), milliseconds(settings.keep_succeeded), *items,
        read=lambda reply: [Adoption(code) for code in reply[::2]],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ScanStep:
    """The keys without a record in a part of the database."""

    cursor: str
    """The next position; "0" at the end."""
    alien: int
    """Keys that are not expirebridge's."""
    repaired: list[str]
    """Tasks whose records were in no state set, and are in one again."""
    found: list[bytes]


def scan(cursor: str, count: int, settings: Settings | None = None) -> Command[ScanStep]:
    """Scan about `count` keys for trigger keys without a record.

    With a listener's settings it also puts records that are in no state set back into theirs.
    """
    times = (settings.lease, settings.keep_failed) if settings else ()
    return script("scan", cursor, count, *map(milliseconds, times), read=_read_step)


def check_keys(names: Iterable[bytes], settings: Settings) -> Command[ScanStep]:
    """Check these keys of one partition as `scan` does."""
    times = (settings.lease, settings.keep_failed)
    return script("check_keys", *map(milliseconds, times), *names, read=_read_step)


def _read_step(reply: list[Any]) -> ScanStep:
    return ScanStep(reply[0].decode(), reply[1], ids_of(reply[2]), reply[3:])


def walk(cursor: str, count: int) -> Command[tuple[str, list[bytes]]]:
    """Walk over about `count` keys of a server: where to go on, "0" at the end, and their names."""
    return Command("SCAN", (cursor, "COUNT", count), _read_walk, is_script=False)


def _read_walk(reply: Any) -> tuple[str, list[bytes]]:
    cursor, names = reply
    return str(int(cursor)), names


@dataclass(frozen=True, slots=True)
class Sweep:
    """The result of one pass."""

    more: bool
    forgotten: int
    lapsed: list[str]
    failed: list[str]
    """Tasks that lapsed once too often."""
    lapse_in: float | None
    """Seconds until the first lease of those that run is over; None if none runs."""
    mended: int
    """How many places in lanes of limits were wrong."""
    stopping: list[str]
    """Cancelled groups of which members are still to be cancelled."""


def sweep(settings: Settings, most: int = CHUNK) -> Command[Sweep]:
    """Take back lapsed tasks, look at paused ones, forget finished ones; at most `most` ids."""
    return script(
        "sweep", milliseconds(settings.lease), most, settings.keep_succeeded_count,
        milliseconds(settings.keep_succeeded), milliseconds(settings.keep_failed),
        read=_read_sweep,
    )  # fmt: skip


def _read_sweep(reply: list[Any]) -> Sweep:
    more, forgotten, lapsed, failed, lapse_in, mended, stopping = reply
    return Sweep(
        more=bool(more),
        forgotten=forgotten,
        lapsed=ids_of(lapsed),
        failed=ids_of(failed),
        lapse_in=lapse_in / 1000 if lapse_in >= 0 else None,
        mended=mended,
        stopping=ids_of(stopping),
    )


def is_primary() -> Command[bool]:
    """Ask by ROLE if the server is a primary now."""
    return Command("ROLE", (), lambda reply: reply[0] == b"master", is_script=False)

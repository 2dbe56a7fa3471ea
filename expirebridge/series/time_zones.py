"""Time zones by their IANA names, and which version of their data this host has.

Python looks for a zone in the folders of `zoneinfo.TZPATH`, then in the package `tzdata`, which is
installed with expirebridge. So hosts of one fleet may have different data for one zone.
"""

import difflib
import functools
import importlib.resources
import re
import zoneinfo
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from expirebridge.errors import InvalidTask
from expirebridge.task.task import from_ms

_VERSION = re.compile(r"(?:# version )?(\d{4}[a-z]{1,2})", re.ASCII)
_OFFSET = re.compile(r"-?\d{1,5}", re.ASCII)
_VERSION_FILES = ("tzdata.zi", "+VERSION")
"""The files with the version of the zones, on Linux distributions, macOS and the BSDs."""
_OF_THE_HOST = frozenset({"localtime", "Factory"})
"""Names for a host's own setting, or for no zone."""


@functools.cache
def zone_of(name: str) -> ZoneInfo:
    """Return the zone of this name. Raises InvalidTask, with the nearest names, if there is none.

    Case matters, as it does on most file systems.
    """
    if name in _OF_THE_HOST:
        raise InvalidTask(
            f"tz={name!r}: it may be another zone on another host; name the zone itself, such as "
            "'Europe/Berlin'"
        )
    if name not in _names():
        raise InvalidTask(f"tz={name!r}: no such time zone{_nearest(name)}")
    return ZoneInfo(name)


@functools.cache
def tzdata_version(name: str) -> str:
    """Return the version of the data that this host has for a zone, such as `2026a`.

    Later versions are greater as text. It is empty, which is less than any, where the folder with
    the zone does not say its version.
    """
    return next((_version_in(folder) for folder in _folders() if (folder / name).is_file()), "")


@functools.lru_cache(maxsize=4096)
def tzdata_at(name: str, moment: int) -> str:
    """Return by which data of this host a moment in a zone is computed, in ms since 1970.

    That is their version, or 0 if it is not known, and the offset from UTC then, in seconds. It is
    empty for UTC, whose data never change.
    """
    if name == "UTC":
        return ""
    offset = from_ms(moment).astimezone(zone_of(name)).utcoffset()
    assert offset is not None  # noqa: S101 - for the type checker: a zone has an offset
    return f"{tzdata_version(name) or 0} {offset // timedelta(seconds=1)}"


def offset_in(tzdata: str) -> int | None:
    """Read the offset that `tzdata_at` gave; None if it is not there."""
    _, _, offset = tzdata.partition(" ")
    return int(offset) if _OFFSET.fullmatch(offset) else None


def newest_tzdata() -> str:
    """Return the latest version of the data that this host has; empty if none is known."""
    return max(map(_version_in, _folders()))


def _folders() -> Iterator[Path]:
    """The directories in which Python looks for zones, in its order."""
    yield from map(Path, zoneinfo.TZPATH)
    with importlib.resources.as_file(importlib.resources.files("tzdata")) as package:
        yield package / "zoneinfo"


@functools.cache
def _names() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


@functools.cache
def _version_in(folder: Path) -> str:
    for file in _VERSION_FILES:
        try:
            with (folder / file).open(encoding="ascii", errors="replace") as lines:
                found = _VERSION.match(lines.readline())
        except OSError:
            continue
        if found:
            return found[1]
    return ""


def _nearest(name: str) -> str:
    """The names that may have been meant, as a half sentence; or nothing."""
    known = {one.casefold(): one for one in _names()} | {
        one.rpartition("/")[2].casefold(): one for one in sorted(_names(), reverse=True)
    }
    near = difflib.get_close_matches(name.casefold().replace(" ", "_"), known, n=3)
    meant = dict.fromkeys(known[one] for one in near)
    return f" (did you mean {' or '.join(map(repr, meant))}?)" if meant else ""

"""Loads the functions into a server, and looks first at what is there under their name.

A server has one library of a name, for all of its databases and for every application on it.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from expirebridge.errors import ServerError
from expirebridge.store import functions
from expirebridge.store.commands.call import Steps, command


class LoadResult(StrEnum):
    """What became of the request to load the functions."""

    LOADED = "loaded"
    SAME = "there already"
    REPLACED = "replaced"
    NEWER = "left as it is"  # the server has those of a newer expirebridge
    SCRIPTS = "loaded as scripts"  # the server knows no functions: Redis before 7


@dataclass(frozen=True, slots=True)
class Loading:
    """What was done, and the version that was there before; "" if there was none."""

    result: LoadResult
    before: str = ""


def load(*, replace: bool) -> Steps[Loading]:
    """Load the functions, or on Redis 6.2 their scripts; a newer library makes way only if told."""
    try:
        found = yield from command("FUNCTION", "LIST", "LIBRARYNAME", functions.LIBRARY, "WITHCODE")
    except ServerError as error:
        if "unknown command" not in str(error):
            raise
        return (yield from _load_scripts())
    if not found:
        yield from command("FUNCTION", "LOAD", functions.library())
        return Loading(LoadResult.LOADED)
    there = dict(zip(found[0][::2], found[0][1::2], strict=True))[b"library_code"].decode()
    before = functions.version_of(there)
    if there == functions.library():
        return Loading(LoadResult.SAME, before)
    if not replace and is_newer(before, functions.version()):
        return Loading(LoadResult.NEWER, before)
    yield from command("FUNCTION", "LOAD", "REPLACE", functions.library())
    return Loading(LoadResult.REPLACED, before)


def find_version() -> Steps[str | None]:
    """The version of the functions that a server has, "" if it has none.

    None if it cannot have any: Redis before 7.
    """
    try:
        version = yield from command("FCALL_RO", f"{functions.LIBRARY}_version", 0)
    except ServerError as error:
        if "unknown command" in str(error):
            return None
        if "Function not found" not in str(error):
            raise
        return ""
    return str(version.decode())


def is_newer(version: str, than: str) -> bool:
    """Whether one version comes after the other."""
    return _numbers(version) > _numbers(than)


def _load_scripts() -> Steps[Loading]:
    for name in functions.NAMES:
        yield from command("SCRIPT", "LOAD", functions.script(name).text)
    return Loading(LoadResult.SCRIPTS)


def _numbers(version: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", version)]

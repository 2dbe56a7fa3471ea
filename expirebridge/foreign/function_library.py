"""The function library for clients in other languages: its text, and loading it into a server.

`lua/functions/<name>.lua`, in any part of the package, reads the arguments as a person writes them,
and words the reply; the operation's own script does the work. Servers without functions get a
script for each. A server has one library of a name, for all its databases and every application.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import metadata
from pathlib import Path

from expirebridge.errors import ServerError
from expirebridge.store import script_loader
from expirebridge.store.script_loader import ScriptText
from expirebridge.task.calls.call import Steps, command

LIBRARY = "expirebridge"
_PACKAGE = Path(__file__).parents[1]
_CHECKS = Path(__file__).parent / "lua" / "functions" / "include" / "checks.lua"
_FILES = {path.stem: path for path in _PACKAGE.glob("*/lua/functions/*.lua")}
_USAGE = re.compile(r"\A((?:-- .+\n)+)")
_VERSION = re.compile(r"^-- version: (?P<version>\S+)$", re.MULTILINE)

NAMES = tuple(sorted(_FILES))


@dataclass(frozen=True, slots=True)
class Function:
    """One operation as clients in other languages call it."""

    name: str
    usage: str
    """How it is called, after FCALL."""
    flags: tuple[str, ...]
    body: str
    """Defines what `serve` in checks.lua needs."""

    @property
    def arguments(self) -> str:
        """The words after its name in a call."""
        return self.usage.partition(" ")[2]

    def served(self, keys: str, given: str) -> str:
        """The expression that answers a call."""
        return f"serve('{self.usage}', read_arguments, operate, tell, {keys}, {given})"


@cache
def function(name: str) -> Function:
    """Return the function of an operation."""
    text = _FILES[name].read_text(encoding="utf-8")
    usage = _USAGE.match(text)
    if usage is None:
        raise ValueError(f"functions/{name}.lua does not begin with how it is called")
    operation = script_loader.SHIPPED.load(name)
    return Function(
        name=f"{LIBRARY}_{name}",
        usage=" ".join(line.removeprefix("-- ") for line in usage[1].splitlines()),
        flags=operation.flags,
        body=f"local function operate(KEYS, ARGV)\n{operation.plain.text}end\n{text}",
    )


def version() -> str:
    """Return the version of this package, which the library carries."""
    return metadata.version("expirebridge")


@cache
def library_text() -> str:
    """Return the library's text, for FUNCTION LOAD."""
    loaded = map(function, NAMES)
    blocks = [
        f"do\n{one.body}{_registered(one.name, one.flags, one.served('keys', 'given'))}end"
        for one in loaded
    ]
    told = _registered(f"{LIBRARY}_version", ("no-writes",), f"'{version()}'")
    head = f"#!lua name={LIBRARY}\n-- version: {version()}"
    return "\n".join([head, _checks(), *blocks, told])


def version_of(text: str) -> str:
    """Return the version in a library's text; "0" if there is none."""
    said = _VERSION.search(text)
    return said["version"] if said else "0"


@cache
def script(name: str) -> ScriptText:
    """Return the script that replaces a function on servers without them, for EVAL and EVALSHA."""
    one = function(name)
    return ScriptText.of(f"{_checks()}\n{one.body}return {one.served('KEYS', 'ARGV')}\n")


class LoadResult(StrEnum):
    """The outcome of loading the functions."""

    LOADED = "loaded"
    SAME = "there already"
    REPLACED = "replaced"
    NEWER = "left as it is"  # the server has those of a newer expirebridge
    SCRIPTS = "loaded as scripts"  # the server has no functions: Redis before 7


@dataclass(frozen=True, slots=True)
class Loading:
    """The outcome at one server, and the version it had before; "" if it had none."""

    result: LoadResult
    before: str = ""


def load(*, replace: bool) -> Steps[Loading]:
    """Load the functions, or on Redis 6.2 their scripts. A newer library stays unless `replace`."""
    try:
        found = yield from command("FUNCTION", "LIST", "LIBRARYNAME", LIBRARY, "WITHCODE")
    except ServerError as error:
        if "unknown command" not in str(error):
            raise
        return (yield from _load_scripts())
    if not found:
        yield from command("FUNCTION", "LOAD", library_text())
        return Loading(LoadResult.LOADED)
    there = dict(zip(found[0][::2], found[0][1::2], strict=True))[b"library_code"].decode()
    before = version_of(there)
    if there == library_text():
        return Loading(LoadResult.SAME, before)
    if not replace and is_newer(before, version()):
        return Loading(LoadResult.NEWER, before)
    yield from command("FUNCTION", "LOAD", "REPLACE", library_text())
    return Loading(LoadResult.REPLACED, before)


def find_version() -> Steps[str | None]:
    """Read the version of a server's functions; "" if it has none.

    None if it cannot have any: Redis before 7.
    """
    try:
        reply = yield from command("FCALL_RO", f"{LIBRARY}_version", 0)
    except ServerError as error:
        if "unknown command" in str(error):
            return None
        if "Function not found" not in str(error):
            raise
        return ""
    return str(reply.decode())


def is_newer(version: str, than: str) -> bool:
    """True if a version is newer `than` the other."""
    return _numbers(version) > _numbers(than)


def _registered(name: str, flags: tuple[str, ...], answer: str) -> str:
    listed = ", ".join(f"'{flag}'" for flag in flags)
    return (
        f"redis.register_function{{ function_name = '{name}', flags = {{ {listed} }},\n"
        f"  callback = function(keys, given) return {answer} end }}\n"
    )


def _checks() -> str:
    return _CHECKS.read_text(encoding="utf-8")


def _load_scripts() -> Steps[Loading]:
    for name in NAMES:
        yield from command("SCRIPT", "LOAD", script(name).text)
    return Loading(LoadResult.SCRIPTS)


def _numbers(version: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", version)]

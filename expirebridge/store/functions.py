"""Builds what clients in other languages call: a library of functions, and a script for each.

`lua/functions/<name>.lua` says how a person writes a call, and what is answered. What is done is
the operation's own script, `lua/producer/<name>.lua`, as it is.
"""

import re
from dataclasses import dataclass
from functools import cache
from importlib import metadata, resources

from expirebridge.store import script_loader
from expirebridge.store.script_loader import ScriptText

LIBRARY = "expirebridge"
_FOLDER = resources.files(__package__) / "lua" / "functions"
_USAGE = re.compile(r"\A((?:-- .+\n)+)")
_VERSION = re.compile(r"^-- version: (?P<version>\S+)$", re.MULTILINE)

NAMES = ("make", "cancel", "reschedule", "pause", "resume", "run_now", "get")


@dataclass(frozen=True, slots=True)
class Function:
    """One operation as another language calls it."""

    name: str
    usage: str
    """How it is called, after FCALL."""
    flags: tuple[str, ...]
    body: str
    """Defines what `serve` in checks.lua needs."""

    def served(self, keys: str, given: str) -> str:
        """The expression that answers a call."""
        return f"serve('{self.usage}', read_arguments, operate, tell, {keys}, {given})"


@cache
def load(name: str) -> Function:
    """Return the function of the operation `name`."""
    text = (_FOLDER / f"{name}.lua").read_text(encoding="utf-8")
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
    """The version of this package, which the library carries."""
    return metadata.version("expirebridge")


@cache
def library() -> str:
    """The library's text, for FUNCTION LOAD."""
    loaded = map(load, NAMES)
    blocks = [
        f"do\n{one.body}{_registered(one.name, one.flags, one.served('keys', 'given'))}end"
        for one in loaded
    ]
    told = _registered(f"{LIBRARY}_version", ("no-writes",), f"'{version()}'")
    head = f"#!lua name={LIBRARY}\n-- version: {version()}"
    return "\n".join([head, _checks(), *blocks, told])


def version_of(library: str) -> str:
    """The version that a library's text says; "0" if it says none."""
    said = _VERSION.search(library)
    return said["version"] if said else "0"


@cache
def script(name: str) -> ScriptText:
    """The script that does the same for servers without functions, for EVAL and EVALSHA."""
    function = load(name)
    return ScriptText.of(f"{_checks()}\n{function.body}return {function.served('KEYS', 'ARGV')}\n")


def _registered(name: str, flags: tuple[str, ...], answer: str) -> str:
    listed = ", ".join(f"'{flag}'" for flag in flags)
    return (
        f"redis.register_function{{ function_name = '{name}', flags = {{ {listed} }},\n"
        f"  callback = function(keys, given) return {answer} end }}\n"
    )


def _checks() -> str:
    return (_FOLDER / "include" / "checks.lua").read_text(encoding="utf-8")

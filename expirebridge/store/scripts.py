"""Loads the Lua scripts: one file per operation, with the shared functions that it includes.

An operation's file opens with a line `-- flags: ...`, which becomes its header on servers that know
headers (Redis 7 and later, Valkey), and pulls shared code in with lines `-- include name`. What is
included says in the same way what it needs itself. What a script does not use of it is left out.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from expirebridge.store.pruning import prune

_LUA = resources.files(__package__) / "lua"
_FLAGS = re.compile(r"\A-- flags: (?P<flags>.*)\n")
_INCLUDE = re.compile(r"^-- include (?P<name>\w+)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Source:
    """A script's text, and the digest by which a server knows it."""

    text: str
    sha: str

    @classmethod
    def of(cls, text: str) -> "Source":
        """Pair a text with its digest."""
        return cls(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


@dataclass(frozen=True, slots=True)
class Script:
    """One operation's script, for servers that know headers and for those that do not."""

    name: str
    flags: tuple[str, ...]
    headed: Source
    plain: Source


@cache
def load(name: str) -> Script:
    """Return the script of the operation `name`."""
    text = (_LUA / f"{name}.lua").read_text(encoding="utf-8")
    flags = _FLAGS.match(text)
    if flags is None:
        raise ValueError(f"{name}.lua does not begin with a line '-- flags: ...'")
    body = prune(_assembled(text, (name,), set()))
    names = () if flags["flags"].startswith("(") else (flags["flags"],)
    header = " ".join(["#!lua", *(f"flags={name}" for name in names)])
    headed = Source.of(f"{header}\n{body}")
    return Script(name=name, flags=names, headed=headed, plain=Source.of(body))


def _assembled(text: str, path: tuple[str, ...], seen: set[str]) -> str:
    """Put the file in place of each line `-- include`, with what it includes itself, each once.

    `path` leads to the text: the script, and the files through which it was included.
    """

    def included(line: re.Match[str]) -> str:
        name = line["name"]
        if name in path[1:]:
            raise ValueError(f"Lua files include each other: {' > '.join((*path, name))}")
        if name in seen:
            return ""
        seen.add(name)
        file = _LUA / "include" / f"{name}.lua"
        if not file.is_file():
            raise ValueError(f"{path[-1]}.lua includes {name}: there is no include/{name}.lua")
        return _assembled(file.read_text(encoding="utf-8"), (*path, name), seen)

    return _INCLUDE.sub(included, text)

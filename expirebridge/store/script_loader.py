"""Loads the Lua scripts: one file per operation, with the shared functions that it includes.

A script is found by its name, in the folder `lua` of any part of the package. Its file opens with a
line `-- flags: ...`, which becomes its header on servers that know headers (Redis 7 and later,
Valkey), and pulls shared code in with lines `-- include name`. What is included says in the same
way what it needs itself. What a script does not use of it is left out.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

# Leaves out of a script what it does not use.
#
# The server runs a script's whole text at each call: every function in it is created again, and
# is garbage when the call is over. Scripts include far more than they need (see
# docs/internals/performance.md).

# A statement that begins a line, with the comment above it and the lines that belong to it.
_STATEMENT = re.compile(
    r"(?:^(?:--.*)?\n)*"  # blank lines and comments
    r"^[a-zA-Z].*\n"
    r"(?:^(?:[ \t].*|end\b.*|else.*|[})].*)?\n)*",
    re.MULTILINE,
)
_COMMENT = re.compile(r"--.*")
# Words that name nothing of the script: in strings and comments, and the fields of tables.
# Each alternative begins with its own character, which lets `re` skip to the next one.
_NO_NAMES = re.compile(r"'[^'\n]*'|--.*|\.(?<=[\w\])]\.)\w+")
_WORD = re.compile(r"\w+")
# A statement that is there for the names that it defines. What is called for its effect has none.
_DEFINITION = re.compile(r"local (?:function )?(?P<names>\w+(?:, \w+)*)")


def prune(text: str) -> str:
    """Return the script without the functions and variables that nothing in it leads to."""
    statements = _STATEMENT.findall(text)
    if "".join(statements) != text:
        raise ValueError("in a script a statement begins its line, and what is in it does not")
    names = [_names_in(_COMMENT.sub("", statement).strip()) for statement in statements]
    used = {at for at, defined in enumerate(names) if not defined}
    follow = list(used)
    while follow:
        reached = set(_WORD.findall(_NO_NAMES.sub("", statements[follow.pop()])))
        found = {at for at, defined in enumerate(names) if defined & reached} - used
        used |= found
        follow += found
    return "".join(statements[at] for at in sorted(used))


def _names_in(code: str) -> set[str]:
    definition = _DEFINITION.match(code)
    return set(definition["names"].split(", ")) if definition else set()


_INCLUDED = "include/"
"""The beginning of the names of shared files, after their folder."""
_PACKAGE = Path(__file__).parents[1]
_FLAGS = re.compile(r"\A-- flags: (?P<flags>.*)\n")
_INCLUDE = re.compile(r"^-- include (?P<name>\w+)\n", re.MULTILINE)


class ScriptText(NamedTuple):
    """A script's text and its digest, for EVALSHA."""

    text: str
    sha: str

    @classmethod
    def of(cls, text: str) -> "ScriptText":
        """Pair a text with its digest."""
        return cls(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


class Script(NamedTuple):
    """One operation's script, for servers that know headers and for those that do not."""

    name: str
    flags: tuple[str, ...]
    headed: ScriptText
    plain: ScriptText


class ScriptLibrary:
    """The scripts of a package, each assembled when it is first loaded.

    They stand in the folders `lua` of its parts; no name is in two of them. `texts` replace the
    files of these names: "claim" is a script, "include/clock" a shared file.
    """

    def __init__(self, texts: Mapping[str, str] | None = None, package: Path = _PACKAGE) -> None:
        self._texts = dict(texts or {})
        self._folders = sorted(package.glob("*/lua"))
        self.load = cache(self._load)
        """Returns the script of an operation."""

    def text(self, file: str) -> str:
        """Return the source text of a file. Raises FileNotFoundError."""
        if file not in self._texts:
            self._texts[file] = self._find(file).read_text(encoding="utf-8")
        return self._texts[file]

    def _find(self, file: str) -> Path:
        for folder in self._folders:
            found = folder / f"{file}.lua"
            if found.is_file():
                return found
        raise FileNotFoundError(f"no part of the package has {file}.lua")

    def read_all(self) -> None:
        """Read all files now. A process without a free file descriptor cannot open them later."""
        for folder in self._folders:
            for prefix in ("", _INCLUDED):
                for path in (folder / prefix).glob("*.lua"):
                    self.text(prefix + path.stem)

    def _load(self, name: str) -> Script:
        text = self.text(name)
        flags = _FLAGS.match(text)
        if flags is None:
            raise ValueError(f"{name}.lua does not begin with a line '-- flags: ...'")
        body = prune(self._assembled(text, (name,), set()))
        names = () if flags["flags"].startswith("(") else (flags["flags"],)
        header = " ".join(["#!lua", *(f"flags={name}" for name in names)])
        headed = ScriptText.of(f"{header}\n{body}")
        return Script(name=name, flags=names, headed=headed, plain=ScriptText.of(body))

    def _assembled(self, text: str, path: tuple[str, ...], seen: set[str]) -> str:
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
            try:
                text = self.text(_INCLUDED + name)
            except FileNotFoundError:
                raise ValueError(
                    f"{path[-1]}.lua includes {name}: there is no include/{name}.lua"
                ) from None
            return self._assembled(text, (*path, name), seen)

        return _INCLUDE.sub(included, text)


SHIPPED = ScriptLibrary()
"""The scripts as they are."""

_in_use = SHIPPED


def load(name: str) -> Script:
    """Return the script of the operation `name`, from the library in use."""
    return _in_use.load(name)


def read_all() -> None:
    """Read all files of the library in use: for a process that goes on for long."""
    _in_use.read_all()


@contextmanager
def using(library: ScriptLibrary) -> Iterator[None]:
    """While the block runs, every store of this process runs the scripts of this library."""
    global _in_use  # noqa: PLW0603 - the one place that says which scripts this process runs
    before, _in_use = _in_use, library
    try:
        yield
    finally:
        _in_use = before

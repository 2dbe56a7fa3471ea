"""Loads the Lua scripts: one file per operation, with the shared functions that it includes.

A script is found by its name, in the folder `lua` of any part of the package. Its file opens with a
line `-- flags: ...`, which becomes its header on servers that know headers (Redis 7 and later,
Valkey), and pulls shared code in with lines `-- include name`: see `assembly`.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from expirebridge.store.assembly import LuaFile, Piece, Statement, assemble, lists_added_to

_INCLUDED = "include/"
"""The beginning of the names of shared files, after their folder."""
_PACKAGE = Path(__file__).parents[1]
_HOOKS = "hooks"
"""The shared file with the lists."""
_FLAGS = re.compile(r"\A-- flags: (?P<flags>.*)\n")


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
        self._parsed = cache(self._parse)
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
        for prefix in ("", _INCLUDED):
            self._read(prefix)

    def _read(self, prefix: str) -> None:
        for folder in self._folders:
            for path in (folder / prefix).glob("*.lua"):
                file = prefix + path.stem
                if file not in self._texts:
                    self._texts[file] = path.read_text(encoding="utf-8")

    def _load(self, name: str) -> Script:
        text = self.text(name)
        flags = _FLAGS.match(text)
        if flags is None:
            raise ValueError(f"{name}.lua does not begin with a line '-- flags: ...'")
        script = self._parsed(name)
        body = assemble(script, self._pieces(script))
        names = () if flags["flags"].startswith("(") else (flags["flags"],)
        header = " ".join(["#!lua", *(f"flags={name}" for name in names)])
        headed = ScriptText.of(f"{header}\n{body}")
        return Script(name=name, flags=names, headed=headed, plain=ScriptText.of(body))

    def _parse(self, file: str) -> LuaFile:
        return LuaFile(file.removeprefix(_INCLUDED), self.text(file))

    def _pieces(self, script: LuaFile) -> list[Piece]:
        """The pieces of a script: its own, and in their places those of the files that it includes.

        Before its own last one come those of files that add to lists through which it goes.
        """
        needed = self._closure(script)
        adding = sorted((one.order, name) for name, one in needed.items() if one.hooks)
        seen: set[str] = set()
        pieces: list[Piece] = []

        def paste(name: str, path: tuple[str, ...]) -> None:
            if name in path[1:]:
                raise ValueError(f"Lua files include each other: {' > '.join((*path, name))}")
            if name in seen:
                return
            file = needed[name]
            before = [other for order, other in adding if file.hooks and order < file.order]
            paste_parts(file, [*before, *file.parts], (*path, name))
            seen.add(name)

        def paste_parts(
            file: LuaFile, parts: Sequence[str | Statement], path: tuple[str, ...]
        ) -> None:
            own: list[Statement] = []
            for part in parts:
                if isinstance(part, Statement):
                    own.append(part)
                else:
                    if own:
                        pieces.append((file, own))
                        own = []
                    paste(part, path)
            if file is script:
                for _, name in adding:
                    paste(name, path)
            pieces.append((file, own))

        paste_parts(script, script.parts, (script.name,))
        return pieces

    def _closure(self, script: LuaFile) -> dict[str, LuaFile]:
        """The shared files of a script, by name."""
        needed: dict[str, LuaFile] = {}
        lists = set(script.goes_through)
        follow = [script]
        while follow:
            while follow:
                file = follow.pop()
                lists |= file.goes_through
                for name in file.parts:
                    if isinstance(name, str) and name not in needed:
                        needed[name] = self._shared(name, file)
                        follow.append(needed[name])
            for name, added_to in self._adding.items() if _HOOKS in needed else ():
                if name not in needed and not lists.isdisjoint(added_to):
                    needed[name] = self._parsed(_INCLUDED + name)
                    follow.append(needed[name])
        return needed

    def _shared(self, name: str, includer: LuaFile) -> LuaFile:
        try:
            return self._parsed(_INCLUDED + name)
        except FileNotFoundError:
            raise ValueError(
                f"{includer.name}.lua includes {name}: there is no include/{name}.lua"
            ) from None

    @cached_property
    def _adding(self) -> dict[str, tuple[str, ...]]:
        """The shared files that add to lists, by name, and to which; parsed when needed."""
        self._read(_INCLUDED)
        found = {
            file.removeprefix(_INCLUDED): lists_added_to(text)
            for file, text in tuple(self._texts.items())  # another thread may read one more
            if file.startswith(_INCLUDED)
        }
        return {name: lists for name, lists in found.items() if lists}


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

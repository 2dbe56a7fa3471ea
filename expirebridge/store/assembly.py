"""Puts a script together: its own file, and what it uses of the shared files that it includes.

A shared file names, at its beginning, what it needs itself and what others may use of it:

    -- include names
    -- gives leave_lanes, keep_slots

It is pasted as a block, since Lua allows no more than 200 names in one scope:

    local leave_lanes, keep_slots do
    ...
    end

With a line `-- when limits` the block is entered only in a database that uses this feature: what it
gives is nil in others.

The server runs a script's whole text at each call: every function in it is created again, and is
garbage when the call is over. Scripts include far more than they need (see
docs/internals/performance.md), so what nothing in a script leads to is left out.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

_GIVES = re.compile(r"^-- gives (?P<names>.+)\n", re.MULTILINE)
_WHEN = re.compile(r"^-- when (?P<feature>\w+)\n", re.MULTILINE)
_INCLUDE = re.compile(r"^-- include (?P<name>\w+)\n", re.MULTILINE)
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
# What `local` stands before in a shared file, and in a block that gives these names does not.
_LOCAL = re.compile(r"^local (?:\w+(?:, \w+)*(?:;|\n))?", re.MULTILINE)
# Where a name is declared within a statement.
_INNER = re.compile(
    r"\bfunction ?([\w.]*)\(([^)]*)\)|\blocal (?!function)(\w+(?:, \w+)*)|\bfor (\w+(?:, \w+)*)"
)


@dataclass(frozen=True, eq=False)
class Statement:
    """A statement of a file that begins its line, with the comment above it."""

    text: str
    names: frozenset[str]
    """The names that it defines."""
    words: frozenset[str]
    """What may be a name in it."""

    @classmethod
    def of(cls, text: str) -> "Statement":
        """Read one."""
        definition = _DEFINITION.match(_COMMENT.sub("", text).strip())
        names = definition["names"].split(", ") if definition else ()
        return cls(text, frozenset(names), frozenset(_WORD.findall(_NO_NAMES.sub("", text))))


def _condition_of(text: str) -> str:
    features = _WHEN.findall(text)
    return f"uses.{features[0]}" if features else ""


class LuaFile:
    """A file: what it includes, gives and defines. Raises ValueError for one that cannot be read.

    `name` says it in errors.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        given = [name for line in _GIVES.findall(text) for name in line.split(", ")]
        self.gives = tuple(given)
        """The names that others may use, if it is a shared file."""
        self.condition = _condition_of(text)
        """What must be true for its block to be entered; empty if nothing must."""
        self.parts: list[str | Statement] = []
        """Its statements, and the names of the files that it includes between them."""
        # An include becomes a statement of its own, to which the comment above it belongs.
        text = _INCLUDE.sub(r"include \1\n", _WHEN.sub("", _GIVES.sub("", text)))
        found = _STATEMENT.findall(text)
        if "".join(found) != text:
            raise ValueError(
                f"in {name}.lua a statement begins its line, and what is in it does not"
            )
        for each in found:
            code = _COMMENT.sub("", each).strip()
            if code.startswith("include "):
                self.parts.append(code.removeprefix("include "))
            else:
                self.parts.append(Statement.of(each))
        self.defined: dict[str, list[Statement]] = {}
        """The statements that define each of its names."""
        for statement in self.statements:
            for defined in statement.names:
                self.defined.setdefault(defined, []).append(statement)
        self._check_given()

    @property
    def statements(self) -> Iterator[Statement]:
        """Its statements, in order."""
        return (part for part in self.parts if isinstance(part, Statement))

    @cached_property
    def hidden(self) -> set[str]:
        """The names that only it may use."""
        return {*self.defined} - {*self.gives}

    @cached_property
    def used(self) -> set[str]:
        """The names in it that it does not define itself, wherever these are declared."""
        used = {word for statement in self.statements for word in statement.words}
        return (used | self.needed) - self.defined.keys()

    @property
    def needed(self) -> set[str]:
        """The names in its condition."""
        return set(_WORD.findall(_NO_NAMES.sub("", self.condition)))

    def declares(self, name: str) -> bool:
        """True if the name is that of an argument or of a variable within a statement."""
        for statement in self.statements:
            code = _COMMENT.sub("", statement.text) if name in statement.words else ""
            for names in _INNER.findall(code):
                if name in _WORD.findall(" ".join(names)):
                    return True
        return False

    def _check_given(self) -> None:
        given = {*self.gives}
        if missing := given - self.defined.keys():
            raise ValueError(f"{self.name}.lua gives {min(missing)}, which it does not have")
        for statement in self.statements:
            if statement.names & given and statement.names - given:
                both = f"{min(statement.names & given)}, but not {min(statement.names - given)}"
                raise ValueError(f"{self.name}.lua gives {both} of the same statement")


Piece = tuple[LuaFile, Sequence[Statement]]
"""A part of a script, in its place: statements of a file."""


def assemble(script: LuaFile, pieces: Sequence[Piece]) -> str:
    """Return the text of a script: of each piece what is used. Those of the script are no blocks.

    Raises ValueError if a file uses what another does not give, or if two give the same name.
    """
    shared = [file for file, _ in pieces if file is not script]
    givers = _givers(shared)
    hidden = {name: file for file in shared for name in file.hidden if name not in givers}
    for file in (*shared, script):
        for name in file.used & hidden.keys():
            if not file.declares(name):
                giver = hidden[name].name
                raise ValueError(f"{file.name}.lua uses {name}, which {giver}.lua does not give")
    kept, shared_names = _reached(pieces, givers)
    return "".join(
        "".join(one.text for one in those if one in kept)
        if file is script
        else _block(file, [one for one in those if one in kept], shared_names)
        for file, those in pieces
    )


def _givers(files: Iterable[LuaFile]) -> dict[str, LuaFile]:
    givers: dict[str, LuaFile] = {}
    for file in files:
        for name in file.gives:
            if name in givers:
                raise ValueError(f"{givers[name].name}.lua and {file.name}.lua both give {name}")
            givers[name] = file
    return givers


def _reached(
    pieces: Sequence[Piece], givers: dict[str, LuaFile]
) -> tuple[set[Statement], set[str]]:
    """The statements to which something leads that is there for its effect.

    Second, the names by which one file leads to another.
    """
    kept: set[Statement] = set()
    shared: set[str] = set()
    follow = [(file, one) for file, those in pieces for one in those if not one.names]
    while follow:
        file, statement = follow.pop()
        if statement in kept:
            continue
        kept.add(statement)
        for word in statement.words | file.needed:
            definer = file
            if word not in file.defined:
                if word not in givers:
                    continue
                definer = givers[word]
                shared.add(word)
            follow += [(definer, one) for one in definer.defined[word]]
    return kept, shared


def _block(file: LuaFile, body: Sequence[Statement], shared: set[str]) -> str:
    """The text of statements of a shared file, in which all names stay that are not shared."""
    if not body:
        return ""
    outer: set[str] = set()
    texts: list[str] = []
    for one in body:
        is_outer = not shared.isdisjoint(one.names) and not one.names.isdisjoint(file.gives)
        outer |= one.names if is_outer else set()
        texts.append(_LOCAL.sub("", one.text, count=1) if is_outer else one.text)
    names = ", ".join(name for name in file.gives if name in outer)
    opening = f"if {file.condition} then" if file.condition else "do"
    return f"{f'local {names} ' if names else ''}{opening}\n{''.join(texts)}end\n"

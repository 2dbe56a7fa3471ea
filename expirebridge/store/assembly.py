"""Puts a script together: its own file, and what it uses of the shared files that it includes.

A shared file names, at its beginning, what it needs itself and what others may use of it:

    -- include names
    -- gives leave_lanes, keep_slots

It is pasted as a block, since Lua allows no more than 200 names in one scope:

    local leave_lanes, keep_slots do
    ...
    end

With a line `-- when limits` the block is entered only in a database that uses this feature: what it
gives is nil in others. `-- unless plain` enters it where anything but plain tasks may be.

A line `-- on on_move 20 leave_or_keep` adds something of the file to a list of hooks.lua, in each
script that goes through that list, which need not include the file. Files with lower numbers come
first.

The server runs a script's whole text at each call: every function in it is created again, and is
garbage when the call is over. Scripts include far more than they need (see
docs/internals/performance.md), so what nothing in a script leads to is left out.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

_GIVES = re.compile(r"^-- gives (?P<names>.+)\n", re.MULTILINE)
_WHEN = re.compile(r"^-- (?P<word>when|unless) (?P<name>\w+)\n", re.MULTILINE)
_ON = re.compile(r"^-- on (?P<list>\w+) (?P<number>\d+) (?P<name>\w+)\n", re.MULTILINE)
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


class Statement:
    """A statement of a file that begins its line, with the comment above it.

    `adds_to` is the list to which it adds, with which it is left out.
    """

    def __init__(self, text: str, adds_to: str = "") -> None:
        self.text = text
        self.adds_to = adds_to
        definition = _DEFINITION.match(_code_of(text))
        self.names = frozenset(definition["names"].split(", ") if definition else ())
        """The names that it defines."""

    @cached_property
    def words(self) -> frozenset[str]:
        """What may be a name in it."""
        return _words_in(self.text)


def _code_of(statement: str) -> str:
    return _COMMENT.sub("", statement).strip()


def _words_in(text: str) -> frozenset[str]:
    """The words, each one object wherever it stands: a listener keeps them."""
    return frozenset(map(sys.intern, _WORD.findall(_NO_NAMES.sub("", text))))


class Hook(NamedTuple):
    """What a shared file adds to a list."""

    list: str
    number: int
    name: str

    def statement(self) -> Statement:
        """Add it. Where its block is not entered it is nil, and nothing is added."""
        return Statement(f"{self.list}[#{self.list} + 1] = {self.name}\n", adds_to=self.list)


def lists_added_to(text: str) -> tuple[str, ...]:
    """The lists to which a file with this text adds something."""
    return tuple(list for list, _, _ in _ON.findall(text))


def _condition_of(text: str) -> str:
    found = _WHEN.search(text)
    if found is None:
        return ""
    return f"uses.{found['name']}" if found["word"] == "when" else f"not {found['name']}"


class LuaFile:
    """A file: what it includes, gives and defines. Raises ValueError for one that cannot be read.

    `name` says it in errors.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        given = [name for line in _GIVES.findall(text) for name in line.split(", ")]
        self.gives = tuple(given)
        """The names that others may use, if it is a shared file."""
        self.hooks = [Hook(list, int(number), name) for list, number, name in _ON.findall(text)]
        """What it adds to lists."""
        self.order = min((hook.number for hook in self.hooks), default=0)
        """Of those that add to lists, the lower come first."""
        self.condition = _condition_of(text)
        """What must be true for its block to be entered; empty if nothing must."""
        self.parts: list[str | Statement] = []
        """Its statements, and the names of the files that it includes between them."""
        # An include becomes a statement of its own, to which the comment above it belongs.
        for line in (_GIVES, _WHEN, _ON):
            text = line.sub("", text)
        self.text = _INCLUDE.sub("", text)
        """Its statements, which are searched at once: to search each of them takes longer."""
        text = _INCLUDE.sub(r"include \1\n", text)
        found = _STATEMENT.findall(text)
        if "".join(found) != text:
            raise ValueError(
                f"in {name}.lua a statement begins its line, and what is in it does not"
            )
        for each in found:
            if "include " in each and (code := _code_of(each)).startswith("include "):
                self.parts.append(code.removeprefix("include "))
            else:
                self.parts.append(Statement(each))
        self.parts += [hook.statement() for hook in self.hooks]
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
        added = {name for hook in self.hooks for name in (hook.list, hook.name)}
        return self.goes_through | added - self.defined.keys() | self.needed

    @cached_property
    def goes_through(self) -> set[str]:
        """The names in it, without those of lists to which it only adds."""
        return {*_words_in(self.text)} - self.defined.keys()

    @property
    def needed(self) -> set[str]:
        """The names in its condition."""
        return {*_words_in(self.condition)}

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
        if missing := {hook.name for hook in self.hooks} - self.defined.keys():
            raise ValueError(f"{self.name}.lua adds {min(missing)}, which it does not have")
        if len({hook.number for hook in self.hooks}) > 1:
            raise ValueError(f"{self.name}.lua adds to lists with two numbers")
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
    follow: list[tuple[LuaFile, Statement]] = []
    adding: dict[str, list[tuple[LuaFile, Statement]]] = {}
    for file, those in pieces:
        for one in those:
            if one.adds_to:
                adding.setdefault(one.adds_to, []).append((file, one))
            elif not one.names:
                follow.append((file, one))
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
            follow += adding.get(word, ())
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

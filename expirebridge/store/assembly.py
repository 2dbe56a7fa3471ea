"""Puts a script together: its own file, and what it uses of the shared files that it includes.

A shared file names, at its beginning, what it needs itself and what others may use of it:

    -- include names
    -- gives leave_lanes, keep_slots

It is pasted as a block, since Lua allows no more than 200 names in one scope:

    local leave_lanes, keep_slots do
    ...
    end

With a line `-- when limits` the block is entered only in a database that uses this feature: what it
gives is nil in others. `-- unless plain` enters it where anything but plain tasks may be. What only
such blocks lead to is in a block of the same condition.

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
Conditions = frozenset[str]
"""Where a statement is needed: where any of these is true. Without any, everywhere."""
_EVERYWHERE = Conditions()


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
    reached = _Reached(pieces, givers)
    settled = _settled_after(script, pieces, reached)
    texts: list[str] = []
    for place, (file, those) in enumerate(pieces):
        kept = {one: reached.conditions[one] for one in those if one in reached.conditions}
        if file is script:
            texts += [one.text for one in kept]
        else:
            if place <= settled:
                kept = dict.fromkeys(kept, _EVERYWHERE)
            texts.append(_block(file, kept, reached.shared))
    return "".join(texts)


def _givers(files: Iterable[LuaFile]) -> dict[str, LuaFile]:
    givers: dict[str, LuaFile] = {}
    for file in files:
        for name in file.gives:
            if name in givers:
                raise ValueError(f"{givers[name].name}.lua and {file.name}.lua both give {name}")
            givers[name] = file
    return givers


def _settled_after(script: LuaFile, pieces: Sequence[Piece], reached: "_Reached") -> int:
    """The place of the piece behind which the conditions of blocks do not change any more.

    Before that, their names are not there, or the script may begin to use a feature.
    """
    given = {name for file, _ in pieces for name in file.gives}
    needed = {name for file, _ in pieces for name in file.needed & given}
    change = re.compile(rf"\b(?:{'|'.join(needed)})\b(?:\[\w+\]|\.\w+)?(?:, \w+)* = ")
    can_change = any(
        not needed.isdisjoint(one.words - one.names) and change.search(one.text)
        for one in reached.conditions
    )
    last = 0
    for place, (file, those) in enumerate(pieces):
        if not needed.isdisjoint(file.gives):
            last = place
        elif file is script and can_change and not all(one.names for one in those):
            last = place if any(file.condition for file, _ in pieces[place:]) else last
    return last


class _Reached:
    """The statements to which something leads that is there for its effect, and how."""

    def __init__(self, pieces: Sequence[Piece], givers: dict[str, LuaFile]) -> None:
        self.conditions: dict[Statement, Conditions] = {}
        """Where each of them is needed. What blocks lead to that are entered on a condition is
        needed on this condition, if nothing else leads to it."""
        self.shared: set[str] = set()
        """The names by which one file leads to another."""
        self._givers = givers
        self._adding: dict[str, list[tuple[LuaFile, Statement]]] = {}
        self._follow: list[tuple[LuaFile, Statement]] = []
        for file, those in pieces:
            for one in those:
                if one.adds_to:
                    self._adding.setdefault(one.adds_to, []).append((file, one))
                elif not one.names:
                    self._reach(file, one, _EVERYWHERE)
        while self._follow:
            self._lead(*self._follow.pop())

    def _reach(self, file: LuaFile, statement: Statement, conditions: Conditions) -> None:
        if file.condition:
            conditions = Conditions([file.condition])
        known = self.conditions.get(statement)
        if known is not None:
            conditions = known | conditions if known and conditions else _EVERYWHERE
        if known != conditions:
            self.conditions[statement] = conditions
            self._follow.append((file, statement))

    def _lead(self, file: LuaFile, statement: Statement) -> None:
        """Reach all to which a statement leads."""
        conditions = self.conditions[statement]
        for word in statement.words:
            self._lead_by(word, file, conditions)
        for word in file.needed - statement.words:
            self._lead_by(word, file, _EVERYWHERE)

    def _lead_by(self, word: str, file: LuaFile, conditions: Conditions) -> None:
        definer = file
        if word not in file.defined:
            if word not in self._givers:
                return
            definer = self._givers[word]
            self.shared.add(word)
        for one in definer.defined[word]:
            self._reach(definer, one, conditions)
        for adder, one in self._adding.get(word, ()):
            self._reach(adder, one, conditions)


def _block(file: LuaFile, body: dict[Statement, Conditions], shared: set[str]) -> str:
    """The text of statements of a shared file, in which all names stay that are not shared.

    What is needed on a condition is in a block that is entered on it, or is the whole block.
    """
    if not body:
        return ""
    whole = Conditions().union(*body.values()) if all(body.values()) else _EVERYWHERE
    outer: set[str] = set()
    texts: list[str] = []
    within = _EVERYWHERE
    for one, conditions in body.items():
        is_outer = not shared.isdisjoint(one.names) and not one.names.isdisjoint(file.gives)
        outer |= one.names if is_outer else set()
        needed = conditions if is_outer and not whole else _EVERYWHERE
        if needed != within:
            texts.append(("end\n" if within else "") + (_if(needed) if needed else ""))
            within = needed
        texts.append(_LOCAL.sub("", one.text, count=1) if is_outer else one.text)
    if within:
        texts.append("end\n")
    names = ", ".join(name for name in file.gives if name in outer)
    opening = _if(whole) if whole else "do\n"
    return f"{f'local {names} ' if names else ''}{opening}{''.join(texts)}end\n"


def _if(conditions: Conditions) -> str:
    return f"if {' or '.join(sorted(conditions))} then\n"

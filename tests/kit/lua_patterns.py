"""Reads the patterns of Lua scripts, and says which take longer than in proportion to the text.

Lua tries a pattern at each place of the text, unless it begins with `^`, and gives back, one by
one, what a repetition took. A pattern is harmless if it can be seen that this costs each place of
the text a few looks at most; what cannot be seen is taken for harmful.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_EVERY = frozenset(range(256))
_CLASSES: Mapping[str, frozenset[int]] = {
    "a": frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    "d": frozenset(b"0123456789"),
    "l": frozenset(b"abcdefghijklmnopqrstuvwxyz"),
    "s": frozenset(b" \t\n\r\v\f"),
    "w": frozenset(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    "x": frozenset(b"0123456789abcdefABCDEF"),
    "c": frozenset([*range(32), 127]),
    "z": frozenset([0]),
}


class Item(NamedTuple):
    """One place of a pattern: the bytes that fit, and how often they may come."""

    fits: frozenset[int]
    repeat: str = ""
    """'', '?', or one of '*', '+' and '-'."""

    @property
    def is_single(self) -> bool:
        """True if it takes exactly one byte."""
        return not self.repeat

    @property
    def is_endless(self) -> bool:
        """True if it may take any number of bytes."""
        return self.repeat in {"*", "+", "-"}

    @property
    def may_be_absent(self) -> bool:
        """True if it fits no byte at all, too."""
        return self.repeat in {"?", "*", "-"}


def _class_of(letter: str) -> frozenset[int]:
    if not letter.isalpha():
        return frozenset(letter.encode("latin-1"))
    known = _CLASSES[letter.lower()]
    return known if letter.islower() else _EVERY - known


def _set_from(pattern: str, at: int) -> tuple[frozenset[int], int]:
    """A set in brackets that begins behind the bracket, and the place behind it."""
    is_negative = pattern[at] == "^"
    at += is_negative
    found, first = set[int](), at
    while pattern[at] != "]" or at == first:
        if pattern[at] == "%":
            found |= _class_of(pattern[at + 1])
            at += 2
        elif pattern[at + 1] == "-" and pattern[at + 2] != "]":
            found |= set(range(ord(pattern[at]), ord(pattern[at + 2]) + 1))
            at += 3
        else:
            found.add(ord(pattern[at]))
            at += 1
    return frozenset(_EVERY - found if is_negative else found), at + 1


def items_of(pattern: str) -> tuple[list[Item], bool]:
    """The items of a pattern, and whether it must end where the text does.

    One that may begin anywhere begins with an item that takes anything. Raises ValueError for what
    no script needs: `%b`, `%f` and `%1`.
    """
    is_anchored = pattern.startswith("^")
    items = [] if is_anchored else [Item(_EVERY, "-")]
    at = 1 if is_anchored else 0
    while at < len(pattern):
        letter = pattern[at]
        if letter in "()":
            at += 1
            continue
        if letter == "$" and at == len(pattern) - 1:
            return items, True
        if letter == "%":
            if pattern[at + 1] in "bf123456789":
                raise ValueError(f"%{pattern[at + 1]} in a pattern")
            fits, at = _class_of(pattern[at + 1]), at + 2
        elif letter == "[":
            fits, at = _set_from(pattern, at + 1)
        else:
            fits, at = (_EVERY if letter == "." else frozenset(letter.encode("latin-1"))), at + 1
        repeat = pattern[at] if at < len(pattern) and pattern[at] in "*+-?" else ""
        items.append(Item(fits, repeat))
        at += len(repeat)
    return items, False


def _cannot_fail_late(rest: list[Item], ends: bool) -> bool:
    """True if what follows a repetition fails within its first bytes, or not at all."""
    if ends:
        return False
    behind = list(rest)
    while behind and behind[0].is_single:
        del behind[0]
    if behind and behind[0].repeat == "+":
        del behind[0]
    return all(item.may_be_absent for item in behind)


def _stops(repeated: Item, rest: list[Item]) -> bool:
    """True if what follows a repetition is found at few places of what that took."""
    if not rest or not rest[0].is_single:
        return False
    first = rest[0].fits
    # No byte of the repetition begins the rest; or the rest, begun at two places, does not run over
    # the same bytes, since each of its own repetitions ends where it would begin anew.
    return not first & repeated.fits or not any(
        first & item.fits for item in rest if item.is_endless
    )


def is_harmful(pattern: str) -> bool:
    """True if a text of twice the length may take far more than twice as long."""
    items, ends = items_of(pattern)
    for place, item in enumerate(items):
        rest = items[place + 1 :]
        is_safe = not rest or _stops(item, rest) or _cannot_fail_late(rest, ends)
        if item.is_endless and not is_safe:
            return True
    return False


# Finds the patterns of a script.

_TEXT = re.compile(r"'((?:[^'\\\n]|\\.)*)'", re.DOTALL)
_CALL = re.compile(r"string\.(?:match|gmatch|find|gsub)\(")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def text_of(literal: str) -> str:
    """The text for which a literal stands, without its quotes."""

    def one(found: re.Match[str]) -> str:
        word = found[1]
        return chr(int(word)) if word.isdigit() else _ESCAPES.get(word, word)

    return re.sub(r"\\(\d{1,3}|.)", one, literal, flags=re.DOTALL)


def without_comments(code: str) -> str:
    """The code without its comments; a `--` in a text is none."""
    kept = re.compile(r"('(?:[^'\\\n]|\\.)*')|--[^\n]*")
    return kept.sub(lambda found: found[1] or "", code)


def _arguments(code: str, at: int) -> list[str]:
    """The arguments of a call whose first one begins at this place."""
    found, depth, begin = list[str](), 0, at
    while True:
        if literal := _TEXT.match(code, at):
            at = literal.end()
            continue
        letter = code[at]
        if letter in ",)" and depth == 0:
            found.append(code[begin:at].strip())
            begin = at + 1
            if letter == ")":
                return found
        depth += (letter in "([{") - (letter in ")]}")
        at += 1


def _texts_named(name: str, code: str) -> list[str]:
    """The texts that a name stands for in all code: a constant, or what a loop takes from one."""
    if looped := re.search(rf"for _, {name} in ipairs\((\w+)\)", code):
        name = looped[1]
    constant = re.search(rf"^local {name} = (.*?)(?=^\S|\Z)", code, re.MULTILINE | re.DOTALL)
    return [text_of(text) for text in _TEXT.findall(constant[1])] if constant else []


def patterns_in(code: str, shared: str = "") -> Iterator[str]:
    """The patterns that a script looks for, some by names that `shared` code defines.

    Raises ValueError for one that cannot be told.
    """
    code = without_comments(code)
    for call in _CALL.finditer(code):
        given = _arguments(code, call.end())
        if given[3:] == ["true"]:
            continue  # a plain text
        found = [text_of(given[1][1:-1])] if _TEXT.fullmatch(given[1]) else []
        found = found or _texts_named(given[1], f"{code}\n{shared}")
        if not found:
            raise ValueError(f"which pattern is {given[1]}?")
        yield from found


# Finds what copies a growing text, or list, again and again.

_COPIES = re.compile(
    r"\b(?P<name>\w+) = (?:(?P=name) \.\.|string\.sub\((?P=name),|\{[^}]*unpack\((?P=name)\))"
    r"|table\.(?:remove|insert)\((?P<list>\w+), 1[,)]"
)
_LOOP = re.compile(r"\s*(?:for|while|repeat)\b")


def copies_in_loops(code: str) -> list[str]:
    """The lines that copy in a loop what they add to, or take from."""
    lines = without_comments(code).split("\n")
    found = []
    for number, line in enumerate(lines):
        copied = _COPIES.search(line)
        if copied and _outlives(lines[:number], line, copied["name"] or copied["list"]):
            found.append(line.strip())
    return found


def _outlives(before: list[str], line: str, name: str) -> bool:
    """True if a name is there before the innermost loop around a line, in its function."""
    if _LOOP.match(line):
        return True
    indent = _indent(line)
    for above in reversed(before):
        if re.search(rf"\blocal [^=]*\b{name}\b", above):
            return False
        if above.strip() and _indent(above) < indent:
            indent = _indent(above)
            if _LOOP.match(above) or "function" in above:
                return bool(_LOOP.match(above))
    return False


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())

"""Reads pickles that hold plain data, and refuses all others before anything in them is run.

A pickle is a program: unpickling one from a stranger can run any code. So its instructions are
looked at first, and only those that build plain data may stand in it. None of them names a class or
calls anything.
"""

import io
import pickle
import pickletools
import re
from typing import Any, NoReturn

from expirebridge.migration.sources.job import Refused

LARGEST = 1024 * 1024
"""Bytes. A task's arguments are far smaller."""
_MOST_VALUES = 100_000
_DEEPEST = 100
_PLAIN = re.compile(
    r"""
    PROTO | FRAME | STOP | MARK | POP | POP_MARK | MEMOIZE
    | (LONG_)?BIN(PUT|GET) | PUT | GET
    | NONE | NEWTRUE | NEWFALSE | (BIN)?INT | BININT[12] | LONG[14]? | (BIN)?FLOAT
    | UNICODE | (SHORT_)?BINUNICODE | BINUNICODE8
    | (EMPTY_)?(LIST|TUPLE|DICT) | TUPLE[123] | APPENDS? | SETITEMS?
    """,
    re.VERBOSE,
)
"""The instructions that build dicts, lists, tuples, text, numbers, booleans and None."""
_OTHERS = {
    "SET": "a set",
    "BYTE": "bytes",
    "GLOBAL": "a class, such as datetime",
    "INST": "a class, such as datetime",
}
"""Names for other objects, by a part of an instruction's name."""


class _PlainUnpickler(pickle.Unpickler):
    """Finds no class, whatever the pickle asks for."""

    def find_class(self, *_: str) -> NoReturn:
        raise Refused("it is pickled with a class")


def load_plain(raw: bytes) -> Any:
    """Unpickle plain data, with lists for tuples. Raises Refused for all else."""
    if not raw.startswith(b"\x80"):
        raise Refused("it is not pickled: another serializer wrote it")
    if len(raw) > LARGEST:
        raise Refused(f"it has {len(raw):,} bytes pickled; at most {LARGEST:,}")
    try:
        _check(raw)
        return _Plain().copy(_PlainUnpickler(io.BytesIO(raw)).load())
    except Refused:
        raise
    except Exception:
        # A broken pickle raises whatever it likes.
        raise Refused("its pickle is broken") from None


def _check(raw: bytes) -> None:
    for instruction, argument, _ in pickletools.genops(raw):
        name = instruction.name
        if not _PLAIN.fullmatch(name):
            what = next((said for part, said in _OTHERS.items() if part in name), "an object")
            raise Refused(f"its pickle holds more than plain data: {what}")
        # A place in a table that grows up to it.
        if name.endswith("PUT") and int(argument or 0) > len(raw):
            raise Refused("its pickle would take far more memory than it has bytes")


class _Plain:
    """Copies plain data as JSON has it, so that a small pickle cannot become a huge text."""

    def __init__(self) -> None:
        self._values = 0

    def copy(self, value: Any, depth: int = 0) -> Any:
        """The value with lists for tuples."""
        self._values += 1
        if self._values > _MOST_VALUES or depth > _DEEPEST:
            raise Refused("its pickle holds too many values")
        if isinstance(value, list | tuple):
            return [self.copy(item, depth + 1) for item in value]
        if isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                raise Refused("a dict among its arguments has keys that are not text")
            return {key: self.copy(item, depth + 1) for key, item in value.items()}
        return value

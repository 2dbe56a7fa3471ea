"""Reads pickles that hold plain data, and refuses all others before anything in them is run.

A pickle is a program: unpickling one from a stranger can run any code. So its instructions are
looked at first, and only those that build plain data may stand in it. None of them names a class or
calls anything. A pickle with objects can be read as symbols, which name what it would call.
"""

import io
import pickle
import pickletools
import re
from typing import Any, NoReturn, Self

from expirebridge.importing.job import Refused

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
    return plain_of(_loaded(raw, _PlainUnpickler, only_plain=True))


def load_symbols(raw: bytes) -> Any:
    """Unpickle with a `Symbol` for each class, call and object. Raises Refused if it is broken."""
    return _loaded(raw, _SymbolUnpickler, only_plain=False)


def plain_of(value: Any) -> Any:
    """What was unpickled, as JSON has it: lists for tuples. Raises Refused for all else."""
    return _Plain().copy(value)


class Symbol:
    """Stands for a class, or for what calling it would give; nothing is imported, and nothing run.

    Each class that a pickle names is a subclass of its own, since only classes can have instances.
    """

    path = ""
    """The module and the name of the class or function."""

    def __new__(cls, *args: Any) -> Self:
        """Stand for an instance, or for the result of a call with these arguments."""
        made = super().__new__(cls)
        made.args, made.state = args, {}
        return made

    args: tuple[Any, ...]
    state: dict[str, Any]

    def __call__(self, *args: Any) -> "Symbol":
        """Stand for the result of calling this, which keeps what was called as its first value."""
        return Symbol(self, *args)

    def __setstate__(self, state: Any) -> None:
        """Keep the attributes of an instance, also of one with slots."""
        for part in state if isinstance(state, tuple) else (state,):
            self.state |= part if isinstance(part, dict) else {}

    def __setitem__(self, key: Any, value: Any) -> None:
        """Ignore the items of a class of dicts."""

    def extend(self, values: Any) -> None:
        """Ignore the items of a class of lists."""


class _SymbolUnpickler(pickle.Unpickler):
    """Finds symbols, whatever the pickle asks for."""

    def find_class(self, module: str, name: str) -> type[Symbol]:
        return type("Symbol", (Symbol,), {"path": f"{module}.{name}"})


def _loaded(raw: bytes, unpickler: type[pickle.Unpickler], *, only_plain: bool) -> Any:
    if not raw.startswith(b"\x80"):
        raise Refused("it is not pickled: another serializer wrote it")
    if len(raw) > LARGEST:
        raise Refused(f"it has {len(raw):,} bytes pickled; at most {LARGEST:,}")
    try:
        _check(raw, only_plain=only_plain)
        return unpickler(io.BytesIO(raw)).load()
    except Refused:
        raise
    except Exception:
        # A broken pickle raises whatever it likes.
        raise Refused("its pickle is broken") from None


def _check(raw: bytes, *, only_plain: bool) -> None:
    for instruction, argument, _ in pickletools.genops(raw):
        name = instruction.name
        if only_plain and not _PLAIN.fullmatch(name):
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
        if isinstance(value, Symbol):
            raise Refused(f"among its arguments is an object: {_named(value)}")
        return value


def _named(symbol: Symbol) -> str:
    # What a call would give has the name of what is called, which may be such a call itself.
    while not symbol.path:
        symbol = symbol.args[0]
    return symbol.path

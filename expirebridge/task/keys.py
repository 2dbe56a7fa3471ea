"""The wire format: how a task is written as the name of its trigger key, and read back.

    [{tag}]<id>:?<func>?<args>

The name is split at its first two `?`; the arguments are everything after the second. A leading
`{tag}` is a cluster hash tag, and is kept as it is. Everything is bytes: a database may hold keys
that are not UTF-8.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from datetime import date, time, timedelta
from enum import Enum
from hashlib import sha1
from pathlib import PurePath
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from expirebridge.errors import InvalidTask

MAX_ARGS = 64 * 1024
"""The most bytes of arguments that a task may have."""
MAX_HIDDEN = 2 * MAX_ARGS
"""The most bytes that sealed or encoded arguments have in a record."""
MAX_ARGS_IN_KEY = 512
"""Up to this many bytes, arguments are part of the key's name; longer ones are in the record."""
MAX_FUNC = 200
IN_RECORD = b"@"
"""Takes the place of arguments in the key's name when they are in the record."""
ERASED = b'{"erased":true}'
"""Takes the place of arguments of a ledger's task that were erased: no task has it by chance."""

GROUP_NAME = r"[A-Za-z0-9_.:-]{1,100}"
"""The name of a group, as a regular expression."""
_MEMBER = rf"({GROUP_NAME})@(?:g[0-9]+|then)"

_ID = re.compile(r"[A-Za-z0-9_.:@-]{1,128}", re.ASCII)
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_FUNC = re.compile(rf"(?:{_NAME}/)*{_NAME}\.{_NAME}", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_.:@/-]{1,128}", re.ASCII)
_HASH_TAG = re.compile(rb"\{[^{}]*\}")
_HIDDEN = rb"(?s)(?:codec|sealed:[A-Za-z0-9_-]{1,32}):[A-Za-z0-9+/]*={0,2}(?: \{.*\})?"
_POSITIONAL = "*"
_MAX_DEPTH = 250
_LONG_NUMBER = re.compile(rb"[0-9]{19}")

# By default orjson turns these into strings. Passed through, with no `default=`, they are refused.
_STRICT = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS

_INSTEAD: Sequence[tuple[tuple[type, ...], str]] = (
    ((UUID, PurePath), "str(value)"),
    ((date, time), "value.isoformat()"),  # a datetime is a date
    ((timedelta,), "value.total_seconds()"),
    ((Enum,), "value.value"),
    ((tuple, set, frozenset), "list(value)"),
)
"""The substitutes for values that JSON cannot hold; see also `_instead_of`."""


class TriggerKey(NamedTuple):
    """The parts of a trigger key's name."""

    id: str
    func: str
    args: bytes
    """JSON, or `@` if the arguments are in the record."""
    hash_tag: str = ""
    """The cluster hash tag with its braces, or nothing."""

    @property
    def call(self) -> bytes:
        """Function and arguments, as the record holds them."""
        return self.func.encode() + b"?" + self.args

    def encode(self) -> bytes:
        """The key's name."""
        return key_name(self.hash_tag.encode(), self.id, self.call)


def key_name(hash_tag: bytes, id: str, call: bytes) -> bytes:
    """The name of the trigger key of a task; `hash_tag` and `call` are those of a TriggerKey."""
    return b"%b%b:?%b" % (hash_tag, id.encode(), call)


def hash_tag_of(name: str) -> bytes:
    """The cluster hash tag with its braces with which a name begins, or nothing."""
    tag = _HASH_TAG.match(name.encode())
    return tag[0] if tag else b""


class InvalidKey(ValueError):
    """A key has the form of a trigger key, but is not a valid one; the message says why."""

    def __init__(self, name: bytes, reason: str, home: str) -> None:
        super().__init__(reason)
        self.id = id_for_key(name, home)
        """The id under which the task is kept as failed."""


def id_for_key(name: bytes, home: str = "") -> str:
    """The id of a foreign task whose own id is invalid, or belongs to another task.

    With several partitions it begins with `home`, so that it belongs to the one where the key is.
    """
    return home + sha1(name, usedforsecurity=False).hexdigest()


def parse_key(name: bytes, home: str = "") -> TriggerKey | None:
    """Read the name of a key. `home` is that of its partition, for the id of an invalid one.

    Returns None if the key is not ours: its first `?` does not follow a `:`, or there is no second
    `?`. Raises InvalidKey if it is ours, but has an invalid id, function or arguments.
    """
    hash_tag = _HASH_TAG.match(name)
    head, _, call = name[hash_tag.end() if hash_tag else 0 :].partition(b"?")
    func, second, args = call.partition(b"?")
    if not second or not head.endswith(b":"):
        return None
    try:
        key = TriggerKey(
            id=check_id(head[:-1].decode("ascii")),
            func=check_func(func.decode("ascii")),
            args=args,
            hash_tag=hash_tag.group().decode() if hash_tag else "",
        )
        if args != IN_RECORD:
            check_args(args)
    except UnicodeDecodeError as error:
        reason = f"the id and the function must be ASCII: {error}"
        raise InvalidKey(name, reason, home) from error
    except InvalidTask as error:
        raise InvalidKey(name, str(error), home) from error
    return key


def is_id(text: str) -> bool:
    """True for a legal id of a task."""
    return _ID.fullmatch(text) is not None


def check_id(id: object) -> str:
    """Return a valid id unchanged; raise InvalidTask for any other."""
    if not isinstance(id, str) or not is_id(id):
        raise InvalidTask(
            f"id={_short(id)}: an id has 1 to 128 characters from A-Z a-z 0-9 and _ . : @ -"
        )
    return id


def check_func(func: str) -> str:
    """Return a valid function name unchanged; raise InvalidTask for any other."""
    if not _FUNC.fullmatch(func):
        raise InvalidTask(
            f"func={_short(func)}: write module.function or path/to/module.function, "
            "in ASCII identifiers"
        )
    if len(func) > MAX_FUNC:
        raise InvalidTask(f"func={_short(func)}: {len(func)} bytes; at most {MAX_FUNC}")
    return func


def check_tags(tags: object) -> tuple[str, ...]:
    """Return valid tags without repetitions; raise InvalidTask for any other."""
    if isinstance(tags, str | bytes) or not isinstance(tags, Sequence):
        raise InvalidTask(f"tags={_short(tags)}: give a list of tags, such as ['order-17']")
    legal: dict[str, None] = {}
    for tag in tags:
        if not isinstance(tag, str) or not _TAG.fullmatch(tag):
            raise InvalidTask(
                f"tag {_short(tag)}: a tag has 1 to 128 characters from A-Z a-z 0-9 and _ . : @ / -"
            )
        legal[tag] = None
    return tuple(legal)


def check_group(name: object) -> str:
    """Return a legal name of a group unchanged; raise InvalidTask for any other."""
    if not isinstance(name, str) or not re.fullmatch(GROUP_NAME, name):
        raise InvalidTask(
            f"group={name!r:.60}: a group's name has 1 to 100 characters from A-Z a-z 0-9 and "
            "_ . : -"
        )
    return name


def group_of(id: str) -> str | None:
    """The name of the group to which a member, or a follow-up, belongs; None for other ids."""
    found = re.fullmatch(_MEMBER, id)
    return found[1] if found else None


def check_given(args: object, kwargs: object) -> None:
    """Raise InvalidTask unless these are a sequence, and a mapping or None."""
    # The usual types are checked first: checks for Sequence and Mapping are slow.
    if isinstance(args, (str, bytes)) or not isinstance(args, (list, Sequence)):
        raise InvalidTask(
            f"args={_short(args)}: give a list of positional arguments, such as [42, 'hi']; "
            "keyword arguments go into kwargs"
        )
    if kwargs is not None and not isinstance(kwargs, (dict, Mapping)):
        raise InvalidTask(f"kwargs={_short(kwargs)}: give a mapping of keyword arguments")


def encode_args(
    args: Sequence[Any], kwargs: Mapping[str, Any] | None, *, limited: bool = True
) -> bytes:
    """Write arguments as JSON: an array, an object of keywords, or an object with `*` for both.

    The handler receives exactly what was given. A value that JSON would silently change (NaN, a
    tuple, an integer beyond 64 bits, a key that is not text) raises InvalidTask, which names its
    place. So do more than 64 KiB, if they are `limited` to that: a codec takes more.
    """
    check_given(args, kwargs)
    if kwargs and _POSITIONAL in kwargs:
        raise InvalidTask("kwargs: the name '*' is taken: it holds the positional arguments")
    value: Any = list(args)
    if kwargs:
        value = {_POSITIONAL: value, **kwargs} if args else dict(kwargs)
    try:
        encoded = orjson.dumps(value, option=_STRICT)
        same = orjson.loads(encoded) == value
    except (TypeError, ValueError, RecursionError) as error:
        place, advice = _culprit_of(args, kwargs)
        reason = advice or f"cannot be written as JSON: {error}"
        raise InvalidTask(f"{place}: {reason}") from error
    if not same:
        place, advice = _culprit_of(args, kwargs)
        raise InvalidTask(f"{place}: {advice or 'JSON would change it silently'}")
    if limited and len(encoded) > MAX_ARGS:
        raise InvalidTask(
            f"args: {len(encoded):,} bytes as JSON; at most {MAX_ARGS:,}. Store the data elsewhere "
            "and pass its key, or give a codec: docs/how-to/large-arguments.md"
        )
    return encoded


def encode_value(value: Any, name: str) -> bytes:
    """Write a value that is no argument as JSON; errors call it by this name. See `encode_args`."""
    try:
        return encode_args([value], None, limited=False)[1:-1]
    except InvalidTask as error:
        told = str(error).removesuffix(_OR_TYPED)
        raise InvalidTask(re.sub(r"^args(\[0\])?", name, told)) from None


def decode_args(encoded: bytes) -> tuple[list[Any], dict[str, Any]]:
    """Read positional and keyword arguments from JSON.

    Raises ValueError if they are not arguments, or hold an integer beyond 64 bits.
    """
    value = orjson.loads(encoded)
    if _LONG_NUMBER.search(encoded):
        _check_integers(encoded)
    match value:
        case list():
            return value, {}
        case dict():
            positional = value.pop(_POSITIONAL, [])
            if not isinstance(positional, list):
                raise ValueError("the positional arguments under '*' are not an array")
            return positional, value
        case _:
            raise ValueError("the arguments are neither an array nor an object")


def check_args(encoded: bytes) -> None:
    """Raise InvalidTask unless `encoded` holds arguments that reach a handler unchanged.

    This is for bytes that another client wrote; `encode_args` checks our own.
    """
    if len(encoded) > MAX_ARGS:
        raise InvalidTask(f"args: {len(encoded):,} bytes; at most {MAX_ARGS:,}")
    try:
        decode_args(encoded)
    except ValueError as error:
        # The arguments themselves are not shown: this is logged, and they may be secrets.
        raise InvalidTask(f"args: {error}") from error


def is_hidden(stored: bytes) -> bool:
    """True for arguments that are sealed, or that a codec encoded: they are in records only.

    Behind a space, they may have an object with the values that choose the lanes of limits.
    """
    return len(stored) <= MAX_HIDDEN and re.fullmatch(_HIDDEN, stored) is not None


def _check_integers(encoded: bytes) -> None:
    # orjson takes 2**64 for a float; this reader shows the digits.
    try:
        json.loads(encoded, parse_int=_check_int)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _check_int(digits: str) -> int:
    # The length is checked first: reading a million digits would take seconds.
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**64:
        raise ValueError("an integer is beyond 64 bits")
    return int(digits)


def _culprit_of(args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> tuple[str, str]:
    """Name the place in the arguments that JSON refuses or changes, and what to pass instead."""
    found = _culprit(list(args), "args") or _culprit(dict(kwargs or {}), "kwargs")
    return found or ("args", "")


def _culprit(value: Any, path: str, depth: int = 0) -> tuple[str, str] | None:
    """Name the innermost part of `value` that JSON refuses or changes; None if there is none."""
    if depth > _MAX_DEPTH:
        return "args: nested too deep", ""
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str:
                return f"{path}: the key {_short(key)} is not text", ""
            if inner := _culprit(item, f"{path}[{_short(key)}]", depth + 1):
                return inner
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if inner := _culprit(item, f"{path}[{index}]", depth + 1):
                return inner
    try:
        changed = orjson.loads(orjson.dumps(value, option=_STRICT)) != value
    except (TypeError, ValueError, RecursionError):
        changed = True
    return (f"{path} = {_short(value)}", _advice(value)) if changed else None


_OR_TYPED = (
    ", or mark the handler with @handler(typed=True) and pass the handler itself, not its name"
)


def _advice(value: object) -> str:
    """The type that JSON lacks and its substitute, or an empty text."""
    instead = _instead_of(value)
    if instead is None:
        return ""
    return f"JSON has no {type(value).__name__}; pass {instead}{_OR_TYPED}"


def _instead_of(value: object) -> str | None:
    from decimal import Decimal  # noqa: PLC0415 - only for what is refused: it takes a millisecond

    if isinstance(value, Decimal):
        return "str(value)"
    for kinds, instead in _INSTEAD:
        if isinstance(value, kinds):
            return instead
    if is_dataclass(value) and not isinstance(value, type):
        return "dataclasses.asdict(value)"
    if hasattr(type(value), "model_dump"):
        return "value.model_dump(mode='json')"  # a model of pydantic
    return None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

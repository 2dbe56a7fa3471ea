"""Arguments that a person edits: read from what was typed, and compared with the former ones."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from expirebridge.errors import InvalidTask
from expirebridge.task import keys


class ArgumentChange(NamedTuple):
    """An argument that an edit changes."""

    place: str
    """`args[0]`, or `kwargs['name']`."""
    old: str | None
    """The former value as JSON; None if there was none."""
    new: str | None
    """The new value as JSON; None if there is none."""

    def __str__(self) -> str:
        return f"{self.old or '(none)'} -> {self.new or '(none)'}"


def read_args(typed: str) -> list[Any]:
    """Read positional arguments that were typed as JSON. Raises InvalidTask."""
    value = _read(typed, "args")
    if not isinstance(value, list):
        raise InvalidTask('args: write a JSON array, such as [42, "hi"]')
    return value


def read_kwargs(typed: str) -> dict[str, Any]:
    """Read keyword arguments that were typed as JSON. Raises InvalidTask."""
    value = _read(typed, "kwargs")
    if not isinstance(value, dict):
        raise InvalidTask('kwargs: write a JSON object, such as {"subject": "hi"}')
    return value


def _read(typed: str, name: str) -> Any:
    encoded = typed.encode(errors="surrogateescape")  # check_args refuses what is not UTF-8
    try:
        keys.check_args(encoded)
    except InvalidTask as error:
        raise InvalidTask(str(error).replace("args", name, 1)) from None
    return orjson.loads(encoded)


def changes(
    old_args: Sequence[Any],
    old_kwargs: Mapping[str, Any],
    new_args: Sequence[Any],
    new_kwargs: Mapping[str, Any],
) -> list[ArgumentChange]:
    """The arguments that differ, in their order: positional ones by place, others by name."""
    old, new = _by_place(old_args, old_kwargs), _by_place(new_args, new_kwargs)
    return [
        ArgumentChange(place, old.get(place), new.get(place))
        for place in old | new
        if old.get(place) != new.get(place)
    ]


def _by_place(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, str]:
    """Each argument as JSON."""
    named = {f"args[{place}]": value for place, value in enumerate(args)}
    named |= {f"kwargs[{name!r}]": value for name, value in kwargs.items()}
    return {place: orjson.dumps(value).decode() for place, value in named.items()}

"""Reads the arguments of tasks that were typed as JSON."""

import ast
import json
import re
import shlex
from contextlib import suppress
from typing import Any

from expirebridge.errors import InvalidTask
from expirebridge.task import keys
from expirebridge.task.edited_arguments import read_args, read_kwargs

_BARE_WORD = re.compile(r"""(?<![\w"'.])(?!true\b|false\b|null\b)[A-Za-z_][\w.@-]*""", re.ASCII)


def read_arguments(typed: str) -> tuple[list[Any], dict[str, Any]]:
    """Read positional and keyword arguments. Raises InvalidTask, which says what may be meant."""
    encoded = typed.encode(errors="surrogateescape")  # check_args refuses what is not UTF-8
    try:
        keys.check_args(encoded)
    except InvalidTask as error:
        raise with_advice(error, typed) from None
    return keys.decode_args(encoded)


def read_positional(typed: str) -> list[Any]:
    """Read positional arguments. Raises InvalidTask, as `read_arguments`."""
    try:
        return read_args(typed)
    except InvalidTask as error:
        raise with_advice(error, typed) from None


def read_named(typed: str) -> dict[str, Any]:
    """Read keyword arguments. Raises InvalidTask, as `read_arguments`."""
    try:
        return read_kwargs(typed)
    except InvalidTask as error:
        raise with_advice(error, typed) from None


def with_advice(error: InvalidTask, typed: str, *, any_value: bool = False) -> InvalidTask:
    """Add to an error what to type instead: an array or an object, or `any_value` of JSON."""
    if "beyond 64 bits" in str(error) or "at most" in str(error):
        return error
    meant = _meant(typed)
    if not any_value and meant is not None and not isinstance(meant, dict | list):
        meant = [meant]
    if meant is None:
        return InvalidTask(f"""{error}: write JSON in single quotes, such as '[42, "hi"]'""")
    fault, place = str(error), str(error).partition(":")[0]
    try:
        json.loads(typed)
    except ValueError:  # where a reader of JSON stopped says less than what it should have read
        fault = f"{place}: not JSON"
    return InvalidTask(f"{fault}: write {shlex.quote(json.dumps(meant, ensure_ascii=False))}")


def _meant(typed: str) -> Any:
    """The value that was probably meant; None if that cannot be said."""
    readings = (json.loads, ast.literal_eval, _with_quotes)
    for read in readings:
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            value = read(typed)
            json.dumps(value)  # what only Python can write raises TypeError
            return list(value) if isinstance(value, tuple) else value
    return None


def _with_quotes(typed: str) -> Any:
    """Read text whose quotes a shell has removed."""
    return json.loads(_BARE_WORD.sub(lambda word: f'"{word.group()}"', typed))

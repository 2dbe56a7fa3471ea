"""What a handler raised or returned, as it is kept for people to read."""

import os
import traceback
from pathlib import Path
from typing import Any

import orjson

MAX_RESULT = 4096
_OURS = (
    str(Path(__file__).parent) + os.sep,
    str(Path(__file__).parent / "process_pool") + os.sep,
    "<frozen _collections_abc>",
)
"""Where the frames between the event loop and a handler are: they help nobody who reads."""


class ShownElsewhere(Exception):
    """The cause of an error that a handler raised in another process: its traceback there."""


def shown_error(error: BaseException) -> str:
    """The error as a person wants to read it: the traceback from the handler on."""
    if isinstance(error.__cause__, ShownElsewhere):
        return str(error.__cause__)
    shown = traceback.TracebackException.from_exception(error)
    inner = [frame for frame in shown.stack if not frame.filename.startswith(_OURS)]
    shown.stack = traceback.StackSummary.from_list(inner)
    text = "".join(shown.format()).rstrip()
    # The last line is what lists show: a group ends with a rule below its last error.
    return text.rstrip("+- \n") if isinstance(error, BaseExceptionGroup) else text


def shown_result(value: Any) -> bytes:
    """A handler's result as JSON, or a note if it cannot be kept: never a reason to fail."""
    if value is None:
        return b""
    try:
        encoded = orjson.dumps(value)
    except (TypeError, ValueError):
        return orjson.dumps(f"(a {type(value).__name__}, which JSON cannot hold)")
    if len(encoded) > MAX_RESULT:
        return orjson.dumps(f"({len(encoded):,} bytes of JSON, more than the {MAX_RESULT:,} kept)")
    return encoded

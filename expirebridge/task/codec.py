"""Codecs: how large arguments become small enough for a record, and are read back."""

import importlib
import re
from binascii import a2b_base64, b2a_base64
from typing import Protocol, runtime_checkable

from expirebridge.errors import InvalidSetting, InvalidTask

MAX_ENCODED = 48 * 1024
"""The most bytes that a codec may return: as base64, they are 64 KiB in the record."""

_MARK = b"codec:"
"""What a record's arguments begin with if a codec wrote them; JSON never begins so."""
_PLACE = r"(?a)[A-Za-z_][\w.]*:[A-Za-z_][\w.]*"


@runtime_checkable
class Codec(Protocol):
    """Two functions that keep arguments of more than 64 KiB elsewhere: in a store, or compressed.

    Both are called from any thread, several at once, and may wait. A module with these two
    functions is a codec, too.
    """

    def encode(self, args: bytes, id: str, /) -> bytes:
        """Return at most 48 KiB from which `decode` makes the same arguments again.

        `args` is JSON, and `id` that of the task. The producer calls it before the task is sent.
        What it raises is raised to the caller of `make_task`; nothing was made then.
        """
        ...

    def decode(self, encoded: bytes, id: str, /) -> bytes:
        """Return the `args` from which `encode` made this.

        The listener calls it before each attempt. What it raises fails the attempt as an error of
        the handler does: it is retried by the policy, unless it is a Discard.
        """
        ...


def check_codec(given: object) -> str:
    """Return what is wrong with a codec as a setting, or nothing."""
    if isinstance(given, str):
        return "" if re.fullmatch(_PLACE, given) else "write module:object, such as app.store:codec"
    if given is None or isinstance(given, Codec):
        return ""
    return "give an object with the functions encode and decode, or its name, module:object"


def load_codec(given: Codec | str) -> Codec:
    """Return the codec; one that is named `module:object` is imported.

    Raises InvalidSetting if there is no such codec.
    """
    if not isinstance(given, str):
        return given
    module, _, path = given.partition(":")
    try:
        found: object = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise _unusable(given, f"it cannot be imported: {error}") from error
    if not isinstance(found, Codec):
        raise _unusable(given, "it lacks the functions encode and decode")
    return found


def encode_large(codec: Codec, args: bytes, id: str) -> bytes:
    """Return arguments as the record holds them once a codec has encoded them.

    Raises InvalidTask if it returns what a record cannot hold, and what the codec raises.
    """
    encoded = codec.encode(args, id)
    if not isinstance(encoded, bytes):
        raise InvalidTask(
            f"args: the codec's encode returned {type(encoded).__name__}; it must return bytes"
        )
    if len(encoded) > MAX_ENCODED:
        raise InvalidTask(
            f"args: the codec made {len(encoded):,} bytes of {len(args):,}; at most {MAX_ENCODED:,}"
        )
    return _MARK + b2a_base64(encoded, newline=False)


def encoded_in(args: bytes) -> bytes | None:
    """Return what a codec made of these arguments of a record; None if they are no codec's.

    Raises ValueError if another client damaged it.
    """
    if not args.startswith(_MARK):
        return None
    return a2b_base64(args[len(_MARK) :].partition(b" ")[0], strict_mode=True)


def _unusable(given: str, fault: str) -> InvalidSetting:
    return InvalidSetting(f"codec={given!r}: {fault}")

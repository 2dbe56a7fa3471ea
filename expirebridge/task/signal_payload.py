"""What a signal says, as it is sent."""

from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from expirebridge.errors import InvalidTask
from expirebridge.task import keys
from expirebridge.task.key_ring import Content

if TYPE_CHECKING:
    from expirebridge.task.key_ring import KeyRing

MAX_PAYLOAD = 64 * 1024
"""Bytes that a payload may have as JSON."""
MAX_BY = 200
"""Characters of the name of who sends a signal."""


class Payload(NamedTuple):
    """What a signal says, and who sends it."""

    by: str
    digests: str
    """Tell it from others where the server cannot, since it is sealed: one by each key, with commas
    between them. Empty if it is not sealed."""
    stored: bytes
    """JSON, or sealed."""


def encode(id: str, payload: Any, by: str, key_ring: "KeyRing | None") -> Payload:
    """Check and encode a signal for the task of this id. Raises InvalidTask."""
    if not isinstance(by, str) or len(by) > MAX_BY or not by.isprintable():
        raise InvalidTask(f"by={by!r:.60}: give text of at most {MAX_BY} printable characters")
    said = _as_json(payload)
    if key_ring is None:
        return Payload(by, "", said)
    digests = ",".join(digests_of(said, id, key_ring))
    return Payload(by, digests, key_ring.seal(said, id, Content.SIGNAL))


def digests_of(said: bytes, id: str, key_ring: "KeyRing") -> list[str]:
    """What tells a sealed signal from others: one by each key, that of the first one first."""
    return key_ring.digests(b"signal " + id.encode() + b" " + said)


def read(typed: str) -> Any:
    """Read a payload that was typed as JSON. Raises InvalidTask."""
    encoded = typed.encode(errors="surrogateescape")  # what is not UTF-8 is refused
    try:
        payload = orjson.loads(encoded)
        keys.decode_args(b"[" + encoded + b"]")  # refuses integers beyond 64 bits
    except ValueError as error:
        raise InvalidTask(f"payload: {error}") from None
    _as_json(payload)  # refuses what is too long
    return payload


def _as_json(payload: Any) -> bytes:
    """A payload as JSON, as an argument would be. Raises InvalidTask."""
    said = keys.encode_value(payload, "payload")
    if len(said) > MAX_PAYLOAD:
        raise InvalidTask(
            f"payload: it has {len(said):,} bytes as JSON, and may have {MAX_PAYLOAD:,}: keep it "
            "elsewhere, and send what names it"
        )
    return said

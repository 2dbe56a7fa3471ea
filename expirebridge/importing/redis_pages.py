"""Reads the structures of a source in pages: no command changes anything, and none takes long."""

import json
from collections.abc import Iterator
from typing import Any

import redis

from expirebridge.errors import InvalidSetting
from expirebridge.importing.job import Refused

PAGE = 500
"""Jobs that one request reads."""
_SCANNED = 2000
"""Keys that one SCAN looks at."""


def text(raw: Any) -> str:
    """A name in Redis as text, whatever its bytes."""
    decoded: str = raw.decode(errors="backslashreplace")
    return decoded


def json_of(raw: bytes | str, what: str) -> Any:
    """Read JSON. Raises Refused."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise Refused(f"{what} is not JSON") from None


def whole(value: object) -> int:
    """A count as another library stores it; 0 for what is none."""
    try:
        return max(int(value), 0)  # type: ignore[call-overload,no-any-return]
    except (ValueError, TypeError, OverflowError):
        return 0


def moment_of_score(score: float, per_ms: int = 1) -> int:
    """A due time in ms from a sorted set's score. Raises Refused for one that is no time."""
    try:
        return int(score) // per_ms
    except (OverflowError, ValueError):
        raise Refused("its score is not a time") from None


def keys(client: redis.Redis, before: str, after: str) -> Iterator[str]:
    """The parts of key names between `before` and `after`."""
    pattern = f"{_escaped(before)}*{_escaped(after)}"
    for name in client.scan_iter(match=pattern, count=_SCANNED):
        yield text(name)[len(before) : len(text(name)) - len(after)]


def sorted_set(client: redis.Redis, key: str) -> Iterator[list[tuple[bytes, float]]]:
    """The members and scores of a sorted set."""
    check_type(client, key, "zset")
    page: Any
    cursor = -1
    while cursor:
        cursor, page = client.zscan(key, max(cursor, 0), count=PAGE)
        yield from _cut(page)


def hash_values(client: redis.Redis, key: str) -> Iterator[list[tuple[bytes, bytes]]]:
    """The fields and values of a hash."""
    check_type(client, key, "hash")
    page: Any
    cursor = -1
    while cursor:
        cursor, page = client.hscan(key, max(cursor, 0), count=PAGE)
        yield from _cut(list(page.items()))


def items(client: redis.Redis, key: str) -> Iterator[list[bytes]]:
    """The items of a list, from its head: what is pushed there meanwhile only comes twice."""
    check_type(client, key, "list")
    start = 0
    ask: Any = client.lrange
    while page := ask(key, start, start + PAGE - 1):
        yield page
        start += PAGE


def check_type(client: redis.Redis, key: str, wanted: str) -> None:
    """Raise InvalidSetting if the key is there, but holds another kind of value."""
    kind = text(client.type(key))
    if kind not in {wanted, "none"}:
        raise InvalidSetting(
            f"{key} holds a {kind}, not a {wanted}: another program's? Check the database's "
            "number, --queue and --source-prefix"
        )


def _cut(page: list[Any]) -> Iterator[list[Any]]:
    """Small structures come whole, whatever COUNT says."""
    for start in range(0, len(page), PAGE):
        yield page[start : start + PAGE]


def _escaped(name: str) -> str:
    return "".join(f"\\{char}" if char in "*?[]\\^" else char for char in name)

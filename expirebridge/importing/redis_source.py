"""Reads the Redis database of another library, in pages, and says what its errors mean.

No command changes anything, and none takes long.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from redis import exceptions

from expirebridge.connection.urls import safe_url
from expirebridge.errors import InvalidSetting, NotPermitted
from expirebridge.importing.job import Refused
from expirebridge.store.errors import translated
from expirebridge.store.partitions import Partitions
from expirebridge.task.calls.call import command

logger = logging.getLogger("expirebridge")

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


_OF_A_CLUSTER = (
    exceptions.AskError,  # MOVED as well
    exceptions.ClusterDownError,
    exceptions.ClusterCrossSlotError,
)


def address_of(client: redis.Redis) -> str:
    """The server and database of a client, without its login."""
    options = client.get_connection_kwargs()
    server = (
        options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
    )
    # The same sentinels may know several primaries.
    name = f"/{options['place'].name}" if "place" in options else ""
    return f"{server}{name}/{options.get('db') or 0}"


def refuse_own_database(client: redis.Redis, store: Partitions, url: str) -> None:
    """Raise InvalidSetting if the jobs and the tasks would be in one database."""
    if address_of(client) == address_of(store.client) or _identity(client) == _own_identity(store):
        raise InvalidSetting(
            f"{safe_url(url)} is also the database of the tasks: give them one that nothing else "
            "uses, with --url"
        )


@contextmanager
def failing_as_source(url: str) -> Iterator[None]:
    """Attribute the other server's errors to it."""
    try:
        yield
    except exceptions.RedisError as error:
        if isinstance(error, _OF_A_CLUSTER):
            raise InvalidSetting(
                f"{safe_url(url)}: it is a node of a cluster, and not all of these keys are on it "
                f"({error}): give the URL of the node that has them"
            ) from None
        ours = translated(error)
        raise type(ours)(f"{safe_url(url)}, the source: {ours}") from error


def warn_of_cluster(client: redis.Redis, url: str) -> None:
    """Warn if the database is a part of a cluster: SCAN finds only the keys of one node."""
    info = _server_info(client)
    # As Redis calls it, and Valkey.
    if "cluster" in {info.get("redis_mode"), info.get("server_mode")}:
        logger.warning(
            "%s is a node of a cluster: import from each of its primaries", safe_url(url)
        )


def _server_info(client: redis.Redis) -> dict[str, object]:
    try:
        info: dict[str, object] = client.info("server")
    except exceptions.NoPermissionError:
        return {}
    return info


def _identity(client: redis.Redis) -> tuple[object, object]:
    """The identity of a database: the server's run id and the database's number."""
    return _server_info(client).get("run_id"), client.get_connection_kwargs().get("db") or 0


def _own_identity(store: Partitions) -> tuple[object, object]:
    try:
        info = store.run(command("INFO", "server"))
    except NotPermitted:
        return (object(), object())
    return info["run_id"], store.database.number

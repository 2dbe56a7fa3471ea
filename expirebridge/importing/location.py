"""The server and database of another library's jobs, and the meaning of its errors."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import redis
from redis import exceptions

from expirebridge.connection.urls import safe_url
from expirebridge.errors import InvalidSetting, NotPermitted
from expirebridge.store.errors import translated
from expirebridge.store.partitions import Partitions
from expirebridge.task.calls.call import command

logger = logging.getLogger("expirebridge")

_OF_A_CLUSTER = (
    exceptions.AskError,  # MOVED as well
    exceptions.ClusterDownError,
    exceptions.ClusterCrossSlotError,
)


def place_of(client: redis.Redis) -> str:
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
    if place_of(client) == place_of(store.client) or _identity(client) == _own_identity(store):
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

"""Celery, with Redis as its broker: messages in lists, and in the hash `unacked`.

A worker takes a message with an ETA at once, and keeps it in memory until then. Redis has it in
`unacked` meanwhile, as [message, exchange, routing key]. What no worker has taken is in the list of
its queue, one for each priority. The form of a message is that of Celery's protocol 2
(docs.celeryq.dev, "Message Protocol"), in the envelope of kombu's virtual transports.
"""

import base64
import binascii
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
import redis

from expirebridge.errors import InvalidSetting
from expirebridge.importing import redis_source
from expirebridge.importing.job import Found, Job, JobFilter, Refused, SkippedJob, id_of
from expirebridge.task.durations import LONGEST
from expirebridge.task.task import to_ms

# A message of Celery: its headers, and a body of [args, kwargs, embed].

_AFTERWARDS = ("callbacks", "errbacks", "chain", "chord")
_TYPED = {"__type__", "__value__"}


def read_message(id: str, headers: dict[str, Any], body: Any, wanted: JobFilter) -> Found:
    """Read a task's message as a job. Raises Refused."""
    args, kwargs, name = _call(headers, body)
    changes: list[str] = []
    due = _moment(headers, "eta", wanted, changes)
    if due is None and not wanted.waiting:
        return SkippedJob(id, "waiting for a worker, not for a time; --waiting takes them, too")
    due = wanted.now if due is None else due
    expires = _moment(headers, "expires", wanted, changes)
    if expires is not None and expires <= max(due, wanted.now):
        return SkippedJob(id, "expired, or expiring before they are due")
    plain = _plain([args, kwargs])
    if plain != [args, kwargs]:
        changes.append("a datetime, UUID, Decimal or bytes among the arguments becomes text")
    if headers.get("group"):
        changes.append("a group is dissolved: each task runs by itself")
    return Job(
        source_id=id,
        id=id_of("celery", id),
        names=(name,),
        args=plain[0],
        kwargs=plain[1],
        due=due,
        attempt=redis_source.whole(headers.get("retries")),
        policies=_policies(headers, due, expires),
        changes=tuple(changes),
    )


def _call(headers: dict[str, Any], body: Any) -> tuple[list[Any], dict[str, Any], str]:
    match body:
        case [list() as args, dict() as kwargs, *embed]:
            embedded = embed[0] if embed and isinstance(embed[0], dict) else {}
        case _:
            raise Refused("its body is not [args, kwargs, embed]")
    if after := [name for name in _AFTERWARDS if embedded.get(name)]:
        raise Refused(f"it has {' and '.join(after)}: nothing here would run what follows it")
    name = headers.get("task")
    if not isinstance(name, str):
        raise Refused("it does not name its task")
    return args, kwargs, name


def _moment(
    headers: dict[str, Any], name: str, wanted: JobFilter, changes: list[str]
) -> int | None:
    """A header's time in ms. A worker takes one that has no zone for one of its own `timezone`."""
    value = headers.get(name)
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=wanted.zone)
            changes.append(f"an {name} without a zone is taken for one of {wanted.zone}")
        return to_ms(moment)
    except (TypeError, ValueError, OverflowError):
        raise Refused(f"its {name} is not a time") from None


def _policies(headers: dict[str, Any], due: int, expires: int | None) -> dict[str, Any]:
    policies: dict[str, Any] = {}
    limits = headers.get("timelimit")
    # The hard limit and the soft one, in seconds; either can be missing.
    for limit in limits if isinstance(limits, list) else ():
        if isinstance(limit, int | float) and not isinstance(limit, bool) and 0 < limit <= LONGEST:
            policies.setdefault("timeout", limit)
    if expires is not None:
        policies["misfire"] = orjson.dumps(["skip", (expires - due) / 1000]).decode()
    return policies


def _plain(value: Any) -> Any:
    """The arguments with what kombu wraps, such as a datetime, as the text that it wraps."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == _TYPED:
        return _text(value["__type__"], value["__value__"])
    return {key: _plain(item) for key, item in value.items()}


def _text(kind: Any, value: Any) -> str:
    if kind == "uuid" and isinstance(value, dict):
        try:
            return str(UUID(hex=value["hex"]))
        except (KeyError, ValueError, TypeError, AttributeError):
            raise Refused("a UUID among its arguments is none") from None
    if not isinstance(value, str):
        raise Refused("a type of your own is among its arguments")
    return value


_PRIORITIES = ("", *(f"\x06\x16{step}" for step in range(1, 10)))
_BINDING = "_kombu.binding."
_FOR_WORKERS = ("celery.pidbox", "celeryev")
"""Exchanges of commands and events, not of tasks."""


class Celery:
    """The queues of Celery in a database."""

    def __init__(self, client: redis.Redis, wanted: JobFilter) -> None:
        self._client, self._wanted = client, wanted
        self._prefix = wanted.prefix or ""

    def count(self) -> int:
        """See `Source.count`."""
        redis_source.check_type(self._client, self._unacked, "hash")
        lists = self._lists()
        for key in lists:
            redis_source.check_type(self._client, key, "list")
        return self._client.hlen(self._unacked) + sum(map(self._client.llen, lists))

    def pages(self) -> Iterator[list[Found]]:
        """See `Source.pages`."""
        for page in redis_source.hash_values(self._client, self._unacked):
            yield [self._fetched(tag, raw) for tag, raw in page]
        for key in self._lists():
            for messages in redis_source.items(self._client, key):
                yield [self._found(key, raw) for raw in messages]

    @property
    def _unacked(self) -> str:
        return f"{self._prefix}unacked"

    def _lists(self) -> list[str]:
        queues = list(dict.fromkeys(self._wanted.queues)) or self._bound()
        return [f"{self._prefix}{queue}{priority}" for queue in queues for priority in _PRIORITIES]

    def _bound(self) -> list[str]:
        """Every queue that is bound to an exchange, as kombu notes it."""
        queues: set[str] = set()
        for exchange in redis_source.keys(self._client, f"{self._prefix}{_BINDING}", ""):
            if not exchange.endswith(_FOR_WORKERS):
                bindings = self._client.smembers(f"{self._prefix}{_BINDING}{exchange}")
                # Routing key, pattern and queue.
                queues |= {redis_source.text(one).rpartition("\x06\x16")[2] for one in bindings}
        if not queues and not self._client.exists(self._unacked):
            raise InvalidSetting(
                f"no queue of Celery was found, that is no key {self._prefix}{_BINDING}<exchange>: "
                "check the database's number and --source-prefix"
            )
        return sorted(queues)

    def _fetched(self, tag: bytes, raw: bytes) -> Found:
        where = f"unacked {redis_source.text(tag)}"
        try:
            envelope = redis_source.json_of(raw, "what it holds")
        except Refused as error:
            return SkippedJob(where, str(error), refused=True)
        match envelope:
            case [dict() as message, _, str() as routing_key]:
                if self._wanted.queues and routing_key not in self._wanted.queues:
                    return SkippedJob(
                        where, "from other queues: their routing key is none of --queue"
                    )
                return self._read(where, message)
        return SkippedJob(
            where, "it is not a message with its exchange and routing key", refused=True
        )

    def _found(self, key: str, raw: bytes) -> Found:
        try:
            message = redis_source.json_of(raw, "it")
        except Refused as error:
            return SkippedJob(key, str(error), refused=True)
        return self._read(key, message)

    def _read(self, where: str, message: Any) -> Found:
        """Read a message; `where` stands for its id if it has none."""
        headers = message.get("headers") if isinstance(message, dict) else None
        id = headers.get("id") if isinstance(headers, dict) else None
        if not isinstance(headers, dict) or not isinstance(id, str):
            return SkippedJob(where, "no message of Celery's protocol 2", refused=True)
        try:
            return read_message(id, headers, _body(message, headers), self._wanted)
        except Refused as error:
            return SkippedJob(id, str(error), refused=True)
        except RecursionError:
            return SkippedJob(id, "its arguments are nested too deep", refused=True)


def _body(message: dict[str, Any], headers: dict[str, Any]) -> Any:
    """Decode the body, if it is JSON. Nothing is ever unpickled."""
    if headers.get("compression"):
        raise Refused(f"its body is compressed ({headers['compression']})")
    if message.get("content-type") != "application/json":
        raise Refused(f"its body is {message.get('content-type')}, not application/json")
    body, properties = message.get("body"), message.get("properties")
    if not isinstance(body, str):
        raise Refused("its body is missing")
    if isinstance(properties, dict) and properties.get("body_encoding") == "base64":
        try:
            return redis_source.json_of(base64.b64decode(body, validate=True), "its body")
        except binascii.Error:
            raise Refused("its body is not base64") from None
    return redis_source.json_of(body, "its body")

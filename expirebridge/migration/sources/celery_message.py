"""What a message of Celery says: its headers, and a body of [args, kwargs, embed]."""

from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from expirebridge.migration.sources import redis_pages
from expirebridge.migration.sources.job import Found, Job, Left, Refused, Wanted, id_of
from expirebridge.model.durations import LONGEST
from expirebridge.model.task import to_ms

_AFTERWARDS = ("callbacks", "errbacks", "chain", "chord")
_TYPED = {"__type__", "__value__"}


def read_message(id: str, headers: dict[str, Any], body: Any, wanted: Wanted) -> Found:
    """Read a task's message as a job. Raises Refused."""
    args, kwargs, name = _call(headers, body)
    changes: list[str] = []
    due = _moment(headers, "eta", wanted, changes)
    if due is None and not wanted.waiting:
        return Left(id, "waiting for a worker, not for a time; --waiting takes them, too")
    due = wanted.now if due is None else due
    expires = _moment(headers, "expires", wanted, changes)
    if expires is not None and expires <= max(due, wanted.now):
        return Left(id, "expired, or expiring before they are due")
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
        attempt=redis_pages.whole(headers.get("retries")),
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


def _moment(headers: dict[str, Any], name: str, wanted: Wanted, changes: list[str]) -> int | None:
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

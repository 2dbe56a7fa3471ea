"""Looks at a server before a listener trusts it: what is wrong, what it means, how to mend it."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from expirebridge.errors import ServerError, ServerReadOnly, ServerUnreachable, ServerUnsuitable
from expirebridge.store import calls
from expirebridge.store.calls import Call

OLDEST_VERSION = (6, 2)
EVENT_FLAGS = "Exg"
"""The notifications that a listener hears: by name of the event; expiry; EXPIRE, PERSIST, DEL."""
_SAMPLE = 1000


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"  # it works, with less than all of the promise
    ERROR = "error"  # a listener must not start


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found."""

    check: str
    level: Level
    message: str
    remedy: str = ""
    """The command that mends it."""

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


def check_server() -> Generator[Call[Any], Any, list[Finding]]:
    """Look at the server of a store: one finding for each check that can be made.

    Raises ServerUnreachable if there is no server to look at.
    """
    info = yield from calls.command("INFO")
    events = yield from _setting("notify-keyspace-events")
    policy = yield from _setting("maxmemory-policy")
    findings = [
        _check_version(info),
        _check_role(info),
        _check_events(events),
        _check_eviction(policy, int(info.get("maxmemory", 0))),
    ]
    if all(finding.level is not Level.ERROR for finding in findings[:2]):
        sample = yield from calls.scan("0", _SAMPLE)
        findings.append(_check_foreign_data(sample.alien))
    return findings


def refuse_unsuitable(findings: Iterable[Finding]) -> None:
    """Raise the error that stands for the first finding that a listener cannot live with."""
    for finding in findings:
        if finding.level is Level.ERROR:
            kind = ServerReadOnly if finding.check == "role" else ServerUnsuitable
            raise kind(str(finding))


def events_are_on(findings: Iterable[Finding]) -> bool:
    """Whether the server sends the events that a listener hears, as far as one can know."""
    return not any(
        finding.check == "events" and finding.level is Level.WARNING for finding in findings
    )


def _setting(name: str) -> Generator[Call[Any], Any, str | None]:
    """A setting of the server; None where the server keeps it to itself, as hosted ones may."""
    try:
        reply = yield from calls.command("CONFIG", "GET", name)
    except ServerUnreachable:
        raise
    except ServerError:
        return None
    return reply[1].decode() if len(reply) == 2 else None


def _check_version(info: dict[str, Any]) -> Finding:
    # Valkey calls itself Redis 7.2 there, for the sake of clients, and gives its own name apart.
    name = "Valkey" if "valkey_version" in info else "Redis"
    shown = str(info.get("valkey_version", info.get("redis_version", "0")))
    version = tuple(int(part) for part in str(info.get("redis_version", "0")).split(".")[:2])
    if version < OLDEST_VERSION:
        return Finding(
            check="version",
            level=Level.ERROR,
            message=f"{name} {shown} is too old",
            remedy="Redis 6.2 or later, or Valkey, is needed",
        )
    return Finding(check="version", level=Level.OK, message=f"{name} {shown}")


def _check_role(info: dict[str, Any]) -> Finding:
    if info.get("role") == "slave":
        primary = f"{info.get('master_host')}:{info.get('master_port')}"
        return Finding(
            check="role",
            level=Level.ERROR,
            message="the server is a read-only replica",
            remedy=f"connect to its primary, {primary}",
        )
    return Finding(check="role", level=Level.OK, message="primary")


def _check_events(flags: str | None) -> Finding:
    if flags is None:
        return Finding(
            check="events",
            level=Level.OK,
            message="the server does not tell whether it sends key events",
        )
    # `A` stands for all classes of events, among them x and g.
    missing = [
        flag for flag in EVENT_FLAGS if flag not in flags and (flag == "E" or "A" not in flags)
    ]
    if missing:
        wanted = "".join(dict.fromkeys(flags + EVENT_FLAGS))
        return Finding(
            check="events",
            level=Level.WARNING,
            message=f"the server sends no key events (notify-keyspace-events is {flags!r}): tasks "
            "made here run on time by the clock, those of other clients are found only by scans",
            remedy=f"switch them on: CONFIG SET notify-keyspace-events {wanted}",
        )
    return Finding(check="events", level=Level.OK, message=f"notify-keyspace-events {flags}")


def _check_eviction(policy: str | None, maxmemory: int) -> Finding:
    if policy is None or policy == "noeviction":
        return Finding(check="eviction", level=Level.OK, message=policy or "not told")
    return Finding(
        check="eviction",
        level=Level.ERROR if maxmemory else Level.WARNING,
        message=f"maxmemory-policy is {policy}: "
        + (
            "the server will delete tasks when memory runs out"
            if maxmemory
            else "tasks would be deleted as soon as a maxmemory is set"
        ),
        remedy="CONFIG SET maxmemory-policy noeviction",
    )


def _check_foreign_data(alien: int) -> Finding:
    if alien:
        return Finding(
            check="data",
            level=Level.WARNING,
            message=f"the database holds keys that are not expirebridge's ({alien} of about "
            f"{_SAMPLE} looked at): their events cost time, and a FLUSHDB for them loses tasks",
            remedy="use a database of its own, such as redis://host:6379/1",
        )
    return Finding(check="data", level=Level.OK, message="no other data")

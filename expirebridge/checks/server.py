"""Checks of the server itself: its version, its settings, and what a listener can expect of it."""

import secrets
import time
from typing import Any

import redis

from expirebridge.checks.finding import Finding, error, not_shown, ok, warning
from expirebridge.errors import NotPermitted, ServerError, ServerUnreachable
from expirebridge.store.acl import LoginRole, grants, key_rules
from expirebridge.store.client import Database
from expirebridge.store.errors import is_about_keys, translated
from expirebridge.task.calls import call, inspection
from expirebridge.task.calls.call import Steps
from expirebridge.task.durations import human
from expirebridge.task.texts import plural

OLDEST_VERSION = (6, 2)
EVENT_FLAGS = "Exg"
"""The notifications that a listener needs: E, by event name; x, expiry; g, EXPIRE, PERSIST, DEL."""
FULL = 0.9
"""The share of `maxmemory` above which the doctor warns."""
CLOCK_LIMIT = 1.0
"""Seconds by which this machine's clock may differ from the server's."""
_MB = 1024 * 1024
_HARD_LIMIT, _SOFT_LIMIT = 32 * _MB, 8 * _MB
"""The smallest buffer for a subscriber's events: the server's own defaults."""
_NOT_SHOWN = "the server refuses CONFIG GET"


def check_version(info: dict[str, Any]) -> Finding:
    """Check whether the server is recent enough."""
    # For clients, Valkey reports itself as Redis 7.2 there; its own version is another field.
    name = "Valkey" if "valkey_version" in info else "Redis"
    shown = str(info.get("valkey_version", info.get("redis_version", "0")))
    version = tuple(int(part) for part in str(info.get("redis_version", "0")).split(".")[:2])
    if version < OLDEST_VERSION:
        return error(
            "version", f"{name} {shown} is too old", "Redis 6.2 or later, or Valkey, is required"
        )
    return ok("version", f"{name} {shown}")


def check_role(info: dict[str, Any]) -> Finding:
    """Check whether the server accepts writes."""
    if info.get("role") == "slave":
        primary = f"{info.get('master_host')}:{info.get('master_port')}"
        return error(
            "role", "the server is a read-only replica", f"connect to its primary, {primary}"
        )
    replicas = int(info.get("connected_slaves", 0))
    if not replicas:
        return ok("role", "primary")
    return ok("role", f"primary of {plural(replicas, 'replica', 'replicas')}")


def check_events() -> Steps[Finding]:
    """Check whether the server sends the events that a listener needs."""
    flags = yield from setting("notify-keyspace-events")
    if flags is None:
        return not_shown(
            "events", f"{_NOT_SHOWN}: whether it sends key events shows only the round trip"
        )
    # `A` stands for all classes of events, among them x and g.
    missing = [
        flag for flag in EVENT_FLAGS if flag not in flags and (flag == "E" or "A" not in flags)
    ]
    if missing:
        return warning(
            "events",
            f"notify-keyspace-events is {flags!r}, without {''.join(missing)}: tasks made here run "
            "on time, by the clock; those of other clients are found only by scans",
            f"CONFIG SET notify-keyspace-events {''.join(dict.fromkeys(flags + EVENT_FLAGS))}",
        )
    return ok("events", f"notify-keyspace-events {flags}")


def check_eviction(info: dict[str, Any]) -> Finding:
    """Check whether the server would delete tasks to make room."""
    policy = info.get("maxmemory_policy")
    if policy is None:
        return not_shown("eviction", "the server does not show its maxmemory-policy in INFO")
    if policy == "noeviction":
        return ok("eviction", policy)
    remedy = "CONFIG SET maxmemory-policy noeviction"
    if int(info.get("maxmemory", 0)):
        return error(
            "eviction",
            f"maxmemory-policy is {policy}: the server will delete tasks when memory runs out",
            remedy,
        )
    return warning(
        "eviction",
        f"maxmemory-policy is {policy}: tasks would be deleted as soon as a maxmemory is set",
        remedy,
    )


def check_memory(info: dict[str, Any]) -> Finding:
    """Check whether there is room for new tasks."""
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not most:
        return ok("memory", f"{_megabytes(used)} used, no maxmemory")
    usage = f"{_megabytes(used)} of {_megabytes(most)} used"
    remedy = f"CONFIG SET maxmemory {_megabytes(2 * max(used, most))}"
    if used >= most:
        return error("memory", f"{usage}: new tasks are refused (ServerOutOfMemory)", remedy)
    if used >= FULL * most:
        return warning("memory", f"{usage}: new tasks are refused when it is full", remedy)
    return ok("memory", usage)


def check_persistence(info: dict[str, Any]) -> Steps[Finding]:
    """Check whether tasks survive a restart, and a crash, of the server."""
    failed = [
        name
        for name in ("aof_last_write_status", "rdb_last_bgsave_status")
        if info.get(name, "ok") != "ok"
    ]
    if failed:
        return error(
            "persistence",
            f"the last write to disk failed ({', '.join(failed)}): the server may refuse writes",
            "free space on the server's disk, read its log, then BGREWRITEAOF or BGSAVE",
        )
    if not info.get("aof_enabled"):
        snapshots = yield from setting("save")
        lost = (
            "when the server stops, all tasks are lost"
            if snapshots == ""
            else "a crash of the server loses all writes since its last snapshot, if it takes any"
        )
        return warning("persistence", f"appendonly is no: {lost}", "CONFIG SET appendonly yes")
    sync = yield from setting("appendfsync")
    if sync == "no":
        return warning(
            "persistence",
            "appendfsync is no: a crash of the machine loses about the last 30 s of writes",
            "CONFIG SET appendfsync everysec",
        )
    if sync is None:
        return not_shown("persistence", f"appendonly yes; {_NOT_SHOWN}: appendfsync is not known")
    return ok("persistence", f"appendonly yes, appendfsync {sync}")


def check_buffers() -> Steps[Finding]:
    """Check whether a burst of events fits into a subscriber's buffer."""
    limits = yield from setting("client-output-buffer-limit")
    if limits is None:
        return not_shown(
            "buffers", f"{_NOT_SHOWN}: how much may wait for a subscriber is not known"
        )
    words = limits.split()
    hard, soft, seconds = (int(word) for word in words[words.index("pubsub") + 1 :][:3])
    shown = f"pubsub {_megabytes(hard)} {_megabytes(soft)} {seconds}"
    # Zero means no limit. A soft limit needs its seconds, or it is ignored.
    if 0 < hard < _HARD_LIMIT or (0 < soft < _SOFT_LIMIT and seconds):
        return warning(
            "buffers",
            f"client-output-buffer-limit is {shown}: a burst of events (about 20mb for 100,000) "
            "disconnects listeners, and they must scan the database afterwards",
            'CONFIG SET client-output-buffer-limit "pubsub 64mb 16mb 60"',
        )
    return ok("buffers", f"client-output-buffer-limit {shown}")


def check_clock() -> Steps[Finding]:
    """Check whether this machine's clock agrees with the server's."""
    sent = time.time()
    reply = yield from call.command("TIME")
    received = time.time()
    ahead = int(reply[0]) + int(reply[1]) / 1e6 - (sent + received) / 2
    doubt = (received - sent) / 2
    if abs(ahead) - doubt < CLOCK_LIMIT:
        return ok("clock", f"the server's differs from this machine's by {human(abs(ahead))}")
    return warning(
        "clock",
        f"the server's is {human(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} this "
        "machine's: delays are exact, but a task with `at` runs by the server's clock",
        "timedatectl set-ntp true  (on both machines)",
    )


def setting(name: str) -> Steps[str | None]:
    """A setting of the server; None if it does not show it, as hosted servers may not."""
    try:
        reply = yield from call.command("CONFIG", "GET", name)
    except ServerUnreachable:
        raise
    except ServerError:
        return None
    return reply[1].decode() if len(reply) == 2 else None


def _megabytes(size: int) -> str:
    """A size, written as in redis.conf."""
    return f"{-(-size // _MB)}mb" if size else "0"


# The check of the login's rights.


def check_rights(database: Database, role: LoginRole) -> Steps[Finding]:
    """Check whether the logged-in user has every right that the role needs.

    A missing right may show only later, and do harm: a script treats a key that it may not read as
    a key that does not exist.
    """
    login = database.login
    wanted = grants(
        role, prefix=database.layout.prefix, database=database.number,
        partitions=database.partitions, followed=database.followed, clustered=database.clustered,
    )  # fmt: skip
    try:
        refused = yield from inspection.find_refused(grant.proof for grant in wanted)
    except NotPermitted as refusal:
        if is_about_keys(refusal):
            rule, *_ = key_rules(database.layout)
            return error(
                "rights",
                f"the user {login!r} lacks a right of a {role}, without which it can run no "
                f"script: {rule}",
                f"ACL SETUSER {login} {rule}",
            )
        return error(
            "rights",
            f"the user {login!r} may not even run scripts: {refusal}",
            f"give it the rights that this command prints: expirebridge acl {role}",
        )
    if refused is None:
        return ok("rights", f"Redis before 7 does not report what the user {login!r} may do")
    missing = yield from _without_consequences([wanted[place].rule for place in refused], database)
    if missing:
        rules = " ".join(missing)
        return error(
            "rights",
            f"the user {login!r} lacks rights of a {role}: {rules}",
            f"ACL SETUSER {login} {rules}",
        )
    return ok("rights", f"the user {login!r} has the rights of a {role}")


def _without_consequences(missing: list[str], database: Database) -> Steps[list[str]]:
    """The missing rights, without those that were refused only because another one is missing.

    A user who may use all keys, or all channels, cannot be granted a single one. So a right that
    cannot be judged until another one is granted is left to the next run.
    """
    if "+hmget" in missing:
        missing = [rule for rule in missing if not rule.startswith("~")]
    if "+publish" in missing:
        if (yield from _is_refused_itself("PUBLISH", database.doorbell_channel, "0")):
            missing = [rule for rule in missing if not rule.startswith("&")]
        else:
            missing.remove("+publish")
    return missing


def _is_refused_itself(*command: str) -> Steps[bool]:
    """True if the command itself is refused, not the keys or channels that it uses."""
    try:
        yield from call.command(*command)
    except NotPermitted as refusal:
        return "permissions to run" in str(refusal)
    return False


# The check that events arrive: it sets a key and waits for the event of its expiry.

LIFE_MS = 20
PATIENCE = 1.0
"""Seconds that the event may take. The check reads the key when it ends: so milliseconds."""
_LOOK_EVERY = 0.01


def check_round_trip(client: redis.Redis, database: Database) -> Finding:
    """Check whether the expiry of a key arrives as an event.

    The key's name does not have the form of a trigger key, so listeners ignore it. It expires even
    if this check fails.
    """
    key = f"{database.prefix}:doctor:{secrets.token_hex(8)}".encode()
    try:
        took = _round_trip(client, database.events("expired"), key)
    except redis.RedisError as failure:
        return error("round trip", f"the check failed: {translated(failure)}", "")
    if took is None:
        return warning(
            "round trip",
            f"a key expired, and no event came in {PATIENCE:g} s: listeners receive none either",
            f"CONFIG SET notify-keyspace-events {EVENT_FLAGS}",
        )
    return ok("round trip", f"the event of a key's expiry arrived after {took * 1000:.0f} ms")


def _round_trip(client: redis.Redis, channel: str, key: bytes) -> float | None:
    """Seconds from the key's expiry to its event; None if the event does not come."""
    with client.pubsub() as pubsub:  # type: ignore[no-untyped-call]
        pubsub.subscribe(channel)
        pubsub.get_message(timeout=PATIENCE)
        client.set(key, "", px=LIFE_MS)
        ends = time.monotonic() + LIFE_MS / 1000
        while time.monotonic() < ends + PATIENCE:
            # A key that is read when its time is over expires at once.
            client.exists(key)
            message = pubsub.get_message(timeout=_LOOK_EVERY)
            if message and message["type"] == "message" and message["data"] == key:
                return max(time.monotonic() - ends, 0)
    return None

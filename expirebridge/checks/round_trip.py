"""The check that events arrive: it sets a key and waits for the event of its expiry."""

import secrets
import time

import redis

from expirebridge.checks.finding import Finding, error, ok, warning
from expirebridge.checks.server import EVENT_FLAGS
from expirebridge.store.client import Database
from expirebridge.store.errors import translated

LIFE_MS = 20
PATIENCE = 1.0
"""Seconds that the event may take. The check reads the key when it ends: so milliseconds."""
_LOOK_EVERY = 0.01


def check_round_trip(client: redis.Redis, database: Database) -> Finding:
    """Whether the expiry of a key arrives as an event.

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

"""The check that the server's events arrive: a key is set, and its end is waited for."""

import secrets
import time

import redis

from expirebridge.checks.finding import Finding, error, ok, warning
from expirebridge.checks.server import EVENT_FLAGS
from expirebridge.store.store import Database, translated

LIFE_MS = 20
PATIENCE = 1.0
"""Seconds that the event may take: the key is looked at when it ends, so it takes milliseconds."""
_LOOK_EVERY = 0.01


def check_round_trip(client: redis.Redis, database: Database) -> Finding:
    """Whether the expiry of a key comes back as an event.

    The key's name is not of a trigger key's form, so listeners leave it alone. It goes by itself,
    whatever becomes of this check.
    """
    key = f"{database.prefix}:doctor:{secrets.token_hex(8)}".encode()
    try:
        took = _round_trip(client, database.events("expired"), key)
    except redis.RedisError as failure:
        return error("round trip", f"it could not be made: {translated(failure)}", "")
    if took is None:
        return warning(
            "round trip",
            f"a key expired, and no event came in {PATIENCE:g} s: listeners do not hear it either",
            f"CONFIG SET notify-keyspace-events {EVENT_FLAGS}",
        )
    return ok("round trip", f"a key's expiry was heard of after {took * 1000:.0f} ms")


def _round_trip(client: redis.Redis, channel: str, key: bytes) -> float | None:
    """Seconds from the key's end to its event; None if it does not come."""
    with client.pubsub() as pubsub:  # type: ignore[no-untyped-call]
        pubsub.subscribe(channel)
        pubsub.get_message(timeout=PATIENCE)
        client.set(key, "", px=LIFE_MS)
        ends = time.monotonic() + LIFE_MS / 1000
        while time.monotonic() < ends + PATIENCE:
            # Looked at in time, a key expires in time.
            client.exists(key)
            message = pubsub.get_message(timeout=_LOOK_EVERY)
            if message and message["type"] == "message" and message["data"] == key:
                return max(time.monotonic() - ends, 0)
    return None

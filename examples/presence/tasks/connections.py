"""What happens to a connection that has been silent for too long."""

import os
import time
from functools import cache

import redis


@cache
def application() -> redis.Redis:
    """The application's own data, in a database beside that of the tasks."""
    return redis.Redis.from_url(os.environ["PRESENCE_URL"])


def offline(connection: str) -> None:
    """Mark a connection as offline. It may run twice, and does no harm then."""
    with application().pipeline() as both:
        both.srem("online", connection)
        both.zadd("offline", {connection: time.time()})
        both.execute()

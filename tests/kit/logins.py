"""Logins with rights of a test's choice."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import redis

from tests.kit.servers import AnyServer

NAME = "limited"


@contextmanager
def login(server: AnyServer, rules: Iterable[str]) -> Iterator[str]:
    """The URL of a user with these rights and no others, who is gone when the block ends."""
    with redis.Redis(port=server.port) as admin:
        admin.execute_command("ACL", "SETUSER", NAME, "reset", "resetchannels", "on", ">secret",
                              *rules)  # fmt: skip
        try:
            yield f"redis://{NAME}:secret@127.0.0.1:{server.port}/1"
        finally:
            admin.execute_command("ACL", "DELUSER", NAME)

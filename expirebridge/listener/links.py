"""The links: counts the connections that were made to a server."""

from typing import Any


class Links:
    """How many connections a client has made.

    A new one may lead to a server that has lost something, or to another server.
    """

    def __init__(self) -> None:
        self.made = 0

    def watch(self, client: Any) -> None:
        """Count the connections of this client of redis-py, which has made none yet."""
        client.connection_pool.connection_kwargs["redis_connect_func"] = self._connected

    async def _connected(self, connection: Any) -> None:
        """What redis-py calls in place of a connection's own greeting."""
        self.made += 1
        await connection.on_connect()

"""A client that awaits its connections itself, and does nothing else around a command.

redis-py's own client does much for each command that a listener does not need: locks of its pool,
retries, metrics, and a task of asyncio to write under a timeout. Those were half of the time that a
command took (see docs/adr/0051).
"""

import asyncio
from typing import Any

import redis
import redis.asyncio


class DirectClient(redis.asyncio.Redis):
    """Sends a command once, on a connection of its pool, with one timeout around the exchange.

    Connections are opened, greeted, checked and closed by redis-py, each step under its own
    timeouts. One on which an exchange fails, or is cancelled, is closed, as redis-py does it.
    """

    async def execute_command(self, *words: Any, **options: Any) -> Any:
        """Send a command and return its reply. Raises a RedisError."""
        pool = self.connection_pool
        connection = pool.get_available_connection()  # type: ignore[no-untyped-call]
        patience = connection.socket_timeout
        try:
            if not connection.is_connected or connection._reader.at_eof():
                await pool.ensure_connection(connection)
            # The timeout below is for writing and reading; with this one, each has its own.
            connection.socket_timeout = None
            async with asyncio.timeout(patience):
                await connection.send_command(*words)
                return await self.parse_response(connection, words[0], **options)
        except TimeoutError:
            raise redis.TimeoutError(f"no answer within {patience:g} s") from None
        finally:
            connection.socket_timeout = patience
            # As its `release`, which waits for a lock to do it.
            pool._in_use_connections.remove(connection)
            pool._available_connections.append(connection)

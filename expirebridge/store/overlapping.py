"""Clients that do something else between sending a command and reading its reply.

    client.execute_command("EVALSHA", ..., meanwhile=build_the_tasks_of_the_chunk_before)

redis-py hands such options on to `parse_response`. What is done then must not take long: the reply
waits, and so does whoever else uses the event loop.
"""

from collections.abc import Callable
from typing import Any

import redis
import redis.asyncio

Work = Callable[[], None]


class OverlappingClient(redis.Redis):
    """One that waits."""

    def parse_response(
        self, connection: Any, command_name: Any, *, meanwhile: Work | None = None, **options: Any
    ) -> Any:
        """Read the reply, after what is to be done meanwhile."""
        if meanwhile is not None:
            try:
                meanwhile()
            except BaseException:
                connection.disconnect()  # or the next command would be given this one's reply
                raise
        return super().parse_response(connection, command_name, **options)  # type: ignore[no-untyped-call]


class AsyncOverlappingClient(redis.asyncio.Redis):
    """One that is awaited."""

    async def parse_response(
        self, connection: Any, command_name: Any, *, meanwhile: Work | None = None, **options: Any
    ) -> Any:
        """Read the reply, after what is to be done meanwhile."""
        if meanwhile is not None:
            try:
                meanwhile()
            except BaseException:
                await connection.disconnect(nowait=True)
                raise
        return await super().parse_response(connection, command_name, **options)

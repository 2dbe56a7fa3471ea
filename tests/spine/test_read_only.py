"""A server that was made a replica: it refuses what writes, and its connections are given up."""

import asyncio

import pytest
import redis

from expirebridge import AsyncBridge, ServerReadOnly
from tests.kit.servers import AnyServer

pytestmark = pytest.mark.servers("oldest")

CALLS = 20


async def test_many_calls_at_once_are_all_refused_for_the_same_reason(
    server: AnyServer, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    """None gets a connection that another one's refusal is just closing."""
    client.replicaof("127.0.0.1", "1")
    try:
        for _ in range(10):
            answers = await asyncio.gather(
                *(async_bridge.make_task("mail.send", [n], 3600) for n in range(CALLS)),
                return_exceptions=True,
            )
            assert {type(answer) for answer in answers} == {ServerReadOnly}
    finally:
        client.replicaof("NO", "ONE")
    assert (await async_bridge.make_task("mail.send", [1], 3600)).id

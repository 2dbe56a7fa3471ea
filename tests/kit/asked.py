"""Which servers are asked: what waits for none need not be timed."""

from typing import Any

import pytest
import redis
import redis.asyncio


def ports_asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The port of each server to which this process sends something from now on, in order."""
    ports: list[int] = []
    for kind in (redis.connection.AbstractConnection, redis.asyncio.connection.AbstractConnection):
        send = kind.send_packed_command

        def sending(self: Any, *words: Any, send: Any = send, **options: Any) -> Any:
            ports.append(self.port)
            return send(self, *words, **options)

        monkeypatch.setattr(kind, "send_packed_command", sending)
    return ports

"""Connections end when their clients keep them waiting."""

import asyncio
import threading

import pytest
from starlette.types import Message, Receive, Scope, Send

from expirebridge.web import http_connection
from tests.kit.half_open import half_open, until_closed
from tests.kit.patience import PATIENCE
from tests.web.serving import served

WHOLE = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class Flooding:
    """Answers without end, until the connection is closed."""

    def __init__(self) -> None:
        self.cut = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        await receive()
        flood = asyncio.create_task(self._flood(send))
        while (await receive())["type"] != "http.disconnect":
            pass
        self.cut.set()
        flood.cancel()

    async def _flood(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        part: Message = {"type": "http.response.body", "body": b"x" * 2**20, "more_body": True}
        while True:
            await send(part)
            # Once the connection is lost, sending waits for nothing, and nothing else would run.
            await asyncio.sleep(0)


def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "TO_READ", 0.1)
    flooding = Flooding()
    with served(flooding) as url, half_open(url, 1, WHOLE):
        assert flooding.cut.wait(PATIENCE)


def test_a_client_that_reads_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "TO_ASK", 0.1)
    monkeypatch.setattr(http_connection, "TO_READ", 0.1)
    flooding = Flooding()
    with served(flooding) as url, half_open(url, 1, WHOLE) as [client]:
        got = 0
        while got < 256 * 2**20:
            got += len(client.recv(2**20))
        assert not flooding.cut.is_set()


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HTTP", b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nid"],
    ids=["nothing", "head", "body"],
)
def test_a_request_that_does_not_end_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http_connection, "TO_ASK", 0.1)

    async def reading(scope: Scope, receive: Receive, _: Send) -> None:
        while scope["type"] == "http" and (await receive())["type"] != "http.disconnect":
            pass

    with served(reading) as url, half_open(url, 1, sent) as [client]:
        until_closed(client)

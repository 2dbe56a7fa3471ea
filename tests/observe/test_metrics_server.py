"""The server of metrics: a client that keeps it waiting is cut off."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from expirebridge.observe import metrics_server
from expirebridge.observe.metrics_server import MetricsServer
from tests.kit.half_open import half_open
from tests.kit.patience import PATIENCE


def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "TO_ANSWER", 0.1)
    cut = threading.Event()

    def flooding(_: Any, start: Any) -> Iterator[bytes]:
        start("200 OK", [])
        try:
            while True:
                yield b"x" * 2**20
        finally:
            cut.set()

    with MetricsServer(flooding, "127.0.0.1", 0) as server:
        server.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            with half_open(url, 1, b"GET / HTTP/1.0\r\n\r\n"):
                assert cut.wait(PATIENCE)
        finally:
            server.shutdown()

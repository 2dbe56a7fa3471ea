"""When a worker that cannot start, or died young, is started again."""

import logging
import math
import selectors
import subprocess

import pytest

from expirebridge.listener.supervisor.worker import FIRST_PAUSE, LONGEST_PAUSE, Worker
from tests.kit.monotonic import Clock


def test_what_the_system_refuses_is_tried_again_after_growing_pauses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    clock = Clock()
    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr("expirebridge.listener.supervisor.worker.time", clock)
    with selectors.DefaultSelector() as selector:
        worker = Worker(2, selector)
        pauses = []
        for _ in range(9):
            worker.start()
            assert not worker.is_alive
            assert worker.starts_at is not None
            pauses.append(worker.starts_at - clock.monotonic())
        assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
        assert (pauses[0], max(pauses)) == (FIRST_PAUSE, LONGEST_PAUSE)
        for _ in range(1100):  # a night of them
            worker.start()
        assert worker.starts_at == clock.monotonic() + LONGEST_PAUSE
        worker.retry_now()
        assert (worker.starts_at or math.inf) <= clock.monotonic()
        assert not selector.get_map()
    records = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert records[0].getMessage() == (
        "worker 2 cannot be started: [Errno 11] Resource temporarily unavailable"
    )

"""When a worker that cannot start, or died young, is started again."""

import logging
import math
import selectors
import subprocess
import time

import pytest

from expirebridge.supervisor.worker import FIRST_PAUSE, LONGEST_PAUSE, Worker


def test_what_the_system_refuses_is_tried_again_after_growing_pauses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with selectors.DefaultSelector() as selector:
        worker = Worker(2, selector)
        pauses = []
        for _ in range(9):
            worker.start()
            assert not worker.is_alive
            assert worker.starts_at is not None
            pauses.append(worker.starts_at - time.monotonic())
        assert pauses == pytest.approx([0.5, 1, 2, 4, 8, 16, 30, 30, 30], abs=0.2)
        assert (pauses[0] <= FIRST_PAUSE, max(pauses) <= LONGEST_PAUSE) == (True, True)
        for _ in range(1100):  # a night of them
            worker.start()
        assert 29 < (worker.starts_at or 0) - time.monotonic() <= LONGEST_PAUSE
        worker.retry_now()
        assert (worker.starts_at or math.inf) <= time.monotonic()
        assert not selector.get_map()
    records = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert records[0].getMessage() == (
        "worker 2 cannot be started: [Errno 11] Resource temporarily unavailable"
    )

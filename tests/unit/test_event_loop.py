"""A listener's event loop sleeps for as long as it is asked to, and no longer."""

import asyncio
import select
import selectors
import socket
from typing import Any

import pytest

from expirebridge.listener.event_loop import PunctualSelector, new_event_loop

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="the loop is asyncio's own")


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the selector asked to sleep, each time."""
    asked: list[float] = []
    wait = select.select

    def record(*arguments: Any) -> Any:
        asked.append(arguments[-1])
        return wait(*arguments)

    monkeypatch.setattr(select, "select", record)
    return asked


def test_a_sleep_is_not_rounded_up_to_a_millisecond(sleeps: list[float]) -> None:
    loop = new_event_loop()
    try:
        loop.run_until_complete(asyncio.sleep(0.0004))
    finally:
        loop.close()
    assert any(0 < asked <= 0.0004 for asked in sleeps), sleeps


def test_what_becomes_ready_ends_the_sleep() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, PunctualSelector() as selector:
        selector.register(ours, selectors.EVENT_READ, data="it")
        theirs.send(b"x")
        # Without a byte to read it would last longer than the suite may.
        [(key, events)] = selector.select(3600.0)
        assert (key.data, events) == ("it", selectors.EVENT_READ)


def test_it_waits_without_end_and_not_at_all_as_any_selector() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, PunctualSelector() as selector:
        selector.register(ours, selectors.EVENT_READ)
        assert selector.select(0) == []
        assert selector.select(-1) == []
        theirs.send(b"x")
        assert len(selector.select(None)) == 1

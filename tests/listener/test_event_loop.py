"""A listener's event loop sleeps for as long as it is asked to, and no longer."""

import select
import selectors
import socket
from typing import Any

import pytest

from expirebridge.listener.process import PunctualSelector, new_event_loop

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="the loop is asyncio's own")


class Slept(Exception):
    """What is raised in the place of a sleep: how long it was to last."""


@pytest.fixture
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(*arguments: Any) -> None:
        raise Slept(arguments[-1])

    monkeypatch.setattr(select, "select", sleep)


@pytest.mark.usefixtures("no_sleep")
def test_a_sleep_is_not_rounded_up_to_a_millisecond() -> None:
    with PunctualSelector() as selector, pytest.raises(Slept) as slept:
        selector.select(0.0004)
    assert slept.value.args == (0.0004,)


@pytest.mark.usefixtures("no_sleep")
def test_the_loop_sleeps_so() -> None:
    loop = new_event_loop()
    loop.call_later(10.0, loop.stop)  # A loop that sleeps otherwise ends then, and has not raised.
    try:
        with pytest.raises(Slept):
            loop.run_forever()
    finally:
        loop.close()


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

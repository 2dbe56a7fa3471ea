"""Listeners that nothing wakes but key events and producers, so a test knows what did."""

import asyncio
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from expirebridge.listener.partition.due_timer import DueTimer
    from expirebridge.listener.partition.key_events import KeyEventHandler


@pytest.fixture
def without_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """No listener's clock wakes it: each expiry and each announcement does, and all hear these."""
    # Most tests do without a listener, and are to start without it.
    from expirebridge.listener.partition.due_timer import DueTimer
    from expirebridge.listener.partition.key_events import EXPIRED, KeyEventHandler
    from expirebridge.listener.session import Membership

    async def stand_still(_: "DueTimer") -> None:
        await asyncio.Event().wait()

    def hear_of(timer: "DueTimer", _: int) -> None:
        # A task that is due at once has no key, and so no event.
        timer._wakeup.set()

    def hear_event(handler: "KeyEventHandler", event: str, name: bytes, *, fresh: bool) -> None:
        hear(handler, event, name, fresh=fresh)
        if event == EXPIRED:
            handler._wakeup.set()

    hear = KeyEventHandler.hear_event
    monkeypatch.setattr(KeyEventHandler, "hear_event", hear_event)
    monkeypatch.setattr(DueTimer, "run", stand_still)
    monkeypatch.setattr(DueTimer, "hear_of", hear_of)
    monkeypatch.setattr(Membership, "hears", True)

"""A claim's own expiry is distinguished from that of a timer that was set since."""

import pytest

from expirebridge.listener.partition import key_events
from expirebridge.listener.partition.key_events import OwnExpiryFilter

KEY = b"id:?test.send?[]"


def test_each_claim_has_one_echo() -> None:
    awaited = OwnExpiryFilter()
    assert not awaited.take(KEY)
    awaited.expect(KEY)
    assert not awaited.take(b"id:?test.other?[]")
    assert awaited.take(KEY)
    assert not awaited.take(KEY)


def test_the_expiry_of_a_timer_that_was_set_since_the_claim_is_news() -> None:
    awaited = OwnExpiryFilter()
    awaited.expect(KEY)
    awaited.forget(KEY)
    assert not awaited.take(KEY)


def test_after_a_gap_every_expiry_is_news() -> None:
    awaited = OwnExpiryFilter()
    awaited.expect(KEY)
    awaited.forget_all()
    assert not awaited.take(KEY)


def test_an_echo_that_is_long_overdue_never_was_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is due at once has no timer to end: what ends later was set since."""
    monkeypatch.setattr(key_events, "LONGEST", 0.0)
    awaited = OwnExpiryFilter()
    awaited.expect(KEY)
    assert not awaited.take(KEY)


def test_echoes_that_never_come_cost_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_events, "MOST", 2)
    awaited = OwnExpiryFilter()
    for key in (b"1", b"2", b"3"):
        awaited.expect(key)
    assert [awaited.take(key) for key in (b"1", b"2", b"3")] == [False, True, True]

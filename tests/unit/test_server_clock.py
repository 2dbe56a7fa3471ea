"""What a listener is certain of about the server's clock."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expirebridge.listener.session import ServerClock

SECONDS = st.floats(0, 0.5)


@given(
    offset=st.integers(-(10**6), 10**6),
    trips=st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=1, max_size=20),
)
def test_it_is_never_certain_too_early(
    offset: int, trips: list[tuple[float, float, float]]
) -> None:
    """Each trip: a pause before it, and the way there and back."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: now)
        clock = ServerClock()
        for pause, there, back in trips:
            now += pause
            written = int((now + there + offset) * 1e6)
            sent, now = now, now + there + back
            clock.learn(written, sent=sent, received=now)
            due = 1_500_000 + offset * 1000
            left = due / 1000 - (now + offset)
            assert (
                left - 2e-6 <= clock.seconds_until_certain(due) <= left + back + 0.001 * len(trips)
            )


def test_after_a_jump_it_is_certain_of_the_new_time() -> None:
    clock, now = ServerClock(), time.monotonic()
    for offset in (2000, 1000):
        clock.learn(int((now + offset) * 1e6), sent=now, received=now)
        left = clock.seconds_until_certain(int((now + offset) * 1000))
        assert -1 < left <= 0

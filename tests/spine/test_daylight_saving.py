"""Absolute times where a clock on the wall shows an hour twice, or leaves one out."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
import redis

from expirebridge import Bridge

pytestmark = pytest.mark.servers("oldest")

BERLIN = ZoneInfo("Europe/Berlin")
FIRST = datetime(2031, 10, 26, 0, 30, tzinfo=UTC)
SECOND = datetime(2031, 10, 26, 1, 30, tzinfo=UTC)
"""The two moments at which a clock in Berlin shows half past two that night."""


@pytest.mark.parametrize(("fold", "moment"), [(0, FIRST), (1, SECOND)])
def test_an_hour_that_comes_twice(
    bridge: Bridge, client: redis.Redis, fold: int, moment: datetime
) -> None:
    at = datetime(2031, 10, 26, 2, 30, fold=fold, tzinfo=BERLIN)
    task = bridge.make_task("mail.send", at=at)
    assert task.due == moment
    assert client.pttl(task.key) > 0
    assert client.zscore("expirebridge:pending", task.id) == moment.timestamp() * 1000
    bridge.reschedule(task.id, at=at.replace(fold=1 - fold))
    moved = bridge.get(task.id)
    assert moved is not None
    assert {moment, moved.due} == {FIRST, SECOND}


def test_an_hour_that_never_comes(bridge: Bridge) -> None:
    """Python reads it by the offset from before the change, or with fold=1 from after it."""
    for fold, hour in [(0, 1), (1, 0)]:
        at = datetime(2031, 3, 30, 2, 30, fold=fold, tzinfo=BERLIN)
        due = bridge.make_task("mail.send", at=at).due
        assert due == datetime(2031, 3, 30, hour, 30, tzinfo=UTC)

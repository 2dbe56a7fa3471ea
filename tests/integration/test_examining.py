"""What a dashboard reads and notes, on every server."""

import redis

from expirebridge import Bridge, State
from expirebridge.store import calls
from expirebridge.store.store import Store
from tests.integration.test_store import server_ms


def test_tasks_are_counted_by_when_they_are_due(store: Store, bridge: Bridge) -> None:
    dues = [bridge.make_task("mail.send", [n], 60 * n).due for n in (1, 2, 2, 4)]
    times = [round(due.timestamp() * 1000) for due in dues]
    found = store.run(calls.below(State.PENDING, [0, times[1], times[1] + 1, times[3] + 1]))
    assert (found.total, found.below) == (4, [0, 1, 2 if times[1] != times[2] else 3, 4])
    assert store.run(calls.below(State.FAILED, [2**52])).below == [0]


def test_listeners_are_told_with_their_last_beat(store: Store, client: redis.Redis) -> None:
    now = server_ms(client)
    beats = {"old": now - 60_000, "new": now, "ahead": now + 60_000}
    client.zadd("expirebridge:listeners", beats)
    found = store.run(calls.listeners(10))
    assert [beat.name for beat in found] == ["ahead", "new", "old"]
    assert [round(beat.ago) // 60 for beat in found] == [0, 0, 1]
    assert [beat.name for beat in store.run(calls.listeners(1))] == ["ahead"]


def test_the_last_thousand_actions_are_kept(store: Store, client: redis.Redis) -> None:
    for n in range(1002):
        store.run(calls.note(who="ann", action="cancel", target=f'"{n}\n', result="é"))
    found = store.run(calls.notes(2))
    assert [(action.who, action.target) for action in found] == [
        ("ann", '"1001\n'),
        ("ann", '"1000\n'),
    ]
    assert abs(found[0].at.timestamp() * 1000 - server_ms(client)) < 60_000
    assert client.llen("expirebridge:actions") == 1000

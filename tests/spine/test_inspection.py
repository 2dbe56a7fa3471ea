"""What a dashboard reads and notes, on every server."""

from itertools import pairwise
from math import inf

import pytest
import redis

from expirebridge import Bridge, State
from expirebridge.store.client import Store
from expirebridge.task.calls import actions, inspection
from expirebridge.task.calls.claiming import Settled, Settlement
from tests.kit.steps import claim, server_ms, settle

pytestmark = pytest.mark.servers("oldest")


def test_tasks_are_counted_by_when_they_are_due(store: Store, bridge: Bridge) -> None:
    dues = [bridge.make_task("mail.send", [n], 60 * n).due for n in (1, 2, 2, 4)]
    times = [round(due.timestamp() * 1000) for due in dues]
    found = store.run(
        inspection.count_before(State.PENDING, [0, times[1], times[1] + 1, times[3] + 1])
    )
    assert (found.total, found.before) == (4, [0, 1, 2 if times[1] != times[2] else 3, 4])
    assert store.run(inspection.count_before(State.FAILED, [2**52])).before == [0]


def test_listeners_are_told_with_their_last_beat(store: Store, client: redis.Redis) -> None:
    now = server_ms(client)
    beats = {"old": now - 60_000, "new": now, "ahead": now + 60_000}
    client.zadd("expirebridge:listeners", beats)
    found = store.run(inspection.list_listeners(10))
    assert [beat.name for beat in found] == ["ahead", "new", "old"]
    assert [round(beat.ago) // 60 for beat in found] == [0, 0, 1]
    assert [beat.name for beat in store.run(inspection.list_listeners(1))] == ["ahead"]


def test_the_last_thousand_actions_are_kept(store: Store, client: redis.Redis) -> None:
    for n in range(1002):
        store.run(actions.note_action(who="ann", action="cancel", target=f'"{n}\n', result="é"))
    found = store.run(actions.read_actions(2))
    assert [(action.who, action.target) for action in found] == [
        ("ann", '"1001\n'),
        ("ann", '"1000\n'),
    ]
    assert abs(found[0].at.timestamp() * 1000 - server_ms(client)) < 60_000
    assert client.llen("expirebridge:actions") == 1000


def test_attempts_are_counted_by_minute_outcome_and_lateness(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    for id in ("a", "b", "c", "d"):
        bridge.make_task("mail.send", [1], 0, id=id)
    tokens = {task.id: task.token for task in claim(store).tasks}
    started = int(client.hget("expirebridge:task:b", "started") or 0)
    client.hset("expirebridge:task:b", "due", started - 1000)
    client.hset("expirebridge:task:c", "due", started - 1001)
    client.hset("expirebridge:task:d", "due", 0)
    outcomes = {"a": "succeeded", "b": "succeeded", "c": "retry", "d": "failed"}
    settlements = [Settlement(id, tokens[id], how, 60) for id, how in outcomes.items()]
    for _ in range(2):  # what is sent again is counted once
        settle(store, *settlements)
    now = server_ms(client)
    spans = store.run(inspection.read_tally(spans=3, minutes=1))
    # The minute may have ended meanwhile.
    assert (spans[-1].at - now // 60_000 * 60_000) in {0, 60_000}
    assert [later.at - early.at for early, later in pairwise(spans)] == [60_000] * 2
    found = next(span for span in spans[::-1] if span.succeeded)
    assert (found.succeeded, found.retried, found.failed, sum(found.late)) == (2, 1, 1, 4)
    assert found.late[inspection.STEPS.index(1000)] == found.late[inspection.STEPS.index(2000)] == 1
    assert found.late[-1] == 1
    assert (found.quantile(0.5), found.quantile(0.75), found.quantile(1)) == (1000, 2000, inf)
    assert spans[0].quantile(0.5) is None
    [day] = store.run(inspection.read_tally(spans=1, minutes=1440))
    assert day.at % 86_400_000 == 0
    client.set(f"expirebridge:minute:{now // 60_000}", "x")
    bridge.make_task("mail.send", [1], 0, id="e")
    [task] = claim(store).tasks
    assert settle(store, Settlement("e", task.token, "succeeded")) == [Settled.DONE]


def test_a_long_time_is_read_in_parts(store: Store, client: redis.Redis) -> None:
    minute = server_ms(client) // 60_000
    for ago in (0, 119, 120, 121, 239, 240, 290):
        client.hset(f"expirebridge:minute:{minute - ago}", "s1", ago + 1)
    spans = store.run(inspection.read_tally(spans=300, minutes=1))
    # The minute may have ended between two parts.
    assert len(spans) in {299, 300}
    assert {later.at - early.at for early, later in pairwise(spans)} == {60_000}
    found = {minute - span.at // 60_000: span.succeeded for span in spans if span.succeeded}
    assert found == {ago: ago + 1 for ago in (0, 119, 120, 121, 239, 240, 290)}
    wide = store.run(inspection.read_tally(spans=3, minutes=180))
    assert sum(span.succeeded for span in wide) == sum(found.values())


def test_a_survey_tells_retries_and_functions_of_what_comes_next(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    assert store.run(inspection.survey_functions(10)) == inspection.FunctionSurvey(0, 0, [], [])
    bridge.make_task("mail.again", [], 0, id="again")
    bridge.make_task("mail.back", [], 0, id="back")
    tokens = {task.id: task.token for task in claim(store).tasks}
    settle(
        store,
        Settlement("again", tokens["again"], "retry", 60),
        Settlement("back", tokens["back"], "released", 60),  # its attempt did not count
    )
    bridge.make_task("mail.first", [], 120)
    bridge.make_task("mail.first", [], 120)
    bridge.make_task("mail.late", [], 3600)
    found = store.run(inspection.survey_functions(4))
    assert (found.examined, found.retries) == (4, 1)
    assert sorted(found.functions) == ["mail.again", "mail.back", "mail.first"]
    client.set("expirebridge:task:again", "no record")
    assert store.run(inspection.survey_functions(4)).retries == 0


def test_ids_are_sought_by_their_beginning(store: Store, bridge: Bridge) -> None:
    bridge.make_tasks(
        [{"func": "a.b", "delay": 60 + n, "id": f"{'x' if n % 2 else 'y'}-{n}"} for n in range(10)]
    )

    def seek(
        beginning: str, rank: int, examine: int, find: int
    ) -> tuple[int | None, int, list[str]]:
        call = inspection.find_ids(State.PENDING, beginning, rank=rank, examine=examine, find=find)
        found = store.run(call)
        return found.rank, found.examined, found.ids

    assert seek("x-", 0, 100, 100) == (None, 10, ["x-1", "x-3", "x-5", "x-7", "x-9"])
    assert seek("x-", 0, 4, 100) == (4, 4, ["x-1", "x-3"])
    # It goes on behind the last that was found.
    assert seek("x-", 0, 100, 2) == (4, 4, ["x-1", "x-3"])
    assert seek("x-", 4, 100, 2) == (8, 4, ["x-5", "x-7"])
    assert seek("x-", 10, 4, 2) == (None, 0, [])
    assert seek("%", 0, 100, 100) == (None, 10, [])
    bridge.cancel_all(["x-1", "x-3"])
    cancelled = inspection.find_ids(State.CANCELLED, "x", rank=0, examine=9, find=9)
    assert store.run(cancelled).ids == ["x-3", "x-1"]

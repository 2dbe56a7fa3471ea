"""A lane that rests after Busy, while its rate changes: until the given time, and then no burst."""

import json
from collections.abc import Callable

import pytest
import redis

from expirebridge.limits.calls import declare_limits
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import producing, reconciling
from expirebridge.task.calls.claiming import Settlement
from tests.kit.steps import PREFIX, claim, new, server_ms, settle
from tests.machine.world import age

pytestmark = pytest.mark.servers("oldest")

HOUR = 3_600_000_000
"""So long, in microseconds, that the time that really passes is nothing."""


def declare(store: Store, *, burst: int, every: int = HOUR, starts: int = 1, of: str = "") -> None:
    rate: dict[str, object] = {"starts": starts, "every": every, "burst": burst}
    entry: list[object] = ["pace"]
    if of:
        rate["of"] = of
        entry = ["pace", None, None, None, None, None, None, 0, of, 1]
    fields = [("f mail.send", [entry]), ("l pace", rate)]
    store.run(declare_limits("aa", [(name, json.dumps(it).encode()) for name, it in fields]))
    sweep(store)


def sweep(store: Store) -> None:
    while store.run(reconciling.sweep(Settings())).more:
        pass


def make(store: Store, *ids: str) -> None:
    due = server_ms(store.client) - 60_000
    tasks = [
        new(id, due + place, call=b"mail.send?[1]", relative=False) for place, id in enumerate(ids)
    ]
    store.run(producing.make(tasks))


def started(store: Store) -> list[str]:
    """All that can start now; they end at once."""
    found: list[str] = []
    while ids := [task.id for task in claim(store).tasks]:
        settle(store, *(Settlement(id, "t", "succeeded") for id in ids))
        found += ids
    return found


def rest(store: Store, seconds: float) -> None:
    """One starts, and finds the provider busy."""
    make(store, "first")
    assert [task.id for task in claim(store).tasks] == ["first"]
    settle(store, Settlement("first", "t", "busy", seconds, "429", "pace"))


CHANGES: dict[str, Callable[[Store], None]] = {
    "nothing": lambda _: None,
    "a larger burst": lambda store: declare(store, burst=20),
    "a smaller burst": lambda store: declare(store, burst=1),
    "a faster rate": lambda store: declare(store, burst=5, every=HOUR // 4),
    "a slower rate": lambda store: declare(store, burst=5, every=4 * HOUR),
    "both": lambda store: declare(store, burst=50, every=HOUR // 4),
}
HOURS = {"a faster rate": 0.25, "both": 0.25, "a slower rate": 4.0}
"""Between two starts, after the change."""


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("late", [0, 3], ids=["at once", "late"])
@pytest.mark.parametrize("swept", [True, False])
@pytest.mark.parametrize("of", ["", "tokens"])
def test_it_rests_until_then_and_goes_on_at_the_rate(
    store: Store, client: redis.Redis, change: str, late: int, swept: bool, of: str
) -> None:
    def look() -> list[str]:
        if swept:
            sweep(store)
        return started(store)

    declare(store, burst=5, of=of)
    hours = HOURS.get(change, 1.0)
    rest(store, 8 * 3600)
    if of:
        declare(store, burst=5, of=of)
    CHANGES[change](store)
    ids = [f"t{number:02}" for number in range(60)]
    make(store, *ids)
    for _ in range(7):
        assert look() == []
        age(client, 3600)
    assert look() == []
    age(client, 3601 + late * hours * 3600)
    found = look()
    # What could have started since the rest was over, and no burst.
    number = 1 if change == "a smaller burst" else late + 1
    assert (found[0], len(found)) == ("first", number)
    for _ in range(3):
        assert look() == []
        age(client, hours * 3600)
        assert len(look()) == 1
    assert client.zcard(f"{PREFIX}:lanes") == 1


@pytest.mark.parametrize("late", [0, 3])
def test_nobody_waited_while_it_rested_and_there_is_no_burst_all_the_same(
    store: Store, client: redis.Redis, late: int
) -> None:
    declare(store, burst=5)
    rest(store, 8 * 3600)
    store.run(producing.cancel(["first"], keep=60))
    for _ in range(8):
        sweep(store)
        age(client, 3600)
    age(client, 1 + late * 3600)
    sweep(store)
    sweep(store)
    make(store, *"abcdefgh")
    assert started(store) == [*"abcdefgh"][: late + 1]

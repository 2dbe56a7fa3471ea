"""Groups: a follow-up that is due exactly when all members have ended."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from expirebridge import (
    AsyncBridge,
    Bridge,
    Call,
    Change,
    Discard,
    Group,
    GroupClosed,
    GroupDiffers,
    GroupIncomplete,
    GroupNotFound,
    GroupState,
    InvalidTask,
    Outcome,
    State,
    TaskExists,
    Then,
    current_task,
)
from expirebridge.errors import MoveRefused
from expirebridge.groups import calls as groups
from expirebridge.groups.checks import check_groups
from expirebridge.groups.names import OnFailed
from expirebridge.hooks import Event, Made
from expirebridge.moving import calls as migration
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.store.partitions import Partitions
from expirebridge.task.calls import claiming, producing, reconciling
from expirebridge.task.calls.claiming import Settled, Settlement
from expirebridge.task.calls.producing import Obstacle
from expirebridge.task.keys import parse_key
from expirebridge.task.task import from_ms, to_ms
from tests.kit.dying_producer import Died, dying_after
from tests.kit.logs import Log
from tests.kit.patience import PATIENCE
from tests.kit.private_keys import K1, K2, key
from tests.kit.steps import age, beating, claim, new, server_ms, settle, state_of
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("oldest")

THEN = Then("orders.close", [7])


def items(count: int) -> list[dict[str, Any]]:
    return [{"func": "mail.send", "args": [number], "delay": 0} for number in range(count)]


def make(bridge: Bridge, count: int = 2, **options: Any) -> Group:
    return bridge.make_group("g", items(count), then=THEN, **options)


def end(store: Store, how: str = "succeeded", *ids: str) -> None:
    """Have what is due claimed, and end as it is said; all of it, or these ids."""
    claimed = [task.id for task in claim(store).tasks]
    outcomes = [Settlement(id, "t", how) for id in ids or claimed]
    assert settle(store, *outcomes) == [Settled.DONE] * len(outcomes)


def read(bridge: Bridge) -> Group:
    group = bridge.get_group("g")
    assert group is not None
    return group


def counted(bridge: Bridge) -> tuple[int, int, int, int, int]:
    group = read(bridge)
    return group.total, group.left, group.succeeded, group.failed, group.cancelled


def sweep(store: Store) -> reconciling.Sweep:
    beating(store)
    return store.run(reconciling.sweep(Settings()))


def hear(store: Store, name: bytes, kind: reconciling.EventKind) -> None:
    """Have a listener hear what another client did to a task's key."""
    key = parse_key(name)
    assert key is not None
    hint = reconciling.KeyEvent.of(key, name, kind)
    store.run(reconciling.adopt([hint], Settings()))


# The follow-up


def test_the_follow_up_is_due_when_the_last_member_has_ended(store: Store, bridge: Bridge) -> None:
    group = make(bridge, 3)
    assert (group.state, group.total, group.left, group.then) == ("closed", 3, 3, "g@then")
    assert [task.id for task in claim(store).tasks] == ["g@g0", "g@g1", "g@g2"]
    for number in range(3):
        assert state_of(store, "g@then") is State.PAUSED
        settle(store, Settlement(f"g@g{number}", "t", "succeeded"))
    assert counted(bridge) == (3, 0, 3, 0, 0)
    group = read(bridge)
    assert group.state is GroupState.ENDED
    assert group.ended is not None
    assert [(task.id, task.func) for task in claim(store).tasks] == [("g@then", "orders.close")]


def test_members_that_end_in_one_batch_count_each(store: Store, bridge: Bridge) -> None:
    make(bridge, 50)
    end(store)
    assert counted(bridge) == (50, 0, 50, 0, 0)
    assert state_of(store, "g@then") is State.PENDING


def test_its_delay_counts_from_then(store: Store, bridge: Bridge, client: redis.Redis) -> None:
    bridge.make_group("g", items(1), then=Then("orders.close", [7], "3d"))
    assert client.pttl("g@then:?orders.close?[7]") == -1
    end(store)
    follow_up = bridge.get("g@then")
    ended = read(bridge).ended
    assert follow_up is not None
    assert ended is not None
    assert follow_up.due == ended + timedelta(days=3)
    assert client.pttl("g@then:?orders.close?[7]") > 0


def test_any_client_can_bring_it_forward(store: Store, bridge: Bridge, client: redis.Redis) -> None:
    bridge.make_group("g", items(1), then=Then("orders.close", [7], "3d"))
    client.pexpire("g@then:?orders.close?[7]", 5_000)
    end(store)
    follow_up = bridge.get("g@then")
    assert follow_up is not None
    assert to_ms(follow_up.due) - server_ms(client) <= 5_000


def test_it_has_the_options_of_a_task(bridge: Bridge) -> None:
    bridge.make_group("g", items(1), then=Then("orders.close", tags=["t"], retry=[1], private=True))
    follow_up = bridge.get("g@then")
    assert follow_up is not None
    assert (follow_up.tags, follow_up.key) == (("t",), b"g@then:?orders.close?@")


def test_who_resumes_it_starts_it_before(store: Store, bridge: Bridge) -> None:
    make(bridge, 1)
    assert bridge.run_now("g@then") is Change.DUE_NOW
    end(store)
    assert state_of(store, "g@then") is State.SUCCEEDED
    assert read(bridge).state is GroupState.ENDED


@pytest.mark.parametrize("by", ["tag", "ids"])
def test_many_are_resumed_without_it(store: Store, bridge: Bridge, by: str) -> None:
    tagged = [{**item, "tags": ["t"]} for item in items(2)]
    bridge.make_group("g", tagged, then=Then("orders.close", tags=["t"]))
    bridge.pause_tag("t")
    if by == "tag":
        assert bridge.resume_tag("t")[Change.RESUMED] == 2
    else:
        told = bridge.resume_all(["g@g0", "g@g1", "g@then"])
        assert told == {Change.RESUMED: 2, Change.PAUSED: 1}
    assert state_of(store, "g@then") is State.PAUSED
    end(store)
    bridge.pause("g@then")
    assert bridge.resume_tag("t")[Change.RESUMED] == 1
    assert state_of(store, "g@then") is State.PENDING


def test_who_cancels_it_cancels_only_it(store: Store, bridge: Bridge) -> None:
    make(bridge, 1)
    bridge.cancel("g@then")
    end(store)
    assert state_of(store, "g@then") is State.CANCELLED
    assert counted(bridge) == (1, 0, 1, 0, 0)


def test_a_group_needs_no_follow_up(store: Store, bridge: Bridge) -> None:
    group = bridge.make_group("g", items(1))
    assert group.then is None
    end(store)
    assert read(bridge).state is GroupState.ENDED


def test_a_group_without_members_has_ended(store: Store, bridge: Bridge) -> None:
    assert make(bridge, 0).state is GroupState.ENDED
    assert state_of(store, "g@then") is State.PENDING


@pytest.mark.parametrize("again", ["run_now", "timer"])
def test_it_runs_once_however_often_members_do(
    store: Store, bridge: Bridge, client: redis.Redis, again: str
) -> None:
    make(bridge, 1)
    end(store)
    end(store)  # the follow-up
    if again == "run_now":
        bridge.run_now("g@g0")
    else:
        client.set("g@g0:?mail.send?[0]", 0, px=60_000)
        hear(store, b"g@g0:?mail.send?[0]", reconciling.EventKind.LIVE)
        bridge.reschedule("g@g0", 0)
    assert counted(bridge) == (1, 1, 0, 0, 0)
    end(store)
    assert counted(bridge) == (1, 0, 1, 0, 0)
    assert state_of(store, "g@then") is State.SUCCEEDED


def test_what_another_client_sets_is_no_member(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    """Neither with a number that was not made, nor with that of one that ended and is forgotten."""
    make(bridge, 1)
    end(store)
    age(client, "succeeded", "g@g0", 1)
    sweep(store)
    assert bridge.get("g@g0") is None
    numbers = client.hgetall("expirebridge:group:g")
    for number in (0, 1):
        key = b"g@g%d:?mail.send?[]" % number
        client.set(key, 0, px=60_000)
        hear(store, key, reconciling.EventKind.LIVE)
        bridge.reschedule(f"g@g{number}", 0)
    assert {task.id for task in claim(store).tasks} == {"g@g0", "g@g1", "g@then"}
    settle(store, *(Settlement(f"g@g{number}", "t", "succeeded") for number in (0, 1)))
    assert client.hgetall("expirebridge:group:g") == numbers


def test_a_resent_settlement_counts_once(store: Store, bridge: Bridge) -> None:
    make(bridge, 2)
    claim(store)
    for _ in range(2):
        assert settle(store, Settlement("g@g0", "t", "succeeded")) == [Settled.DONE]
    assert counted(bridge) == (2, 1, 1, 0, 0)


def test_what_runs_once_more_has_not_ended(store: Store, bridge: Bridge) -> None:
    make(bridge, 1)
    claim(store)
    bridge.reschedule("g@g0", 0)
    settle(store, Settlement("g@g0", "t", "succeeded"))
    assert counted(bridge) == (1, 1, 0, 0, 0)
    end(store)
    assert counted(bridge) == (1, 0, 1, 0, 0)


# Failures


def test_a_group_waits_for_a_failed_member(store: Store, bridge: Bridge) -> None:
    make(bridge, 2)
    claim(store)
    settle(store, Settlement("g@g1", "t", "succeeded"))
    assert (read(bridge).failed_at, read(bridge).only_failed_left) == (None, False)
    settle(store, Settlement("g@g0", "t", "failed"))
    assert counted(bridge) == (2, 1, 1, 1, 0)
    assert read(bridge).only_failed_left
    failed = bridge.get("g@g0")
    assert failed is not None
    assert read(bridge).failed_at == failed.ended
    assert state_of(store, "g@then") is State.PAUSED
    bridge.run_now("g@g0")
    assert not read(bridge).only_failed_left
    assert counted(bridge) == (2, 1, 1, 0, 0)
    end(store)
    assert counted(bridge) == (2, 0, 2, 0, 0)
    assert state_of(store, "g@then") is State.PENDING


def test_who_purges_a_failed_member_gives_it_up(store: Store, bridge: Bridge) -> None:
    make(bridge, 1)
    end(store, "failed")
    bridge.purge_failed(["g@g0"])
    assert counted(bridge) == (1, 0, 0, 0, 1)
    assert state_of(store, "g@then") is State.PENDING
    bridge.run_now("g@g0")  # it is still there
    assert counted(bridge) == (1, 1, 0, 0, 0)


@pytest.mark.parametrize("on_failed", ["wait", "run"])
def test_a_member_is_purged_once(store: Store, bridge: Bridge, on_failed: str) -> None:
    make(bridge, 2, on_failed=on_failed)
    end(store, "failed", "g@g0")
    for _ in range(2):
        bridge.purge_failed(["g@g0"])
    given_up = on_failed == "wait"
    assert counted(bridge) == (2, 1, 0, int(not given_up), int(given_up))
    bridge.run_now("g@g0")
    assert counted(bridge) == (2, 2, 0, 0, 0)


def test_a_failed_member_that_was_forgotten_is_waited_for(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    make(bridge, 1)
    end(store, "failed")
    age(client, "failed", "g@g0", 1)
    sweep(store)
    assert bridge.get("g@g0") is None
    assert counted(bridge) == (1, 1, 0, 1, 0)
    assert bridge.purge_failed(["g@g0"]) == {Change.NOT_FOUND: 1}
    assert counted(bridge) == (1, 1, 0, 1, 0)
    assert bridge.make_task("mail.send", delay=0, id="g@g0").outcome is Outcome.CREATED
    assert counted(bridge) == (1, 1, 0, 0, 0)
    end(store)
    assert state_of(store, "g@then") is State.PENDING


def test_a_failed_member_has_ended_if_the_group_is_to_run(store: Store, bridge: Bridge) -> None:
    make(bridge, 1, on_failed="run")
    end(store, "failed")
    assert counted(bridge) == (1, 0, 0, 1, 0)
    assert state_of(store, "g@then") is State.PENDING
    bridge.run_now("g@g0")
    assert counted(bridge) == (1, 1, 0, 0, 0)


def test_a_failed_member_cancels_the_group_if_it_is_to(store: Store, bridge: Bridge) -> None:
    bridge.make_group(
        "g", [*items(1), *({"func": "mail.send", "delay": "1h"} for _ in range(150))],
        then=THEN, on_failed="cancel",
    )  # fmt: skip
    end(store, "failed")
    group = read(bridge)
    assert (group.state, group.ended) == (GroupState.CANCELLED, None)
    follow_up = bridge.get("g@then")
    assert follow_up is not None
    assert (follow_up.state, follow_up.error) == (State.CANCELLED, "g@g0 failed")
    # The listeners do the rest.
    assert sweep(store).stopping == ["g"]
    bridge.cancel_group("g")
    assert sweep(store).stopping == []
    assert counted(bridge) == (151, 0, 0, 1, 150)
    assert read(bridge).ended is not None


@pytest.mark.parametrize("by", ["a member", "somebody"])
def test_a_group_that_is_cancelled_while_it_is_made_is_returned(
    url: str, store: Store, bridge: Bridge, by: str
) -> None:
    """As by the same call a moment later."""

    def cancel(event: Event) -> None:
        if isinstance(event, Made) and event.task.id == "g@g0":
            if by == "somebody":
                bridge.cancel_group("g")
            else:
                end(store, "failed", "g@g0")

    with Bridge(url, hooks=[cancel]) as maker:
        group = make(maker, 200, on_failed="cancel")
        assert group.state is GroupState.CANCELLED
        assert group.total < 200
        assert make(maker, 200, on_failed="cancel") == group
    assert state_of(store, "g@then") is State.CANCELLED


def test_a_member_that_fails_after_the_end_cancels_nothing(store: Store, bridge: Bridge) -> None:
    make(bridge, 1, on_failed="cancel")
    end(store)
    bridge.run_now("g@g0")
    end(store, "failed", "g@g0")
    assert counted(bridge) == (1, 0, 0, 1, 0)
    assert read(bridge).state is GroupState.ENDED


async def test_listeners_cancel_the_members_of_a_cancelled_group(
    settings: Settings, bridge: Bridge
) -> None:
    async def fail() -> None:
        raise Discard("no")

    later = ({"func": "test.fail", "delay": "1h"} for _ in range(250))
    async with listening(replace(settings, lease=0.5), fail=fail):
        bridge.make_group(
            "g", [{"func": "test.fail", "delay": 0}, *later], then=THEN, on_failed="cancel"
        )
        async with asyncio.timeout(PATIENCE):
            while read(bridge).ended is None:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.01)
    assert counted(bridge) == (251, 0, 0, 1, 250)


# Cancelling


def test_a_cancelled_group_has_no_follow_up(store: Store, bridge: Bridge) -> None:
    make(bridge, 250)
    claimed = [task.id for task in claim(store).tasks]
    group = bridge.cancel_group("g")
    assert (group.state, group.cancelled) == (GroupState.CANCELLED, 250 - len(claimed))
    assert state_of(store, "g@then") is State.CANCELLED
    settle(store, *(Settlement(id, "t", "retry", delay=1) for id in claimed))
    assert counted(bridge) == (250, 0, 0, 0, 250)
    assert state_of(store, "g@then") is State.CANCELLED
    with pytest.raises(GroupClosed, match="group 'g' takes no more members"):
        bridge.make_tasks(items(1), group="g")


@pytest.mark.parametrize("is_before", [True, False])
def test_a_cancelled_group_waits_for_no_failed_member(
    store: Store, bridge: Bridge, *, is_before: bool
) -> None:
    make(bridge, 2)
    claim(store)
    settle(store, Settlement("g@g1", "t", "succeeded"))
    steps = [
        lambda: settle(store, Settlement("g@g0", "t", "failed")),
        lambda: bridge.cancel_group("g"),
    ]
    for step in steps if is_before else steps[::-1]:
        step()
    assert counted(bridge) == (2, 0, 1, 0, 1)
    assert read(bridge).ended is not None
    assert state_of(store, "g@then") is State.CANCELLED
    bridge.run_now("g@g0")
    assert counted(bridge) == (2, 1, 1, 0, 0)


def test_a_cancelled_group_resumes_nothing(store: Store, bridge: Bridge) -> None:
    """Its follow-up was not paused when it was cancelled, and then somebody paused it."""
    bridge.make_group("g", items(1), then=THEN)
    claim(store)
    bridge.reschedule("g@then", 60)
    bridge.cancel_group("g")
    bridge.pause("g@then")
    settle(store, Settlement("g@g0", "t", "succeeded"))
    assert read(bridge).ended is not None
    assert state_of(store, "g@then") is State.PAUSED


def test_nobody_goes_on_to_cancel_a_group_that_is_gone(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    make(bridge, 1, on_failed="cancel")
    end(store, "failed")
    assert sweep(store).stopping == ["g"]
    forget_group(store, client)
    with pytest.raises(GroupNotFound):
        bridge.cancel_group("g")
    assert sweep(store).stopping == []


def test_a_cancelled_member_has_ended(store: Store, bridge: Bridge) -> None:
    make(bridge, 1)
    bridge.cancel("g@g0")
    assert counted(bridge) == (1, 0, 0, 0, 1)
    assert state_of(store, "g@then") is State.PENDING


def test_a_group_that_has_ended_is_not_cancelled(store: Store, bridge: Bridge) -> None:
    make(bridge, 1)
    end(store)
    assert bridge.cancel_group("g").state is GroupState.ENDED
    assert state_of(store, "g@then") is State.PENDING


def test_a_deleted_key_cancels_its_member(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    bridge.make_group("g", [{"func": "mail.send", "delay": 60}], then=THEN)
    client.delete("g@g0:?mail.send?[]")
    hear(store, b"g@g0:?mail.send?[]", reconciling.EventKind.DELETED)
    assert counted(bridge) == (1, 0, 0, 0, 1)


# Made again


def test_a_call_that_is_repeated_makes_what_is_missing(store: Store, bridge: Bridge) -> None:
    with dying_after(2), pytest.raises(Died):
        make(bridge, 4)
    end(store, "succeeded", "g@g0")
    group = make(bridge, 4)
    assert (group.total, group.left, group.closed) == (4, 3, True)
    assert make(bridge, 4) == group
    settle(store, Settlement("g@g1", "t", "succeeded"))
    end(store)
    assert counted(bridge) == (4, 0, 4, 0, 0)
    assert make(bridge, 4).state is GroupState.ENDED
    assert state_of(store, "g@g0") is State.SUCCEEDED


def test_a_group_is_closed_by_nobody_before_its_maker_has_made_all(
    store: Store, bridge: Bridge
) -> None:
    with dying_after(3), pytest.raises(Died):
        make(bridge, 10)
    end(store)
    with pytest.raises(GroupIncomplete, match="group 'g' lacks 7 members") as raised:
        bridge.close_group("g")
    assert raised.value.lacking == 7
    assert read(bridge).state is GroupState.OPEN
    bridge.make_tasks(items(8), group="g")
    with pytest.raises(GroupIncomplete):
        bridge.close_group("g")
    assert make(bridge, 10).state is GroupState.CLOSED
    end(store)
    assert counted(bridge) == (18, 0, 18, 0, 0)


@pytest.mark.parametrize("made", [0, 1, 3, 4, 5, 8, 99, 100])
def test_the_numbers_that_lack_are_counted(store: Store, bridge: Bridge, made: int) -> None:
    with dying_after(made), suppress(Died):
        bridge.make_group("g", items(100), close=False)
    for count in (0, 1, 2, 3, 4, 5, 7, 8, 100):
        lacking = store.run(groups.count_lacking("g", 0, count))
        assert lacking == max(count - made, 0)
    assert store.run(groups.count_lacking("g", 3, 4)) == len({3, 4, 5, 6} - {*range(made)})
    assert store.run(groups.count_lacking("other", 0, 1)) is None


def test_what_has_ended_is_not_made_again_even_if_it_is_forgotten(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    bridge.make_group("g", items(1), then=THEN, close=False)
    end(store)
    age(client, "succeeded", "g@g0", 1)
    sweep(store)
    assert bridge.get("g@g0") is None
    assert make(bridge, 1).state is GroupState.ENDED
    assert bridge.get("g@g0") is None
    with pytest.raises(TaskExists, match="g@g0"):
        bridge.make_task("mail.send", delay=0, id="g@g0")
    kept = bridge.make_task("mail.send", delay=0, id="g@g0", if_exists="keep")
    assert (kept.outcome, kept.state) == (Outcome.KEPT, State.SUCCEEDED)


@pytest.mark.parametrize(
    "other",
    [
        {"then": THEN, "tasks": items(3)},
        {"then": THEN, "tasks": items(2)[::-1]},
        {
            "then": THEN,
            "tasks": [
                {"func": "mail.send", "args": [n], "tags": ["t"], "delay": 0} for n in (0, 1)
            ],
        },
        {"then": Then("orders.close", [8])},
        {"then": Then("orders.close", [7], "1s")},
        {"then": Then("orders.close", [7], tags=["t"])},
        {"then": None},
        {"then": THEN, "on_failed": "run"},
    ],
)
def test_another_group_of_that_name_is_refused(bridge: Bridge, other: dict[str, Any]) -> None:
    make(bridge)
    with pytest.raises(GroupDiffers, match="group 'g' was made with other tasks"):
        bridge.make_group("g", **{"tasks": items(2), **other})


def test_a_group_is_refused_whose_follow_up_has_a_taken_id(bridge: Bridge) -> None:
    bridge.make_task("mail.send", delay=60, id="g@then")
    with pytest.raises(TaskExists, match="g@then"):
        make(bridge)
    assert bridge.get_group("g") is None
    bridge.cancel("g@then")
    assert make(bridge).then == "g@then"


def test_members_of_an_earlier_group_of_that_name_make_way(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    make(bridge, 2, on_failed="run")
    end(store, "failed")
    end(store)
    forget_group(store, client)
    assert make(bridge, 2).left == 2
    assert (state_of(store, "g@g0"), state_of(store, "g@then")) == ("pending", "paused")


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_a_resent_call_finds_its_member_after_its_end(
    store: Store, bridge: Bridge, outcome: str
) -> None:
    make(bridge, 0, close=False)
    call = producing.make([new("g@g0")])
    for _ in range(2):
        [made] = store.run(call)
        assert made.outcome is Outcome.CREATED
        if made.state is State.PENDING:
            end(store, outcome)
    is_failed = outcome == "failed"
    assert counted(bridge) == (1, int(is_failed), int(not is_failed), int(is_failed), 0)


def test_a_call_that_is_refused_makes_no_member(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    make(bridge, 1, close=False)
    client.set("g@g5:?mail.send?[]", 0, px=60_000)
    hear(store, b"g@g5:?mail.send?[]", reconciling.EventKind.LIVE)
    with pytest.raises(TaskExists):
        bridge.make_task("mail.send", delay=0, id="g@g5")
    assert read(bridge).total == 1
    bridge.make_task("mail.send", delay=0, id="g@g5", if_exists="keep")
    assert read(bridge).total == 2


def test_a_repeated_call_may_have_other_times(bridge: Bridge) -> None:
    group = make(bridge, 2)
    later = [{**item, "delay": 60} for item in items(2)]
    assert bridge.make_group("g", later, then=THEN) == group


@pytest.mark.parametrize("place", ["args", "kwargs", "then"])
def test_with_keys_too_other_arguments_make_another_group(url: str, place: str) -> None:
    def make_it(bridge: Bridge, card: int) -> Group:
        given = {"args": [0], "kwargs": {"card": 0}, "then": 0} | {
            place: card if place == "then" else [card] if place == "args" else {"card": card}
        }
        one = {"func": "mail.send", "args": given["args"], "kwargs": given["kwargs"], "delay": 60}
        return bridge.make_group("g", [one], then=Then("orders.close", [given["then"]]))

    with Bridge(url, keys=K1) as bridge:
        group = make_it(bridge, 1)
        assert make_it(bridge, 1) == group
    # While keys are changed, programs have them in another order, and then the old one no more.
    for keys in (f"{K1} {K2}", f"{K2} {K1}", K1):
        with Bridge(url, keys=keys) as bridge:
            assert make_it(bridge, 1) == group
            with pytest.raises(GroupDiffers):
                make_it(bridge, 2)
    for others in (K2, key("k1", 9), None):
        with Bridge(url, keys=others) as bridge, pytest.raises(GroupDiffers):
            make_it(bridge, 1)


def test_the_digest_of_a_group_tells_nothing_of_sealed_arguments(
    url: str, client: redis.Redis
) -> None:
    """Without the key, nobody can try arguments; nor see which groups have the same."""
    digests = set[Any]()
    for keys, card in [(K1, 1), (K1, 1), (K1, 2), (key("k1", 9), 1)]:
        client.flushdb()
        with Bridge(url, keys=keys) as bridge:
            for name in ("g", "h"):
                one = [{"func": "mail.send", "args": [card], "delay": 60}]
                bridge.make_group(name, one, then=Then("orders.close", [card]))
                digests.add(client.hget(f"expirebridge:group:{name}", "definition"))
    assert len(digests) == 6
    assert all(one.startswith(b"k1:") for one in digests)


def test_a_member_can_be_replaced(store: Store, bridge: Bridge) -> None:
    make(bridge, 1)
    bridge.make_task("mail.send", [9], 0, id="g@g0", if_exists="replace")
    assert counted(bridge) == (1, 1, 0, 0, 0)
    claim(store)
    bridge.make_task("mail.send", [10], 0, id="g@g0", if_exists="replace")
    settle(store, Settlement("g@g0", "t", "succeeded"))
    assert counted(bridge) == (1, 1, 0, 0, 0)
    end(store)
    assert counted(bridge) == (1, 0, 1, 0, 0)


# Open groups


def test_members_are_added_until_the_group_is_closed(store: Store, bridge: Bridge) -> None:
    assert make(bridge, 1, close=False).state is GroupState.OPEN
    end(store)
    assert state_of(store, "g@then") is State.PAUSED
    added = bridge.make_tasks(items(2), group="g")
    assert [task.id for task in added] == ["g@g1", "g@g2"]
    assert bridge.close_group("g").state is GroupState.CLOSED
    with pytest.raises(GroupClosed):
        bridge.make_tasks(items(1), group="g")
    end(store)
    assert counted(bridge) == (3, 0, 3, 0, 0)
    assert state_of(store, "g@then") is State.PENDING


def test_the_last_to_close_ends_it(store: Store, bridge: Bridge) -> None:
    make(bridge, 1, close=False)
    end(store)
    for _ in range(2):
        assert bridge.close_group("g").state is GroupState.ENDED
    assert state_of(store, "g@then") is State.PENDING


def test_numbers_that_were_given_out_and_not_used_hold_nothing_up(
    store: Store, bridge: Bridge
) -> None:
    make(bridge, 1, close=False)
    store.run(groups.reserve_members("g", 10))
    [added] = bridge.make_tasks(items(1), group="g")
    assert added.id == "g@g11"
    bridge.close_group("g")
    end(store)
    assert counted(bridge) == (2, 0, 2, 0, 0)


def test_a_member_can_be_made_by_its_id(bridge: Bridge) -> None:
    make(bridge, 1, close=False)
    assert bridge.make_task("mail.send", delay=0, id="g@g7").outcome is Outcome.CREATED
    assert read(bridge).total == 2
    [added] = bridge.make_tasks(items(1), group="g")
    assert added.id == "g@g8"


@pytest.mark.parametrize("number", ["007", "00", "100000", "99999999999999999999999"])
def test_a_member_has_a_number_below_100_000(bridge: Bridge, number: str) -> None:
    make(bridge, 1, close=False)
    with pytest.raises(GroupClosed):
        bridge.make_task("mail.send", delay=0, id=f"g@g{number}")
    bridge.make_task("mail.send", delay=0, id="g@g99999")
    with pytest.raises(GroupClosed):
        bridge.make_tasks(items(1), group="g")


def test_one_that_is_no_member_keeps_no_other_from_being_made(bridge: Bridge) -> None:
    with pytest.raises(GroupNotFound, match="group 'x'"):
        bridge.make_tasks(
            [{"func": "mail.send", "delay": 0, "id": id} for id in ("a", "x@g1", "b")]
        )
    assert bridge.count().pending == 2


def test_without_a_group_there_are_no_members(bridge: Bridge) -> None:
    for _ in range(2):
        with pytest.raises(GroupNotFound, match="group 'x' does not exist"):
            bridge.make_task("mail.send", delay=0, id="x@g0")
        with pytest.raises(GroupNotFound):
            bridge.make_tasks(items(1), group="x")
        with pytest.raises(GroupNotFound):
            bridge.make_tasks([{"func": "mail.send", "delay": 0, "id": "x@g1"}])
        with pytest.raises(GroupNotFound):
            bridge.close_group("x")
        with pytest.raises(GroupNotFound):
            bridge.cancel_group("x")
        assert bridge.get_group("x") is None
        make(bridge)  # with other groups, too


async def test_handlers_add_members_to_their_own_group(settings: Settings, bridge: Bridge) -> None:
    """A crawler: the first page finds others, and the last of them closes the group."""
    seen = list[int]()
    done, witness = asyncio.Event(), Witness()

    def page(depth: int) -> None:
        seen.append(depth)
        if depth < 2:
            deeper = [{"func": "test.page", "args": [depth + 1], "delay": 0}] * 2
            group = current_task().id.partition("@")[0]
            made = bridge.make_tasks([dict(one) for one in deeper], group=group)
            assert len(made) == 2

    async def close() -> None:
        done.set()

    async with listening(settings, witness, page=page, close=close):
        first = [{"func": "test.page", "args": [0], "delay": 0}]
        bridge.make_group("crawl", first, then=Then("test.close"), close=False)
        await witness.until_ended(7)
        assert not done.is_set()
        bridge.close_group("crawl")
        async with asyncio.timeout(PATIENCE):
            await done.wait()
    assert sorted(seen) == [0, 1, 1, 2, 2, 2, 2]


@pytest.mark.parametrize("is_there", [True, False])
def test_the_follow_up_of_a_task_may_be_a_member(
    store: Store, bridge: Bridge, *, is_there: bool
) -> None:
    if is_there:
        make(bridge, 1, close=False)
        end(store)
    bridge.make_task("mail.send", delay=0, id="a")
    claim(store)
    then = Settlement("a", "t", "succeeded", then=new("g@g5", 60_000))
    [settled] = store.run(claiming.settle_then([then], Settings()))
    assert settled.code is (Settled.DONE if is_there else Obstacle.NO_GROUP)
    assert state_of(store, "g@g5") is (State.PENDING if is_there else None)


# What other clients do


def test_a_key_of_that_form_makes_no_member(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    make(bridge, 1)
    client.set("g@g5:?mail.send?[]", 0, px=60_000)
    hear(store, b"g@g5:?mail.send?[]", reconciling.EventKind.LIVE)
    bridge.cancel("g@g5")
    assert counted(bridge) == (1, 1, 0, 0, 0)


def test_a_member_without_its_record_counts_as_cancelled(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    make(bridge, 2)
    client.delete("expirebridge:task:g@g0")
    end(store)
    assert counted(bridge) == (2, 0, 1, 0, 1)
    assert state_of(store, "g@then") is State.PENDING


@pytest.mark.parametrize("name", ["expirebridge:group:g", "expirebridge:group:g@members"])
def test_garbage_in_place_of_a_group_stops_no_task(
    store: Store, bridge: Bridge, client: redis.Redis, name: str
) -> None:
    make(bridge, 1)
    client.delete(name)
    client.lpush(name, "x")
    end(store)
    assert state_of(store, "g@g0") is State.SUCCEEDED
    assert sweep(store).stopping == []


@pytest.mark.parametrize(
    ("name", "field"), [("group:a", "left"), ("group:a", "succeeded"), ("task:a@then", "left")]
)
@pytest.mark.parametrize("value", ["nan", "x", "1e300", "-5"])
def test_garbage_in_one_group_harms_no_other(
    store: Store, bridge: Bridge, client: redis.Redis, name: str, field: str, value: str
) -> None:
    for group in "abc":
        bridge.make_group(group, items(2), then=Then("orders.close"))
    client.hset(f"expirebridge:{name}", field, value)
    end(store)
    for group in "bc":
        assert state_of(store, f"{group}@then") is State.PENDING
    assert bridge.count().succeeded == 6


@pytest.mark.parametrize("left", ["nan", "1e300"])
def test_garbage_in_place_of_its_time_does_not_lose_a_follow_up(
    store: Store, bridge: Bridge, client: redis.Redis, left: str
) -> None:
    make(bridge, 1)
    client.hset("expirebridge:task:g@then", "left", left)
    end(store)
    assert state_of(store, "g@then") is State.PENDING


@pytest.mark.parametrize("kind", ["no bytes of ours", "no hash", "another type", "no fields"])
def test_garbage_among_cancelled_groups_stops_no_sweep(
    store: Store, bridge: Bridge, client: redis.Redis, kind: str
) -> None:
    bridge.make_group("z", [{"func": "mail.send", "delay": 60}] * 150, then=THEN)
    store.run(groups.cancel_group("z", keep=60))
    name = b"\xff\xfe" if kind == "no bytes of ours" else b"a"
    client.zadd("expirebridge:stopping", {name: 1})
    if kind == "another type":
        client.set("expirebridge:group:a", "x")
    if kind == "no fields":
        client.hset("expirebridge:group:a", mapping={"stopped": 1, "on_failed": "run"})
    stopping = sweep(store).stopping
    assert stopping == (["a", "z"] if kind == "no fields" else ["z"])
    for group in stopping:
        store.run(groups.cancel_group(group, keep=60))
    assert sweep(store).stopping == []
    assert bridge.get_group("z").cancelled == 150  # type: ignore[union-attr]


def test_a_group_whose_hash_is_lost_keeps_no_move_waiting(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    make(bridge, 1)
    client.delete("expirebridge:group:g")
    with pytest.raises(MoveRefused, match="a group of this database has not ended"):
        store.run(migration.begin_move("redis://new"))
    with pytest.raises(GroupNotFound):
        bridge.cancel_group("g")
    assert store.run(migration.begin_move("redis://new"))


def test_what_another_client_wrote_there_makes_way_for_a_group(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    make(bridge, 1)
    client.set("expirebridge:group:g", "x")
    with pytest.raises(GroupNotFound):
        bridge.close_group("g")
    with pytest.raises(GroupNotFound):
        bridge.make_tasks(items(1), group="g")
    with pytest.raises(TaskExists, match="g@then"):
        make(bridge, 1)
    bridge.cancel("g@then")
    assert make(bridge, 1).left == 1


def test_a_finished_task_that_a_member_keeps_has_ended(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    """It throttles itself by `window`."""
    make(bridge, 1, close=False)
    client.set("g@g5:?mail.send?[]", 0, px=60_000)
    hear(store, b"g@g5:?mail.send?[]", reconciling.EventKind.LIVE)
    bridge.run_now("g@g5")
    end(store)
    kept = bridge.make_task("mail.send", delay=0, id="g@g5", if_exists="keep", window=60)
    assert (kept.outcome, kept.state) == (Outcome.KEPT, State.SUCCEEDED)
    assert counted(bridge) == (2, 0, 2, 0, 0)
    assert bridge.close_group("g").state is GroupState.ENDED


# Kept, listed, moved


def test_a_group_is_forgotten_a_day_after_its_end(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    make(bridge, 1)
    end(store)
    until = client.zscore("expirebridge:groups", "g")
    assert until is not None
    assert until - server_ms(client) == pytest.approx(86_400_000, abs=60_000)
    sweep(store)
    assert bridge.get_group("g") is not None
    forget_group(store, client)
    assert bridge.get_group("g") is None
    assert client.keys("*group*") == []


def test_groups_are_listed(store: Store, bridge: Bridge) -> None:
    for number in range(5):
        bridge.make_group(f"g{number}", items(number))
    found = bridge.list_groups(limit=2)
    assert (len(found.groups), found.complete) == (2, False)
    assert {group.state for group in found.groups} == {GroupState.CLOSED}
    found = bridge.list_groups()
    assert [group.name for group in found.groups] == ["g4", "g3", "g2", "g1", "g0"]
    assert (found.complete, found.groups[-1].state) == (True, "ended")


def test_members_are_listed(store: Store, bridge: Bridge) -> None:
    make(bridge, 250)
    end(store)
    assert len(bridge.list(group="g", limit=1000).tasks) == 250
    waiting = bridge.list(group="g", state="pending", limit=1000)
    assert {task.state for task in waiting.tasks} == {State.PENDING}
    assert len(waiting.tasks) == 150
    first = bridge.list(group="g", limit=120)
    then = bridge.list(group="g", limit=1000, cursor=first.cursor)
    assert [task.id for task in [*first.tasks, *then.tasks]] == [f"g@g{n}" for n in range(250)]
    assert (bridge.list(group="x").tasks, then.complete) == ([], True)
    with pytest.raises(InvalidTask, match="either tag or group"):
        bridge.list(group="g", tag="t")


@pytest.mark.parametrize("on_failed", ["wait", "run", "cancel"])
def test_members_are_listed_by_state(store: Store, bridge: Bridge, on_failed: OnFailed) -> None:
    make(bridge, 4, on_failed=on_failed, close=False)
    claim(store)
    bridge.make_tasks(items(2), group="g")
    bridge.pause("g@g4")
    bridge.cancel("g@g5")
    settle(store, Settlement("g@g1", "t", "succeeded"), Settlement("g@g2", "t", "failed"))
    found = {
        state: [task.id for task in bridge.list(group="g", state=state).tasks] for state in State
    }
    assert found == {
        "pending": [], "waiting": [], "paused": ["g@g4"], "running": ["g@g0", "g@g3"],
        "succeeded": ["g@g1"], "failed": ["g@g2"], "cancelled": ["g@g5"],
    }  # fmt: skip
    bridge.cancel_group("g")
    settle(store, Settlement("g@g3", "t", "failed"))
    failed = [task.id for task in bridge.list(group="g", state="failed").tasks]
    assert failed == ["g@g2", "g@g3"]


def test_failed_members_are_found_among_many(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    """The others have succeeded, and are forgotten: only their bits are written."""
    bridge.make_group("g", close=False)
    store.run(groups.reserve_members("g", 20_000))
    members = "expirebridge:group:g@members"
    client.set(members, b"\xff" * 5_000)
    numbers = [6, 12_345, 19_999]
    ids = [f"g@g{number}" for number in numbers]
    for number, id in zip(numbers, ids, strict=True):
        client.execute_command("BITFIELD", members, "SET", "u2", f"#{number}", 0)
        bridge.make_task("mail.send", delay=0, id=id)
    end(store, "failed")
    bridge.make_task("mail.send", delay=0, id="other")
    end(store, "failed")
    found = bridge.list(group="g", state="failed")
    assert ([task.id for task in found.tasks], found.examined, found.complete) == (ids, 3, True)
    first = bridge.list(group="g", state="failed", limit=2)
    rest = bridge.list(group="g", state="failed", cursor=first.cursor)
    assert ([task.id for task in [*first.tasks, *rest.tasks]], rest.complete) == (ids, True)
    assert sorted(bridge.find_failed(group="g")) == sorted(ids)
    with pytest.raises(InvalidTask, match="either tag or group"):
        bridge.find_failed(group="g", tag="t")


def test_a_database_with_an_open_group_is_not_moved(store: Store, bridge: Bridge) -> None:
    make(bridge, 1)
    with pytest.raises(MoveRefused, match="a group of this database has not ended"):
        store.run(migration.begin_move("redis://new"))
    end(store)
    assert store.run(migration.begin_move("redis://new"))


def test_the_notes_of_a_lost_format_name_groups_again(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    make(bridge, 1)
    client.delete("expirebridge:meta")
    bridge.make_task("mail.send", delay=60)
    assert client.hget("expirebridge:meta", "features") == b"groups"
    end(store)
    assert counted(bridge)[1] == 0


def test_a_database_without_groups_has_no_note_of_them(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    bridge.make_task("mail.send", delay=0, id="a@b")
    end(store)
    assert client.hget("expirebridge:meta", "features") is None


# The tables of docs/reference/states.md

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "states.md"
SECTION = PAGE.read_text().partition("operation does to a group\n")[2].partition("\n## ")[0]
ROWS = {
    cells[0]: cells[1:]
    for line in SECTION.splitlines()
    if line.startswith("| ") and (cells := [cell.strip() for cell in line.strip("|").split("|")])
}
NUMBERS = ("left", "succeeded", "failed", "cancelled")


def again(_store: Store, bridge: Bridge) -> None:
    bridge.run_now("g@g0")


def given_up(_store: Store, bridge: Bridge) -> None:
    bridge.purge_failed(["g@g0"])


def looked_at(_store: Store, bridge: Bridge) -> None:
    bridge.pause("g@g0")
    bridge.put_off("g@g0", 60)
    bridge.edit("g@g0", args=[5])
    bridge.resume("g@g0")


def forgotten(store: Store, _bridge: Bridge) -> None:
    age(store.client, "succeeded", "g@g0", 1)
    sweep(store)


def ending(how: str) -> Callable[[Store, Bridge], None]:
    def end_first(store: Store, _bridge: Bridge) -> None:
        claim(store)
        settle(store, Settlement("g@g0", "t", how))

    return end_first


MEMBERS: dict[str, tuple[str, str | None, Callable[[Store, Bridge], object]]] = {
    "is made": ("wait", None, lambda _, bridge: bridge.make_tasks(items(1), group="g")),
    "succeeds": ("wait", None, ending("succeeded")),
    'fails, `"wait"`': ("wait", None, ending("failed")),
    'fails, `"run"`': ("run", None, ending("failed")),
    "is cancelled": ("wait", None, lambda _, bridge: bridge.cancel("g@g0")),
    "runs again after a success": ("wait", "succeeded", again),
    'runs again after a failure, `"wait"`': ("wait", "failed", again),
    'is purged after a failure, `"wait"`': ("wait", "failed", given_up),
    "is paused, put off, or edited": ("wait", None, looked_at),
    "is retried": ("wait", None, ending("retry")),
    "is forgotten": ("wait", "succeeded", forgotten),
}


@pytest.mark.parametrize("row", MEMBERS)
def test_what_becomes_of_a_member_changes_the_numbers(
    store: Store, bridge: Bridge, row: str
) -> None:
    on_failed, before, act = MEMBERS[row]
    make(bridge, 2, close=False, on_failed=on_failed)
    if before:
        ending(before)(store, bridge)
    old = read(bridge)
    act(store, bridge)
    new = read(bridge)
    changes = [getattr(new, name) - getattr(old, name) for name in NUMBERS]
    assert [f"{change:+}" if change else "" for change in changes] == ROWS[row]
    assert state_of(store, "g@then") is State.PAUSED


STATES = ("open", "closed", "ended", "cancelled")


def outcome(bridge: Bridge, call: Callable[[], object]) -> str:
    """What a call does, in the words of the table."""
    before = read(bridge)
    try:
        call()
    except (GroupClosed, GroupDiffers, GroupIncomplete) as error:
        assert read(bridge) == before
        return f"`{type(error).__name__}`"
    after = read(bridge)
    if after == before:
        return "nothing changes"
    if after.state == before.state:
        return "adds members"
    made = after.total - before.total
    return "makes what is not made, closes it" if made else str(after.state)


@pytest.mark.parametrize("row", [row for row in ROWS if row not in MEMBERS and "`" in row])
@pytest.mark.parametrize("state", STATES)
def test_what_each_operation_does_to_a_group(
    store: Store, bridge: Bridge, state: str, row: str
) -> None:
    if state == "open" and row == "`close_group`":
        make(bridge, 2, close=False)
    elif state == "open":
        with dying_after(1), pytest.raises(Died):
            make(bridge, 2)
    group = read(bridge) if state == "open" else make(bridge, 2)
    if state == "ended":
        end(store)
    if state == "cancelled":
        bridge.cancel_group("g")
    assert read(bridge).state == state
    assert group.name == "g"
    calls: dict[str, Callable[[], object]] = {
        "`make_group`, the same": lambda: make(bridge, 2),
        "`make_group`, other tasks, another follow-up or `on_failed`": lambda: make(bridge, 1),
        "`make_tasks(group=)`": lambda: bridge.make_tasks(items(1), group="g"),
        "`close_group`": lambda: bridge.close_group("g"),
        "`close_group`, while members lack": lambda: bridge.close_group("g"),
        "`cancel_group`": lambda: bridge.cancel_group("g"),
    }
    assert outcome(bridge, calls[row]) == ROWS[row][STATES.index(state)]


def test_the_tables_have_no_other_rows() -> None:
    heads = {"", "a member", "---"}
    assert len([row for row in ROWS if row not in heads]) == len(MEMBERS) + 6
    assert MEMBERS.keys() < ROWS.keys()


# Bad input


@pytest.mark.parametrize("name", ["", "a b", "a@b", "x" * 101, 7, None])
def test_an_illegal_name_is_refused(bridge: Bridge, name: Any) -> None:
    for call in (
        lambda: bridge.make_group(name, []),
        lambda: bridge.close_group(name),
        lambda: bridge.cancel_group(name),
        lambda: bridge.get_group(name),
    ):
        with pytest.raises(InvalidTask, match="a group's name has 1 to 100 characters"):
            call()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_failed": "stop"}, "on_failed='stop': one of wait, run, cancel"),
        ({"close": 1}, "close=1: True or False"),
        ({"then": Call(len, [])}, "then=.*: give a Then"),
        ({"then": Then("x.y", id="z")}, "then: id='z': a group's follow-up has a fixed id"),
        ({"then": Then("x.y", at=from_ms(0))}, "then: at="),
        ({"then": Then("x.y", if_exists="keep")}, "then: if_exists="),
        ({"then": Then("no")}, "then: func='no'"),
        ({"tasks": [{"func": "x.y", "delay": 0, "id": "z"}]}, "task 0: id: leave it out"),
        ({"tasks": [{"func": "x.y", "delay": 0, "window": 1}]}, "task 0: window: leave it out"),
        ({"tasks": [{"func": "x.y"}]}, "task 0: give either delay or at"),
        ({"tasks": [{"func": "x.y", "delay": 0}] * 100_001}, "100,001 tasks; at most 100,000"),
    ],
)
def test_bad_input_is_refused_before_anything_is_sent(
    bridge: Bridge, client: redis.Redis, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidTask, match=words):
        bridge.make_group("g", **{"tasks": [], **options})
    assert client.dbsize() == 0


def test_an_unknown_function_is_refused_if_it_is_to_be(url: str, client: redis.Redis) -> None:
    with Bridge(url, unknown="refuse") as bridge:
        make(bridge, 1)  # nobody listens
    assert client.hget("expirebridge:group:g", "left") == b"1"


async def test_an_unknown_function_is_warned_of(url: str, settings: Settings, log: Log) -> None:
    async def send() -> None: ...

    async with listening(settings, send=send), AsyncBridge(url) as bridge:
        later = [{"func": "test.send", "delay": 60}]
        await bridge.make_group("g", later, then=Then("test.sent"))
    assert "test.sent: no listener knows it" in log.text()


# Several partitions


def test_a_group_is_in_one_partition(store: Store, bridge: Bridge, url: str) -> None:
    assert bridge.create_partitions(4) == 4
    for name in ("a", "b", "c", "d", "e"):
        bridge.make_group(name, items(3), then=THEN)
        with pytest.raises(GroupDiffers):
            bridge.make_group(name, [])
    assert len(bridge.list_groups().groups) == 5
    assert {group.total for group in bridge.list_groups().groups} == {3}
    for name in ("a", "b", "c", "d", "e"):
        assert bridge.cancel_all([f"{name}@g{n}" for n in range(3)]) == {Change.CANCELLED: 3}
        follow_up = bridge.get(f"{name}@then")
        assert follow_up is not None
        assert follow_up.state is State.PENDING


def test_groups_of_all_partitions_are_listed_unended_ones_first(
    bridge: Bridge, client: redis.Redis
) -> None:
    bridge.create_partitions(4)
    names = [f"g{number}" for number in range(12)]
    for name in names:
        bridge.make_group(name, items(1) if int(name[1:]) % 3 else [])
    ended = [name for name in names if not int(name[1:]) % 3]
    for seconds, name in enumerate(ended):
        found = bridge.get_group(name)
        assert found is not None
        assert found.ended is not None
        [key] = client.keys(f"*expirebridge:group:{name}")
        client.hset(key, "ended", to_ms(found.ended) - seconds * 1000)
    listing = bridge.list_groups()
    listed = [group.name for group in listing.groups]
    assert (sorted(listed[:8]), listed[8:]) == (sorted(set(names) - {*ended}), ended)
    assert listing.complete
    assert bridge.list_groups(limit=12).complete
    first = bridge.list_groups(limit=9)
    assert ([group.name for group in first.groups], first.complete) == (listed[:9], False)
    partitions = Partitions(client, prefix="expirebridge")
    unended = partitions.run(groups.find_unended(100))
    assert sorted(group.name for group in unended) == sorted(listed[:8])
    assert len(partitions.run(groups.find_unended(3))) == 3


def test_pages_of_unended_groups_end_with_these(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    for number in range(350):
        bridge.make_group(f"g{number}", [], close=number >= 150)
    client.config_resetstat()
    assert len(store.run(groups.find_unended(1000))) == 150
    assert client.info("commandstats")["cmdstat_zrevrange"]["calls"] == 2


def test_the_doctor_warns_of_a_group_that_waits_for_failed_members_alone(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    def checked() -> tuple[str, str]:
        finding = store.run(check_groups())
        assert finding is not None
        return finding.level, finding.message

    bridge.make_group("ended", [])
    assert store.run(check_groups()) is None
    make(bridge, 2)
    claim(store)
    settle(store, Settlement("g@g0", "t", "failed"), Settlement("g@g1", "t", "succeeded"))
    fine = ("ok", "1 group has 1 member left")
    assert checked() == fine
    client.hset("expirebridge:group:g", "failed_at", server_ms(client) - 3_601_000)
    finding = store.run(check_groups())
    assert finding is not None
    assert checked() == (
        "warning",
        "for more than an hour only failed members are left: g (1 of 2 members left, 1 failed)",
    )
    assert "expirebridge failed retry --group g;" in finding.remedy
    assert finding.remedy.endswith("cancel the group: expirebridge groups cancel g")
    bridge.run_now("g@g0")
    assert checked() == fine


def forget_group(store: Store, client: redis.Redis) -> None:
    """Have the group forgotten, as a day after its end."""
    age(client, "groups", "g", 1)
    sweep(store)

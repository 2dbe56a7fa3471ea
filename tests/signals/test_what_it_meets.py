"""What signals meet: one line for each thing of expirebridge that a signalled task can come across.

Each line says what happens, and which test shows it; those that stand nowhere else are below.
"""

import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import redis

from expirebridge import (
    AsyncBridge,
    Bridge,
    Change,
    Outcome,
    Snooze,
    State,
    TaskDiffers,
    current_task,
)
from expirebridge.hooks import End
from expirebridge.settings import Settings
from expirebridge.signals import calls
from expirebridge.store.client import Store
from expirebridge.task.calls import producing, reconciling
from expirebridge.task.calls.claiming import MAX_CLAIM_BYTES, Settlement
from expirebridge.task.calls.reconciling import Adoption, EventKind, KeyEvent
from tests.kit.steps import PREFIX, age, beating, claim, new, server_ms, settle
from tests.kit.witness import Witness, listening
from tests.signals.steps import end, make, read, taken

pytestmark = pytest.mark.servers("oldest")


class Cell(NamedTuple):
    """What a signalled task meets."""

    what: str
    answer: str
    shown_by: str
    """A test, after the module of it, if that is another one."""


TABLE = [
    # Lanes and holds
    Cell("a lane of a limit, of the lost function", "it leaves queue and slot; the next begins",
         "test_limits.test_what_waits_for_a_slot_is_signalled_and_waits_no_longer"),
    Cell("a slot that it was granted there", "the next gets it",
         "test_limits.test_one_with_a_slot_that_was_granted_gives_it_to_the_next"),
    Cell("slots and queues of several lanes", "it leaves them all",
         "test_limits.test_of_two_lanes_it_leaves_both_queue_and_slot"),
    Cell("a lane of the second function", "works: it waits there once it is signalled",
         "test_limits.test_the_second_function_has_its_own_lane"),
    Cell("a lane of both, ordered or not", "its place is that of the time of the signal",
         "test_limits.test_in_a_lane_of_both_functions_it_takes_its_place_by_when_it_was_signalled"),
    Cell("a rate", "it does not wait for a start; its start is that of the next",
         "test_limits.test_a_rate_that_it_waited_for_does_not_hold_it"),
    Cell("its turn in a rate, while it waits behind it", "the next one has it",
         "test_limits.test_the_turn_that_it_had_in_a_rate_is_that_of_the_next"),
    Cell("a rate of the second function", "works: its start is counted",
         "test_limits.test_a_start_of_the_second_function_s_rate_is_counted"),
    Cell("a fair limit", "its tenant goes on with the next",
         "test_limits.test_a_fair_lane_goes_on_without_it"),
    Cell("a hold of the lost function", "it is on hold no longer",
         "test_limits.test_a_hold_of_the_lost_function_does_not_hold_it"),
    Cell("a hold of the second function", "it is on hold once it is signalled",
         "test_limits.test_a_hold_of_the_second_function_holds_it_once_it_is_signalled"),
    Cell("a hold by tag", "it is on hold before and after",
         "test_limits.test_a_hold_by_tag_holds_it_before_and_after"),
    Cell("an ordered lane behind a hold", "nobody waits for it there",
         "test_limits.test_nobody_in_an_ordered_lane_waits_for_one_that_left_a_hold"),
    Cell("how long it waited before", "does not count: it is due since the signal",
         "test_limits.test_how_long_it_waited_before_the_signal_does_not_count"),
    # Other things to make
    Cell("a series, by schedule or @every; watch", "refused when made",
         "test_made.test_what_comes_again_waits_for_no_signal"),
    Cell("a tick of a series", "not awaited", "test_a_tick_is_not_awaited"),
    Cell("make_tasks, members, AsyncBridge", "works",
         "test_made.test_whatever_makes_a_task_takes_it"),
    Cell("a member of a group", "works: it counts whichever function runs",
         "test_groups.test_members_count_whichever_function_runs"),
    Cell("a group's follow-up, while it waits", "works: it stays paused, and is due at the end",
         "test_groups.test_a_follow_up_is_signalled_while_it_waits_for_its_group"),
    Cell("a group's follow-up, later", "works",
         "test_groups.test_a_follow_up_is_signalled_between_the_end_of_its_group_and_its_deadline"),
    Cell("the same make_group again", "another second function is another group",
         "test_groups.test_the_same_group_again_is_compared_with_the_second_functions"),
    Cell("Then(on_signal=)", "works", "test_made.test_a_follow_up_of_a_task_waits_for_a_signal"),
    Cell("a Call as on_signal", "refused when made",
         "test_made.test_no_call_is_taken_as_the_second_function"),
    Cell("typed handlers", "both must write the same JSON, or it is refused when made",
         "test_made.test_arguments_that_the_second_function_cannot_take_are_refused"),
    Cell("private handlers", "one of both is enough: the arguments are in no key",
         "test_made.test_arguments_that_one_of_both_keeps_private_are_in_no_key"),
    # Arguments
    Cell("sealed arguments, a sealed payload", "works",
         "test_sealing.test_the_server_sees_neither_arguments_nor_what_the_signal_said"),
    Cell("a listener without the payload's key", "leaves it to one that has it",
         "test_sealing.test_a_listener_without_the_key_of_a_signal_leaves_the_task_to_one_that_has_it"),
    Cell("a sealed follow-up, Then", "works",
         "test_sealing.test_a_sealed_follow_up_of_a_task_is_signalled"),
    Cell("a claim that is sent again", "says what opens the arguments",
         "test_sealing.test_a_claim_that_is_sent_again_says_what_opens_the_arguments"),
    Cell("keys that are changed", "works: the same signal is known afterwards",
         "test_sealing.test_keys_are_changed_before_and_after_the_signal"),
    Cell("values in clear", "those of the limits of both; one name for two is refused",
         "test_sealing.test_values_in_clear_are_those_of_the_limits_of_both"),
    Cell("arguments of a codec", "works",
         "test_sealing.test_arguments_of_a_codec_are_those_of_both"),
    Cell("arguments too long for the key", "works: both keys end in @",
         "test_sealing.test_arguments_too_long_for_the_key_stay_in_the_record"),
    Cell("edit", "works before and after; the new ones must fit each function that may run",
         "test_sealing.test_new_arguments_must_fit_each_function_that_may_run"),
    Cell("200 payloads of 64 KiB", "claimed in portions of a claim's bytes",
         "test_large_signals_are_claimed_in_portions"),
    # What happens to tasks
    Cell("a successor, next", "the signal is for that",
         "test_signal.test_a_signal_for_one_that_was_replaced_while_it_ran_is_for_its_successor"),
    Cell("a successor that has followed", "works",
         "test_a_successor_is_signalled_once_it_has_followed"),
    Cell("the successor of one that was signalled",
         "another signal is for that; the same one has its answer",
         "test_the_successor_of_one_that_was_signalled_has_a_signal_of_its_own"),
    Cell("the key of a successor, which a client has moved", "it is due at the signal",
         "test_a_successor_that_a_client_put_off_is_due_at_its_signal"),
    Cell("its key set while it runs", "what was decided runs again",
         "test_what_was_decided_runs_again_if_its_key_is_set"),
    Cell("the old key set again, in any state", "deleted: it starts nothing",
         "test_the_old_key_starts_nothing_whatever_the_state"),
    Cell("a resend", "has the first answer, whatever came since",
         "test_a_resend_has_the_first_answer"),
    Cell("retries, Snooze, lapses", "function and payload stay",
         "test_function_and_payload_stay_for_all_attempts"),
    Cell("misfire, late_after", "late is what begins long after the signal",
         "test_lateness_counts_from_the_signal"),
    Cell("timeout, retry, tags", "those of the task, for either function",
         "test_what_the_task_says_counts_for_either_function"),
    Cell("pause", "works: it stays paused", "test_signal.test_a_paused_one_stays_paused"),
    Cell("reschedule, put_off", "works: whoever calls them after a signal means it",
         "test_it_can_be_rescheduled_after_the_signal"),
    Cell("window (throttle)", "a run of either function counts",
         "test_a_run_of_either_function_counts_for_a_window"),
    Cell("extend, max_wait", "kept after a signal; refused with another on_signal before it",
         "test_nothing_puts_off_what_was_signalled"),
    Cell("a call with extend that is sent again", "has the first answer",
         "test_a_call_that_extends_and_is_sent_again_has_its_first_answer"),
    Cell("replace", "begins anew: it waits again", "test_one_that_is_replaced_waits_again"),
    Cell("several partitions", "works", "test_partitions"),
    Cell("a foreign key's name", "the key has the task's own name after the signal",
         "test_a_key_of_another_name_is_left_behind"),
    Cell("a database that lost meta", "a claim decides all the same",
         "test_garbage.test_while_nobody_knows_of_signals_a_claim_decides_all_the_same"),
    Cell("a key signals that holds something else", "nothing is counted; all else works",
         "test_garbage.test_a_key_that_another_client_overwrote_stops_nothing"),
    Cell("garbage in the record", "the deadline counts; nothing stops",
         "test_garbage.test_what_is_no_function_is_not_awaited_and_the_deadline_counts"),
]  # fmt: skip


@pytest.mark.parametrize("cell", TABLE, ids=lambda cell: cell.what)
def test_each_line_is_shown(cell: Cell) -> None:
    module, _, test = cell.shown_by.rpartition(".")
    where = importlib.import_module(f"tests.signals.{module or 'test_what_it_meets'}")
    assert callable(getattr(where, test))


def payload(task: Any) -> bytes | None:
    told: Mapping[str, bytes] = task.told
    return told.get("signal")


def test_a_tick_is_not_awaited(bridge: Bridge, store: Store, client: redis.Redis) -> None:
    bridge.schedule("nightly", "files.clean", every="1h")
    tick = f"nightly@{server_ms(client)}"
    store.run(producing.make([new(tick, 3_600_000, fields={"tick": tick.partition("@")[2]})]))
    assert bridge.signal(tick) is Change.NOT_AWAITED
    assert bridge.signal("nightly") is Change.NOT_FOUND


def test_large_signals_are_claimed_in_portions(bridge: Bridge, store: Store) -> None:
    size, count = 64 * 1024, 200
    for n in range(count):
        make(bridge, f"a{n}")
        assert bridge.signal(f"a{n}", "x" * (size - 2)) is Change.SIGNALLED
    found: list[int] = []
    while tasks := claim(store, places=count).tasks:
        assert {payload(task) for task in tasks} == {b'"' + b"x" * (size - 2) + b'"'}
        found.append(len(tasks))
        end(store, *(task.id for task in tasks))
    assert sum(found) == count
    assert max(found) <= MAX_CLAIM_BYTES // size + 1


def test_the_successor_of_one_that_was_signalled_has_a_signal_of_its_own(
    bridge: Bridge, store: Store
) -> None:
    make(bridge)
    bridge.signal("a", 7, by="psp")
    assert taken(store) == {"a": "orders.ship"}
    make(bridge, if_exists="replace", args=[43])
    # It is told from another one by what it says and who sends it, as long as its record is there.
    assert bridge.signal("a", 7, by="psp") is Change.SIGNALLED
    assert bridge.signal("a", 8) is Change.SIGNALLED
    assert bridge.signal("a", 9) is Change.SIGNALLED_BEFORE
    end(store, "a")
    [task] = claim(store).tasks
    assert (task.func, task.args, payload(task)) == ("orders.ship", b"[43]", b"8")


def test_a_successor_is_signalled_once_it_has_followed(bridge: Bridge, store: Store) -> None:
    make(bridge, delay="0s")
    assert taken(store) == {"a": "orders.cancel"}
    make(bridge, if_exists="replace")
    end(store, "a")
    assert bridge.signal("a", 7) is Change.SIGNALLED
    assert taken(store) == {"a": "orders.ship"}


def test_a_successor_that_a_client_put_off_is_due_at_its_signal(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    make(bridge, delay="0s")
    assert taken(store) == {"a": "orders.cancel"}
    task = make(bridge, if_exists="replace")
    assert client.expire(task.key, 7200)
    assert bridge.signal("a", 7) is Change.SIGNALLED
    assert client.exists(task.key) == 0
    client.set(task.key, 0, px=60_000)  # once more, by a client that knows no better
    end(store, "a")
    assert taken(store) == {"a": "orders.ship"}
    event = KeyEvent(task.key, "a", b"orders.cancel?[42]", EventKind.LIVE)
    assert store.run(reconciling.adopt([event], Settings())) == [Adoption.KNOWN]
    assert client.exists(task.key) == 0


@pytest.mark.parametrize("signalled", [False, True])
def test_what_was_decided_runs_again_if_its_key_is_set(
    signalled: bool, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    make(bridge)
    answer = bridge.signal("a", 7) if signalled else bridge.run_now("a")
    assert answer in {Change.SIGNALLED, Change.DUE_NOW}
    func = "orders.ship" if signalled else "orders.cancel"
    assert taken(store) == {"a": func}
    name = f"a:?{func}?[42]"
    client.set(name, 0, px=60_000)
    event = KeyEvent(name.encode(), "a", f"{func}?[42]".encode(), EventKind.LIVE)
    assert store.run(reconciling.adopt([event], Settings())) == [Adoption.KNOWN]
    end(store, "a")
    assert read(bridge).state is State.PENDING
    assert bridge.signal("a", 8) is (Change.SIGNALLED_BEFORE if signalled else Change.BEGUN)
    bridge.run_now("a")
    [task] = claim(store).tasks
    assert (task.func, payload(task)) == (func, b"7" if signalled else None)
    end(store, "a")
    client.set(name, 0, px=60_000)
    assert store.run(reconciling.adopt([event], Settings())) == [Adoption.ADOPTED]
    bridge.run_now("a")
    assert taken(store) == {"a": func}


@pytest.mark.parametrize("state", ["paused", "running", "succeeded", "failed", "cancelled"])
@pytest.mark.parametrize("heard", [EventKind.LIVE, EventKind.EXPIRED, EventKind.DELETED])
def test_the_old_key_starts_nothing_whatever_the_state(
    state: str, heard: EventKind, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    make(bridge)
    if state == "paused":
        bridge.pause("a")
    bridge.signal("a")
    if state == "cancelled":
        bridge.cancel("a")
    elif state != "paused":
        assert taken(store) == {"a": "orders.ship"}
    if state in {"succeeded", "failed"}:
        end(store, "a", how=state)
    before = client.hgetall(f"{PREFIX}:task:a")
    name = b"a:?orders.cancel?[42]"
    if heard is EventKind.LIVE:
        client.set(name, 0, px=60_000)
    event = KeyEvent(name, "a", b"orders.cancel?[42]", heard)
    assert store.run(reconciling.adopt([event], Settings())) == [Adoption.KNOWN]
    assert client.exists(name) == 0
    assert client.hgetall(f"{PREFIX}:task:a") == before
    assert len(client.keys(f"{PREFIX}:task:*")) == 1


def test_a_resend_has_the_first_answer(bridge: Bridge, store: Store) -> None:
    make(bridge)
    signal = calls.signal("a", 7, "", None)
    assert store.run(signal) is Change.SIGNALLED
    assert store.run(signal) is Change.SIGNALLED
    assert taken(store) == {"a": "orders.ship"}
    make(bridge, if_exists="replace", args=[43])
    assert store.run(signal) is Change.SIGNALLED
    end(store, "a")
    assert read(bridge).func == "orders.cancel"
    assert store.run(signal) is Change.SIGNALLED
    assert read(bridge).func == "orders.cancel"


@pytest.mark.parametrize("how", ["retry", "snoozed", "released", "lapse", "unknown"])
@pytest.mark.parametrize("signalled", [False, True])
def test_function_and_payload_stay_for_all_attempts(
    how: str, signalled: bool, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    make(bridge)
    if signalled:
        bridge.signal("a", 7)
    beating(store)
    for _ in range(2):
        bridge.run_now("a")
        [task] = claim(store).tasks
        assert task.func == ("orders.ship" if signalled else "orders.cancel")
        assert payload(task) == (b"7" if signalled else None)
        if how == "lapse":
            age(client, "running", "a", 1)
            store.run(reconciling.sweep(Settings()))
        else:
            settle(store, Settlement("a", "t", how, 60.0))
        assert read(bridge).state is State.PENDING
        assert bridge.signal("a", 8) is (Change.SIGNALLED_BEFORE if signalled else Change.BEGUN)


async def test_a_handler_that_snoozes_finds_its_signal_again(settings: Settings) -> None:
    found: list[Any] = []

    async def ship(order: int) -> None:
        found.append((order, current_task().signal))
        if len(found) == 1:
            raise Snooze(0)

    async def cancel(order: int) -> None: ...

    witness = Witness()
    async with (
        listening(settings, witness, ship=ship, cancel=cancel),
        AsyncBridge(settings.url) as bridge,
    ):
        await bridge.make_task("test.cancel", [42], "1h", id="a", on_signal="test.ship")
        await bridge.signal("a", 7, by="psp")
        await witness.until_ended(1, End.SUCCEEDED)
    assert found[0] == found[1]
    assert found[0][1].payload == 7


@pytest.mark.parametrize("late", ["deadline", "signal"])
async def test_lateness_counts_from_the_signal(
    late: str, settings: Settings, client: redis.Redis
) -> None:
    async def ship() -> None: ...

    async def cancel() -> None: ...

    witness = Witness()
    async with AsyncBridge(settings.url) as bridge:
        await bridge.make_task(
            "test.cancel", [], 0, id="a", on_signal="test.ship", misfire="skip", late_after="5s"
        )
        client.zadd(f"{PREFIX}:pending", {"a": server_ms(client) - 60_000})
        assert await bridge.signal("a") is Change.SIGNALLED
        if late == "signal":
            client.zadd(f"{PREFIX}:pending", {"a": server_ms(client) - 60_000})
        async with listening(settings, witness, ship=ship, cancel=cancel):
            [ended] = await witness.until_ended(1)
    assert ended.task.func == "test.ship"
    assert (ended.end is End.SUCCEEDED) is (late == "deadline")


def test_what_the_task_says_counts_for_either_function(bridge: Bridge, store: Store) -> None:
    for id in ("a", "b"):
        make(bridge, id, timeout=7, retry=[9], tags=["shop"])
    bridge.signal("a")
    bridge.run_now("b")
    tasks = claim(store).tasks
    assert {task.func for task in tasks} == {"orders.ship", "orders.cancel"}
    for task in tasks:
        assert (task.timeout, task.retry, task.shown["tags"]) == (7, b"[9.0]", ("shop",))


def test_it_can_be_rescheduled_after_the_signal(bridge: Bridge, store: Store) -> None:
    make(bridge)
    bridge.signal("a", 7)
    assert bridge.reschedule("a", "1h") is Change.MOVED
    assert taken(store) == {}
    assert bridge.signal("a", 7) is Change.SIGNALLED
    assert bridge.run_now("a") is Change.DUE_NOW
    assert taken(store) == {"a": "orders.ship"}


@pytest.mark.parametrize("signalled", [False, True])
def test_a_run_of_either_function_counts_for_a_window(
    signalled: bool, bridge: Bridge, store: Store
) -> None:
    options: dict[str, Any] = {"if_exists": "keep", "window": "1h"}
    make(bridge, **options)
    if signalled:
        bridge.signal("a", 7)
    assert make(bridge, **options).outcome is Outcome.KEPT
    bridge.run_now("a")
    taken(store)
    end(store, "a")
    kept = make(bridge, **options)
    assert (kept.outcome, kept.func) == (
        Outcome.KEPT, "orders.ship" if signalled else "orders.cancel"
    )  # fmt: skip


def test_nothing_puts_off_what_was_signalled(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    options: dict[str, Any] = {"if_exists": "extend", "delay": "1h", "max_wait": "2h"}
    make(bridge, **options)
    with pytest.raises(TaskDiffers):
        make(bridge, **options | {"on_signal": "orders.keep"})
    bridge.signal("a")
    assert make(bridge, **options).outcome is Outcome.KEPT
    assert not client.hexists(f"{PREFIX}:task:a", "first")
    assert taken(store) == {"a": "orders.ship"}
    assert make(bridge, **options).outcome is Outcome.KEPT
    end(store, "a")
    assert read(bridge).state is State.SUCCEEDED
    assert make(bridge, **options).outcome is Outcome.CREATED


def test_a_call_that_extends_and_is_sent_again_has_its_first_answer(
    bridge: Bridge, store: Store
) -> None:
    fields = {"on_signal": "orders.ship"}
    call = producing.make(
        [new("a", 3_600_000, call=b"orders.cancel?[42]", if_exists="extend", fields=fields)]
    )
    assert store.run(call)[0].outcome is Outcome.CREATED
    bridge.signal("a")
    assert store.run(call)[0].outcome is Outcome.CREATED
    assert taken(store) == {"a": "orders.ship"}


def test_one_that_is_replaced_waits_again(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    make(bridge)
    bridge.signal("a", 7)
    assert make(bridge, if_exists="replace").outcome is Outcome.REPLACED
    task = read(bridge)
    assert (task.func, task.on_signal, task.signal) == ("orders.cancel", "orders.ship", None)
    assert bridge.signal("a", 7) is Change.SIGNALLED
    assert taken(store) == {"a": "orders.ship"}


async def test_partitions(settings: Settings, bridge: Bridge) -> None:
    bridge.create_partitions(4)
    ran: list[tuple[str, int]] = []

    async def ship(order: int) -> None:
        ran.append(("ship", order))

    async def cancel(order: int) -> None:
        ran.append(("cancel", order))

    witness, count = Witness(), 40
    async with (
        listening(replace(settings, concurrency=10), witness, ship=ship, cancel=cancel),
        AsyncBridge(settings.url) as own,
    ):
        item: dict[str, Any] = {"func": "test.cancel", "delay": "1h", "on_signal": "test.ship"}
        tasks = await own.make_tasks([item | {"args": [n]} for n in range(count)])
        for n, task in enumerate(tasks):
            answer = await (own.signal(task.id, n) if n % 2 else own.run_now(task.id))
            assert answer in {Change.SIGNALLED, Change.DUE_NOW}
        await witness.until_ended(count, End.SUCCEEDED)
    assert sorted(ran, key=lambda one: one[1]) == [
        ("ship" if n % 2 else "cancel", n) for n in range(count)
    ]


def test_a_key_of_another_name_is_left_behind(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    fields = {"on_signal": "orders.ship", "key": "b:?orders.cancel?[42]"}
    store.run(producing.make([new("a", 3_600_000, call=b"orders.cancel?[42]", fields=fields)]))
    assert client.keys("*:\\?*") == [b"b:?orders.cancel?[42]"]
    bridge.pause("a")
    assert bridge.signal("a") is Change.SIGNALLED
    assert client.keys("*:\\?*") == [b"a:?orders.ship?[42]"]
    bridge.resume("a")
    assert taken(store) == {"a": "orders.ship"}

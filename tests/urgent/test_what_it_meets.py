"""What urgent tasks meet: one line for each thing of expirebridge that they can come across.

Each line says what happens, and which test shows it.
"""

import importlib
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import redis

from expirebridge import Bridge, Change, Outcome, State
from expirebridge.limits.calls import declare_limits
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, fleet, producing, reconciling
from expirebridge.task.calls.call import new_nonce
from expirebridge.task.calls.claiming import FairShareInput, Walk
from expirebridge.task.calls.reconciling import Adoption, EventKind, KeyEvent
from expirebridge.urgent.calls import declare_urgent
from tests.kit.private_keys import K1
from tests.kit.series import put, series
from tests.kit.servers import AnyServer
from tests.kit.sides import Side, Sides, move
from tests.kit.steps import PREFIX, age, beating, claim, new, server_ms, state_of
from tests.urgent.steps import FUNC, backlog, end, index_of, make, taken

pytestmark = pytest.mark.servers("oldest")


class Cell(NamedTuple):
    """What an urgent task meets."""

    what: str
    answer: str
    shown_by: str
    """A test, after the module of it, if that is another one."""


TABLE = [
    # Lanes and holds
    Cell("a lane of a limit", "works: in its queue it is not first",
         "test_in_the_queue_of_a_limit_it_is_not_first"),
    Cell("a slot that it was granted", "works: it is first among what is due again",
         "test_once_it_was_granted_a_slot_it_is_first_again"),
    Cell("an ordered lane", "works: it does not overtake others of its lane",
         "test_in_an_ordered_lane_it_overtakes_nobody"),
    Cell("many of an ordered lane", "those of no lane are first all the same",
         "test_those_of_ordered_lanes_do_not_keep_others_from_being_first"),
    Cell("a hold", "works: it waits, and is first once it is let go",
         "test_on_hold_it_waits_and_is_first_afterwards"),
    # Other things to make
    Cell("a tick of a series", "works, by its handler's mark; schedule(urgent=) is refused",
         "test_a_tick_is_urgent_by_the_mark_of_its_handler"),
    Cell("a member of a group", "works", "test_a_member_of_a_group_is_first"),
    Cell("make_tasks, AsyncBridge", "works", "test_made.test_whatever_makes_a_task_takes_it"),
    Cell("Then(urgent=True)", "works", "test_running.test_a_follow_up_is_first"),
    Cell("a plain SET, and what other programs make", "works, by the mark of the handler",
         "test_a_plain_set_is_urgent_by_the_mark_of_its_handler"),
    Cell("a function of the server", "works",
         "foreign.test_functions.test_an_urgent_task_is_made_by_a_function"),
    Cell("a ledger's row", "works: it arrives urgent",
         "ledger.test_urgent.test_a_row_arrives_urgent"),
    Cell("an export, and an import", "works", "test_made.test_it_is_exported_and_imported"),
    Cell("a database that is moved", "works", "test_it_is_moved"),
    Cell("a signal", "works: the second function is first",
         "test_once_it_is_signalled_it_is_first"),
    Cell("sealed arguments", "works", "test_sealed_arguments_are_of_no_importance"),
    Cell("watch", "refused when made", "test_made.test_what_comes_again_is_marked_at_its_handler"),
    # What happens to tasks
    Cell("a successor, next", "works: it is as it was made",
         "test_a_successor_is_as_urgent_as_it_was_made"),
    Cell("a re-arm", "works: it stays urgent", "test_what_runs_again_is_urgent_again"),
    Cell("a retry, a snooze, a lapse, run_now", "works: it stays urgent",
         "test_what_runs_again_is_urgent_again"),
    Cell("pause and resume, an EXPIRE", "works",
         "test_what_is_paused_or_put_off_is_first_when_it_is_due"),
    Cell("if_exists", "replace counts, extend and keep do not change it",
         "test_made.test_only_what_is_replaced_changes"),
    Cell("a resend", "works: made once, claimed once", "test_a_resend_makes_and_claims_it_once"),
    Cell("cancel", "works", "test_what_ends_is_in_no_index"),
    # Listeners
    Cell("two codes in the fleet", "works: each takes first what it has",
         "test_with_two_codes_each_takes_first_what_it_has"),
    Cell("more than fifty that this code cannot run", "the others are taken in their turn",
         "test_of_more_than_fifty_that_it_cannot_run_a_listener_takes_the_others_in_their_turn"),
    Cell("a share", "works: it counts among all that is due",
         "test_a_share_is_of_all_that_is_due"),
    Cell("a task that must run alone", "works: it waits until the listener is idle",
         "test_one_that_must_run_alone_waits_until_its_listener_is_idle"),
    # Damage
    Cell("an entry too many in the index", "it is removed where it is met, or by a sweep",
         "test_an_entry_too_many_is_removed"),
    Cell("an index that another client overwrote", "it is put aside",
         "test_an_index_that_was_overwritten_is_put_aside"),
    Cell("a lost index, a lost meta", "they are taken in their turn, and first once they are moved",
         "test_without_the_index_they_are_taken_in_their_turn"),
]  # fmt: skip


@pytest.mark.parametrize("cell", TABLE, ids=lambda cell: cell.what)
def test_each_line_is_shown(cell: Cell) -> None:
    module, _, test = cell.shown_by.rpartition(".")
    near = f"urgent.{module or 'test_what_it_meets'}"
    where = importlib.import_module(f"tests.{module if '.' in module else near}")
    assert callable(getattr(where, test))


def first(store: Store, token: str = "t") -> str:
    """Which task is taken by who has one place."""
    [id] = taken(store, token=token)
    return id


# Lanes and holds

SEND = f"f {FUNC}"


def declare(store: Store, limit: bytes, func: str = FUNC) -> None:
    store.run(declare_limits("aa", [(f"f {func}", b'[["x"]]'), ("l x", limit)]))


def other(bridge: Bridge, *ids: str) -> None:
    """Make tasks of a function that has no limit."""
    bridge.make_tasks([{"func": "other.run", "delay": 0, "id": id} for id in ids])


def test_in_the_queue_of_a_limit_it_is_not_first(bridge: Bridge, store: Store) -> None:
    declare(store, b'{"most":1}')
    make(bridge, "a", urgent=False)
    make(bridge, "b", urgent=False)
    assert taken(store, 9) == ["a"]
    make(bridge, "c")
    assert taken(store, 9) == []
    end(store, "a")
    assert taken(store, 9) == ["b"]
    end(store, "b")
    assert taken(store, 9) == ["c"]


def test_once_it_was_granted_a_slot_it_is_first_again(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    declare(store, b'{"most":1}')
    make(bridge, "a")
    assert taken(store) == ["a"]
    other(bridge, "old1", "old2")
    make(bridge, "u")
    assert taken(store) == ["old1"]
    assert state_of(store, "u") is State.WAITING
    end(store, "a")
    assert state_of(store, "u") is State.PENDING
    assert index_of(client).keys() == {"u"}
    assert taken(store) == ["u"]
    assert index_of(client) == {}


def test_in_an_ordered_lane_it_overtakes_nobody(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    declare(store, b'{"most":1,"ordered":true}')
    backlog(bridge, 2)
    make(bridge, "u")
    for id in ("old0", "old1", "u"):
        assert taken(store, 9) == [id]
        end(store, id)
    assert index_of(client) == {}


def test_those_of_ordered_lanes_do_not_keep_others_from_being_first(
    bridge: Bridge, store: Store
) -> None:
    declare(store, b'{"most":1,"ordered":true}', "other.run")
    other(bridge, "o0", "o1")
    for number in range(4):
        bridge.make_task("other.run", (), 0, id=f"ordered{number}", urgent=True)
    backlog(bridge, 2)
    make(bridge, "u")
    assert first(store) == "u"


def test_on_hold_it_waits_and_is_first_afterwards(bridge: Bridge, store: Store) -> None:
    bridge.hold(func=FUNC)
    make(bridge, "u")
    other(bridge, "old1", "old2", "old3")
    assert first(store) == "old1"
    assert state_of(store, "u") is State.WAITING
    bridge.release(func=FUNC)
    assert first(store) == "u"


# Other things to make


def test_a_tick_is_urgent_by_the_mark_of_its_handler(bridge: Bridge, store: Store) -> None:
    store.run(declare_urgent(["files.clean"], []))
    at = server_ms(store.client) + 60_000
    backlog(bridge)
    put(store, series(call="files.clean?[]"), at)
    assert bridge.run_now(f"s@{at}") is Change.DUE_NOW
    assert first(store) == f"s@{at}"
    with pytest.raises(TypeError, match=r"mark the handler: @handler\(urgent=True\)"):
        bridge.schedule("s", "files.clean", every="1h", urgent=True)  # type: ignore[call-arg]


def test_a_member_of_a_group_is_first(bridge: Bridge, store: Store) -> None:
    backlog(bridge)
    bridge.make_group("g", [{"func": FUNC, "args": [1], "delay": 0, "urgent": True}])
    assert first(store) == "g@g0"


def test_a_plain_set_is_urgent_by_the_mark_of_its_handler(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    store.run(declare_urgent(["mail.urgent"], [FUNC]))
    backlog(bridge)
    client.set("u:?mail.urgent?[1]", 0, px=60_000)
    event = KeyEvent(b"u:?mail.urgent?[1]", "u", b"mail.urgent?[1]", EventKind.LIVE)
    assert store.run(reconciling.adopt([event], Settings())) == [Adoption.ADOPTED]
    read = bridge.get("u")
    assert read is not None
    assert read.urgent
    client.pexpireat("u:?mail.urgent?[1]", server_ms(client) + 1)
    assert store.run(reconciling.adopt([event], Settings())) == [Adoption.KNOWN]
    bridge.run_now("u")
    assert first(store) == "u"


def test_once_it_is_signalled_it_is_first(bridge: Bridge, store: Store) -> None:
    make(bridge, "u", 900, on_signal="orders.ship")
    backlog(bridge)
    assert bridge.signal("u") is Change.SIGNALLED
    assert first(store) == "u"


def test_sealed_arguments_are_of_no_importance(url: str, bridge: Bridge, store: Store) -> None:
    backlog(bridge)
    with Bridge(url, keys=K1) as sealing:
        make(sealing, "u")
    assert first(store) == "u"


@pytest.fixture
def sides(server: AnyServer) -> Iterator[Sides]:
    urls = [f"redis://127.0.0.1:{server.port}/{number}" for number in (1, 3)]
    both = Side(urls[0], 1), Side(urls[1], 16)
    yield both
    for side in both:
        side.close()


def test_it_is_moved(sides: Sides, client: redis.Redis) -> None:
    old, new = sides
    make(old.bridge, "u", 3600)
    make(old.bridge, "v", 3600, urgent=False)
    assert index_of(client).keys() == {"u"}
    move(old, new)
    old.sweep()
    assert index_of(client) == {}
    new.bridge.run_now("v")
    new.bridge.run_now("u")
    part = new.parts[new.layout.partition_of("u")]
    assert first(part) == "u"


# What happens to tasks


def test_a_successor_is_as_urgent_as_it_was_made(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    make(bridge, "a", urgent=False)
    make(bridge, "b")
    assert sorted(taken(store, 2)) == ["a", "b"]
    make(bridge, "a", if_exists="replace")
    make(bridge, "b", urgent=False, if_exists="replace")
    backlog(bridge)
    end(store, "a", "b")
    assert index_of(client).keys() == {"a"}
    assert first(store) == "a"


@pytest.mark.parametrize("how", ["rearm", "retry", "snoozed", "released", "lapse", "run_now"])
def test_what_runs_again_is_urgent_again(
    how: str, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    make(bridge, "u")
    assert taken(store) == ["u"]
    assert index_of(client) == {}
    backlog(bridge)
    if how == "lapse":
        beating(store)
        age(client, "running", "u", 1)
        assert store.run(reconciling.sweep(Settings())).lapsed == ["u"]
    elif how == "rearm":
        assert bridge.reschedule("u", 0) is Change.REARMED
        end(store, "u")
    elif how == "run_now":
        end(store, "u", how="failed")
        assert bridge.run_now("u") is Change.DUE_NOW
    else:
        end(store, "u", how=how)
    assert first(store) == "u"


def test_what_is_paused_or_put_off_is_first_when_it_is_due(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    task = make(bridge, "u", 60)
    assert bridge.pause("u") is Change.PAUSED
    assert index_of(client) == {}
    assert bridge.resume("u") is Change.RESUMED
    client.pexpireat(task.key, server_ms(client) + 3_600_000)
    event = KeyEvent(task.key, "u", b"mail.send?[1]", EventKind.LIVE)
    assert store.run(reconciling.adopt([event], Settings())) == [Adoption.KNOWN]
    assert index_of(client)["u"] > server_ms(client) + 3_000_000
    assert bridge.reschedule("u", 0) is Change.MOVED
    backlog(bridge)
    assert first(store) == "u"


def test_a_resend_makes_and_claims_it_once(store: Store, client: redis.Redis) -> None:
    for id in ("u", "v"):
        call = producing.make([new(id, fields={"urgent": 1})])
        for _ in range(2):
            [made] = store.run(call)
            assert made.outcome is Outcome.CREATED
    assert index_of(client).keys() == {"u", "v"}
    assert first(store) == "u"
    again = claiming.resent(claiming.claim("t", Settings(), places=1, idle=True))
    assert [task.id for task in store.run(again).tasks] == ["u"]
    assert index_of(client).keys() == {"v"}


@pytest.mark.parametrize("how", ["cancel", "replace", "delete"])
def test_what_ends_is_in_no_index(
    how: str, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    task = make(bridge, "u", 60)
    assert index_of(client).keys() == {"u"}
    if how == "cancel":
        assert bridge.cancel("u") is Change.CANCELLED
    elif how == "replace":
        make(bridge, "u", 60, urgent=False, if_exists="replace")
    else:
        client.delete(task.key)
        event = KeyEvent(task.key, "u", b"mail.send?[1]", EventKind.DELETED)
        store.run(reconciling.adopt([event], Settings()))
    assert index_of(client) == {}


# Listeners

DAY = 86_400_000


def join(store: Store, *names: str) -> str:
    """Beat as a listener does whose code has these functions; return its fingerprint."""
    shapes = dict.fromkeys(names, "(n)")
    code = fleet.digest_of(shapes)
    store.run(fleet.declare(code, shapes))
    store.run(claiming.heartbeat(f"of {code}", 10, [], code=code, functions=len(names)))
    return code


def first_of(store: Store, code: str) -> list[str]:
    """What a listener of this code takes that has one place."""
    walks = (Walk(b"-inf", b"", b"+inf"),)
    call = claiming.claim_known(
        new_nonce(), Settings(), places=1, idle=True, code=code, walks=walks
    )
    return [task.id for task in store.run(call).tasks]


def test_with_two_codes_each_takes_first_what_it_has(bridge: Bridge, store: Store) -> None:
    one, two = join(store, FUNC), join(store, "other.run")
    backlog(bridge)
    other(bridge, "old", "older")
    make(bridge, "u")
    bridge.make_task("other.run", (), 0, id="v", urgent=True)
    assert first_of(store, two) == ["v"]
    assert first_of(store, one) == ["u"]
    assert first_of(store, two) == ["old"]
    assert first_of(store, one) == ["old0"]


def test_of_more_than_fifty_that_it_cannot_run_a_listener_takes_the_others_in_their_turn(
    bridge: Bridge, store: Store
) -> None:
    one, _ = join(store, FUNC), join(store, "other.run")
    backlog(bridge, 1)
    for number in range(51):
        bridge.make_task("other.run", (), 0, id=f"v{number:02}", urgent=True)
    make(bridge, "w")  # behind them also if it is due in the same millisecond
    assert first_of(store, one) == ["old0"]
    assert first_of(store, one) == ["w"]


def test_a_share_is_of_all_that_is_due(bridge: Bridge, store: Store) -> None:
    backlog(bridge, 6)
    make(bridge, "u")
    make(bridge, "v")
    share = FairShareInput(listeners=2, held=0)
    call = claiming.claim("t", Settings(), places=100, idle=True, share=share)
    claimed = store.run(call)
    ids = [task.id for task in claimed.tasks]
    assert (sorted(ids[:2]), ids[2:]) == (["u", "v"], ["old0", "old1"])


def test_one_that_must_run_alone_waits_until_its_listener_is_idle(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    make(bridge, "u")
    client.hset(f"{PREFIX}:task:u", mapping={"lapses": 2, "attempt": 1})
    backlog(bridge, 1)
    busy = claim(store, places=5, idle=False)
    assert (busy.tasks, busy.alone) == ([], True)
    idle = claim(store, places=5)
    assert [task.id for task in idle.tasks] == ["u"]


# Damage


def test_an_entry_too_many_is_removed(bridge: Bridge, store: Store, client: redis.Redis) -> None:
    make(bridge, "u", 3600)
    backlog(bridge, 2)
    now = server_ms(client)
    client.zadd(f"{PREFIX}:urgent", {"gone": 1, "u": 2, "later": now + DAY})
    assert first(store) == "old0"
    assert index_of(client).keys() == {"u", "later"}
    assert index_of(client)["u"] > now + 3_000_000
    store.run(reconciling.sweep(Settings()))
    assert index_of(client).keys() == {"u"}


def test_an_index_that_was_overwritten_is_put_aside(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    make(bridge, "u")
    client.set(f"{PREFIX}:urgent", "x")
    client.set(f"{PREFIX}:urgent_functions", "x")
    assert first(store) == "u"
    assert client.get(f"{PREFIX}:broken:urgent") == b"x"
    store.run(declare_urgent([FUNC], []))
    assert client.hkeys(f"{PREFIX}:urgent_functions") == [FUNC.encode()]


def test_without_the_index_they_are_taken_in_their_turn(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    backlog(bridge, 2)
    make(bridge, "u")
    make(bridge, "v", 3600)
    client.delete(f"{PREFIX}:urgent", f"{PREFIX}:meta")
    assert taken(store, 9) == ["old0", "old1", "u"]
    make(bridge, "w", 3600)
    backlog(bridge, 2)
    bridge.run_now("v")
    assert first(store) == "v"

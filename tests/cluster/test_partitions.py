"""A database with several partitions on one server: made, used, and kept as such."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from expirebridge import (
    AsyncBridge,
    Bridge,
    Change,
    InvalidSetting,
    InvalidTask,
    Outcome,
    PartitionsDiffer,
    State,
    TaskExists,
)
from expirebridge.connection import clients
from expirebridge.foreign import function_library
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, looking, partitions
from expirebridge.task.calls.call import new_nonce
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.partitions import PartitionLayout
from tests.kit.colours import asking

pytestmark = pytest.mark.servers("oldest")

COUNT = 16
OF_META = ("format", "partitions", "features")
LAYOUT = PartitionLayout("expirebridge", COUNT)
SETTINGS = Settings()
LEASE = SETTINGS.lease
MANY = [f"task-{n}" for n in range(64)]
"""Ids of which each partition has some."""


def prefix_of(id: str) -> str:
    return LAYOUT.prefix_of(LAYOUT.partition_of(id))


def plain_keys(client: redis.Redis) -> set[bytes]:
    """The keys without a tag."""
    return {name for name in client.scan_iter() if not name.startswith(b"{")}


@pytest.fixture
def apart(url: str) -> Iterator[Bridge]:
    """A bridge to a database with several partitions, which it does not know of yet."""
    with Bridge(url) as first:
        first.create_partitions(COUNT)
    with Bridge(url) as bridge:
        yield bridge


@pytest.fixture
def stores(apart: Bridge, url: str) -> Iterator[list[Store]]:
    """Each partition, as a consumer has it."""
    client = clients.producer_client(url)
    yield [Store(client, prefix=prefix, partitions=COUNT) for prefix in LAYOUT.prefixes()]
    client.close()


def test_a_listing_that_is_the_first_call_shows_all(apart: Bridge, url: str) -> None:
    for id in MANY:
        apart.make_task("mail.send", [1], 60, id=id)
    with Bridge(url) as new:
        assert {task.id for task in new.list(state="pending").tasks} == set(MANY)


# Made


@pytest.mark.parametrize("colour", [Bridge, AsyncBridge])
async def test_they_are_created_once(url: str, client: redis.Redis, colour: Any) -> None:
    ask = asking(colour(url))
    for _ in range(2):
        assert await ask("create_partitions", COUNT) == COUNT
        assert await ask("count_partitions") == COUNT
    metas = {name: client.hmget(name, *OF_META) for name in client.keys("*")}
    expected = {f"{prefix}:meta".encode() for prefix in ["expirebridge", *LAYOUT.prefixes()]}
    assert metas == {name: [b"1", b"16", b"partitions"] for name in expected}
    with pytest.raises(PartitionsDiffer, match="has 16 partitions") as refusal:
        await ask("create_partitions", 4)
    assert (refusal.value.count, refusal.value.asked) == (16, 4)
    assert {name: client.hmget(name, *OF_META) for name in client.keys("*")} == metas
    await ask("aclose" if colour is AsyncBridge else "close")


def test_the_one_without_a_tag_is_written_first(url: str, client: redis.Redis) -> None:
    """Whoever comes in between is told: nothing is written without a tag."""
    Store(client, prefix="expirebridge").run(partitions.create_partitions(4))
    assert client.keys() == [b"expirebridge:meta"]
    with Bridge(url) as bridge:
        assert bridge.make_task("mail.send", [1], 60, id="a").key.startswith(b"{")
        assert plain_keys(client) == {b"expirebridge:meta"}
        assert bridge.count_partitions() == 4
        assert bridge.create_partitions(4) == 4


@pytest.mark.parametrize("count", [0, -1, 3, 512, True, 2.0, "4"])
def test_there_cannot_be_any_number(bridge: Bridge, client: redis.Redis, count: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"partitions=.*power of two, up to 256"):
        bridge.create_partitions(count)
    assert client.dbsize() == 0


def test_a_database_that_is_in_use_has_one(bridge: Bridge, client: redis.Redis) -> None:
    bridge.make_task("mail.send", [1], 60, id="a")
    before = client.hgetall("expirebridge:meta")
    with pytest.raises(PartitionsDiffer, match="has 1 partition, and was asked as if it had 16"):
        bridge.create_partitions(COUNT)
    assert client.hgetall("expirebridge:meta") == before
    assert bridge.create_partitions(1) == 1
    assert bridge.count_partitions() == 1


def test_one_partition_is_plain_use(bridge: Bridge, client: redis.Redis) -> None:
    assert bridge.create_partitions(1) == 1
    assert client.hgetall("expirebridge:meta") == {b"format": b"1", b"partitions": b"1"}


def test_a_prefix_with_a_tag_has_one(url: str, apart: Bridge, client: redis.Redis) -> None:
    with Bridge(url, prefix="{app}eb") as own:
        with pytest.raises(InvalidSetting, match="tag of its own"):
            own.create_partitions(COUNT)
        assert own.make_task("mail.send", [1], 60, id="a").key == b"{app}a:?mail.send?[1]"
        assert own.count_partitions() == 1
        assert client.hgetall("{app}eb:meta")[b"partitions"] == b"1"
        assert own.key_of("a", "mail.send") == b"{app}a:?mail.send?[]"
    with (
        Bridge(url, prefix=LAYOUT.prefix_of(3)) as one,
        pytest.raises(InvalidSetting, match="without the tag"),
    ):
        one.make_task("mail.send", [1], 60)


# Used


@pytest.mark.parametrize("colour", [Bridge, AsyncBridge])
async def test_a_task_lives_in_the_partition_of_its_id(
    apart: Bridge, url: str, client: redis.Redis, colour: Any
) -> None:
    bridge = colour(url)
    ask = asking(bridge)
    for id in MANY[:8]:
        prefix = prefix_of(id)
        made = await ask("make_task", "mail.send", [1], 60, id=id, tags=["x"])
        assert made.key == f"{prefix[:5]}{id}:?mail.send?[1]".encode()
        assert await ask("key_of", id, "mail.send", [1]) == made.key
        assert client.exists(made.key, f"{prefix}:task:{id}") == 2
        assert (await ask("get", id)).key == made.key
        with pytest.raises(TaskExists):
            await ask("make_task", "mail.send", [1], 60, id=id)
        assert await ask("reschedule", id, 120) is Change.MOVED
        assert await ask("put_off", id, 60) is Change.MOVED
        assert await ask("pause", id) is Change.PAUSED
        assert await ask("resume", id) is Change.RESUMED
        assert await ask("cancel", id) is Change.CANCELLED
        assert await ask("run_now", id) is Change.DUE_NOW
        assert (await ask("watch", id + "w", "mail.send", ttl=60)).outcome is Outcome.CREATED
        assert await ask("beat", id + "w") is Change.MOVED
    assert plain_keys(client) == {b"expirebridge:meta"}
    await ask("aclose" if colour is AsyncBridge else "close")


def test_many_are_made_in_order_and_found(apart: Bridge, client: redis.Redis) -> None:
    tasks = [{"func": "mail.send", "args": [n], "delay": 60, "id": id} for n, id in enumerate(MANY)]
    made = apart.make_tasks([*tasks, {"func": "mail.send", "delay": 60}])
    assert [task.id for task in made[:-1]] == MANY
    assert [task.args for task in made[:-1]] == [[n] for n in range(len(MANY))]
    assert len({task.key[:5] for task in made}) == COUNT
    again = apart.make_tasks(tasks)
    assert {task.outcome for task in again} == {Outcome.REJECTED}
    assert apart.count().pending == len(MANY) + 1
    assert plain_keys(client) == {b"expirebridge:meta"}


def test_many_are_made_in_few_requests(apart: Bridge, url: str, client: redis.Redis) -> None:
    """Each partition's tasks go together, once it is known that there are several."""
    client.config_resetstat()
    apart.make_tasks([{"func": "mail.send", "delay": 60} for _ in range(640)])
    sent = client.info("commandstats")
    requests = sum(
        sent.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha")
    )
    # The first chunk of 64 is divided; of the others each partition has about 36. On Redis 6.2 the
    # first request of each partition takes three.
    assert requests <= 5 * COUNT


def test_a_listing_is_in_order_and_goes_on_where_it_ended(apart: Bridge) -> None:
    now = datetime.now(UTC)
    apart.make_tasks(
        [
            {"func": "mail.send", "at": now + timedelta(hours=n), "id": id, "tags": ["x"]}
            for n, id in enumerate(MANY, 1)
        ]
    )
    assert [task.id for task in apart.list(limit=1000).tasks] == MANY
    queries: list[dict[str, Any]] = [{}, {"state": "pending"}, {"tag": "x"}, {"func": "mail.send"}]
    for query in queries:
        found: list[str] = []
        cursor = None
        while True:
            listing = apart.list(limit=7, cursor=cursor, **query)
            assert len(listing.tasks) <= 7
            found += [task.id for task in listing.tasks]
            if (cursor := listing.cursor) is None:
                break
        assert listing.complete
        assert found == MANY if "tag" not in query else sorted(found) == sorted(MANY)
    early = apart.list(due_before=now + timedelta(hours=10.5))
    assert [task.id for task in early.tasks] == MANY[:10]
    with pytest.raises(InvalidTask, match="cursor"):
        apart.list(cursor="pending.0.0")


def test_failed_tasks_are_found_the_latest_first(apart: Bridge, stores: list[Store]) -> None:
    apart.make_tasks([{"func": "mail.send", "delay": 0, "id": id} for id in MANY])
    for store in stores:
        while (
            claim := store.run(claiming.claim(new_nonce(), SETTINGS, places=1, idle=True))
        ).tasks:
            [task] = claim.tasks
            store.run(
                claiming.settle([Settlement(task.id, task.token, "failed", text="no")], SETTINGS)
            )
    found = apart.find_failed()
    assert sorted(found) == sorted(MANY)
    ended = [(apart.get(id) or pytest.fail(id)).ended for id in found]
    assert ended == sorted(ended, reverse=True)  # type: ignore[type-var]
    assert [task.ended for task in apart.list(state=State.FAILED).tasks] == ended
    assert apart.purge_failed(MANY[:5]) == {Change.FORGOTTEN: 5}
    assert apart.retry_failed(MANY[5:]) == {Change.DUE_NOW: len(MANY) - 5}
    assert apart.count().overdue == len(MANY) - 5


def test_those_of_a_tag_are_changed_in_all_partitions(apart: Bridge) -> None:
    apart.make_tasks([{"func": "mail.send", "delay": 60, "id": id, "tags": ["x"]} for id in MANY])
    whole = len(MANY)
    assert apart.pause_tag("x")[Change.PAUSED] == whole
    assert apart.resume_tag("x")[Change.RESUMED] == whole
    assert apart.put_off_tag("x", 60)[Change.MOVED] == whole
    assert apart.pause_all(MANY) == {Change.PAUSED: whole}
    assert apart.resume_all([*MANY, "none"]) == {Change.RESUMED: whole, Change.NOT_FOUND: 1}
    assert apart.put_off_all(MANY, 60) == {Change.MOVED: whole}
    assert apart.cancel_all(MANY[:10]) == {Change.CANCELLED: 10}
    assert apart.cancel_tag("x")[Change.CANCELLED] == whole - 10
    assert apart.count().cancelled == whole


def test_series_and_their_ticks_share_a_partition(apart: Bridge, client: redis.Redis) -> None:
    for id in MANY[:10]:
        series = apart.schedule(id, "mail.send", every="1h")
        assert series.due is not None
        prefix = prefix_of(id)
        [tick] = [task for task in apart.list(limit=100).tasks if task.id.startswith(f"{id}@")]
        assert tick.key.startswith(prefix[:5].encode())
        assert client.exists(f"{prefix}:series:{id}", f"{prefix}:task:{tick.id}") == 2
        assert (extra := apart.run_series(id)) is not None
        assert extra.key.startswith(prefix[:5].encode())
    listed: list[str] = []
    cursor = None
    while True:
        page = apart.list_series(limit=3, cursor=cursor)
        listed += [one.id for one in page.series]
        if (cursor := page.cursor) is None:
            break
    assert sorted(listed) == sorted(MANY[:10])
    assert apart.pause_series(MANY[0]) is Change.PAUSED
    assert apart.resume_series(MANY[0]) is Change.RESUMED
    assert apart.unschedule(MANY[0]) is Change.REMOVED
    assert apart.get_series(MANY[0]) is None


# Kept


@pytest.mark.parametrize("broken", [False, True])
def test_a_lost_meta_is_that_of_the_other_partitions(
    apart: Bridge, stores: list[Store], client: redis.Redis, broken: bool
) -> None:
    for number, id in ((LAYOUT.partition_of(id), id) for id in MANY[:20]):
        key = f"{LAYOUT.prefix_of(number)}:meta"
        client.delete(key)
        if broken:
            client.set(key, "x")
        # Neither a client that knows another number, nor one that asks for one partition.
        wrong = Store(client, prefix=LAYOUT.prefix_of(number), partitions=4)
        with pytest.raises(PartitionsDiffer):
            wrong.run(looking.get(id))
        if broken:
            client.delete(key)  # as the doctor says
        stores[number].run(claiming.heartbeat("h:1:a", LEASE, [], code="c0de"))
        assert client.hmget(key, *OF_META) == [b"1", b"16", b"partitions"]
        apart.make_task("mail.send", [1], 60, id=id)


@pytest.mark.parametrize("lost", ["deleted", "overwritten"])
def test_a_lost_meta_without_a_tag_is_not_needed(
    apart: Bridge, url: str, client: redis.Redis, lost: str
) -> None:
    """Whoever asks for one partition then asks the first of them."""
    apart.make_task("mail.send", [1], 60, id="a")
    client.delete("expirebridge:meta")
    if lost == "overwritten":
        client.set("expirebridge:meta", "x")
    before = plain_keys(client)
    with Bridge(url) as new:
        assert new.count().pending == 1
        assert new.make_task("mail.send", [1], 60, id="b").key.startswith(b"{")
    assert plain_keys(client) == before


def test_a_client_follows_when_the_database_is_written_anew(
    apart: Bridge, url: str, client: redis.Redis
) -> None:
    assert apart.count_partitions() == COUNT
    for count in (4, 1, 64):
        client.flushdb()
        with Bridge(url) as other:
            other.create_partitions(count)
        made = apart.make_task("mail.send", [1], 60, id="task-1")
        tag = PartitionLayout("expirebridge", count).prefix_of(
            PartitionLayout("expirebridge", count).partition_of("task-1")
        )
        assert client.exists(f"{tag}:task:task-1")
        assert apart.get("task-1") is not None
        assert made.outcome is Outcome.CREATED


# Plain use


def test_one_partition_sends_what_it_always_sent(url: str, client: redis.Redis) -> None:
    """No argument and no command more."""
    with Bridge(url) as bridge:
        bridge.make_task("mail.send", [1], 60, id="a")
        with client.monitor() as monitor:
            bridge.make_task("mail.send", [1], 60, id="b")
            bridge.get("b")
            bridge.count()
            bridge.cancel("b")
            bridge.list(tag="x")
            client.echo("end")
            sent: list[str] = []
            while not (command := monitor.next_command())["command"].startswith("ECHO"):
                # Of a script that the server does not know the text follows, by EVAL.
                if command["command"].startswith("EVALSHA "):
                    sent.append(command["command"])
    assert [words.split()[2:5] for words in sent] == [["1", "expirebridge", "1"]] * 5


# Other languages


def test_functions_know_their_partition(apart: Bridge, client: redis.Redis) -> None:
    def ask(name: str, prefix: str, *words: Any) -> Any:
        return client.eval(function_library.script(name).text, 1, prefix, *words)

    assert apart.count_partitions() == COUNT
    for id in MANY[:20]:
        prefix = prefix_of(id)
        outcome, got, key, _ = ask("make", prefix, "mail.send", "[1]", 60000, "id", id)
        assert (outcome, got) == (b"created", id.encode())
        assert key == apart.key_of(id, "mail.send", [1])
        assert apart.get(id) is not None
        other = LAYOUT.prefix_of((LAYOUT.partition_of(id) + 1) % COUNT)
        for name, words in (("make", ("mail.send", "[1]", 60000, "id", id)), ("cancel", (id,))):
            with pytest.raises(redis.ResponseError, match="belongs to another partition"):
                ask(name, other, *words)
        _, drawn, _, _ = ask("make", prefix, "mail.send", "[1]", 60000)
        assert prefix_of(drawn.decode()) == prefix
        assert apart.cancel(drawn.decode()) is Change.CANCELLED
        assert ask("cancel", prefix, id) == b"cancelled"
    with pytest.raises(redis.ResponseError, match="another number of partitions"):
        ask("make", "expirebridge", "mail.send", "[1]", 60000)
    assert plain_keys(client) == {b"expirebridge:meta"}

"""A listener of a database with several partitions on one server."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import redis

from expirebridge import Bridge, Change, State, current_task, every
from expirebridge.hooks import End, Gap, Misplaced, Scanned, Started
from expirebridge.listener.partition import due_timer
from expirebridge.settings import Settings
from expirebridge.task.keys import id_for_key
from expirebridge.task.partitions import PartitionLayout
from tests.kit.witness import Witness, listening, logged

pytestmark = pytest.mark.servers("oldest")

COUNT = 16
LAYOUT = PartitionLayout("expirebridge", COUNT)
MANY = [f"task-{n}" for n in range(64)]


def right_tag(id: str) -> str:
    return LAYOUT.hash_tag_of(LAYOUT.partition_of(id))


def wrong_tag(id: str) -> str:
    return LAYOUT.hash_tag_of((LAYOUT.partition_of(id) + 1) % COUNT)


@pytest.fixture
def apart(url: str) -> Iterator[Bridge]:
    with Bridge(url) as bridge:
        bridge.create_partitions(COUNT)
        yield bridge


async def note(_: object) -> None:
    """Do nothing."""


async def test_tasks_of_all_partitions_run_on_time(
    apart: Bridge, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No partition looks once a second for what it has missed: its timer must wake it.
    monkeypatch.setattr(due_timer, "LONGEST_SLEEP", 3600.0)
    witness = Witness()
    async with listening(settings, witness, note=note):
        tasks = [{"func": "test.note", "args": [id], "delay": 1, "id": id} for id in MANY]
        await asyncio.to_thread(apart.make_tasks, tasks)
        await witness.until_ended(len(MANY), End.SUCCEEDED)
    counts = await asyncio.to_thread(apart.count)
    assert (counts.succeeded, counts.listeners) == (len(MANY), 0)


@pytest.mark.rest
async def test_no_partition_is_left_behind(apart: Bridge, settings: Settings) -> None:
    """One with many tasks that are due does not hold up the others."""
    by_partition: dict[int, list[str]] = {}
    for number in range(4000):
        id = f"fair-{number}"
        by_partition.setdefault(LAYOUT.partition_of(id), []).append(id)
    crowd = by_partition[3][:200]
    few = [ids[0] for number, ids in by_partition.items() if number != 3]
    tasks = [{"func": "test.work", "delay": 0, "id": id} for id in [*crowd, *few]]
    await asyncio.to_thread(apart.make_tasks, tasks)
    witness = Witness()

    async def work() -> None:
        await asyncio.sleep(0.01)

    settings = Settings(url=settings.url, concurrency=4)
    async with listening(settings, witness, work=work):
        await witness.until_ended(len(tasks), End.SUCCEEDED)
    order = [event.task.id for event in witness.seen(Started)]
    assert max(order.index(id) for id in few) < len(order) / 2


async def test_keys_of_other_clients_are_run_in_their_partition(
    apart: Bridge, settings: Settings, client: redis.Redis
) -> None:
    witness = Witness()
    async with listening(settings, witness, note=note):
        await witness.until_hearing()
        for id in MANY[:20]:
            name = await asyncio.to_thread(apart.key_of, id, "test.note", [1])
            assert name.decode().startswith(right_tag(id))
            client.set(name, "", px=200)
        ended = await witness.until_ended(20, End.SUCCEEDED)
    assert {event.task.id for event in ended} == set(MANY[:20])
    assert witness.seen(Misplaced) == []


@pytest.mark.parametrize("heard", [True, False])
async def test_a_key_with_a_wrong_tag_is_named_and_not_run(
    apart: Bridge,
    settings: Settings,
    client: redis.Redis,
    caplog: pytest.LogCaptureFixture,
    heard: bool,
) -> None:
    """By the listener that hears of it, and by the scan of one that was not there."""
    wrong = {"a": "", "b": "{b}", "c": wrong_tag("c"), "d": "{0zz}"}
    assert right_tag("c") != wrong_tag("c")
    names = [f'{tag}{id}:?test.note?["secret"]' for id, tag in wrong.items()]
    witness = Witness()

    def set_all() -> None:
        for name in names:
            client.set(name, "", px=600 if heard else 60_000)

    if not heard:
        set_all()
    async with listening(settings, witness, note=note):
        await witness.until_hearing()
        if heard:
            set_all()
        await witness.until(lambda: len(witness.seen(Misplaced)) == len(wrong))
        if heard:
            # Their ends are heard before that of a key that is set later, and is right.
            for _ in range(2):
                client.set(f"{right_tag('z')}z:?test.note?[1]", "", px=700)
                await asyncio.sleep(0.01)
            await witness.until_ended(1)
    assert {event.id: event.right for event in witness.seen(Misplaced)} == {
        id: right_tag(id) for id in wrong
    }
    assert [event.task.id for event in witness.ended()] == (["z"] if heard else [])
    assert f"must begin with {right_tag('c')}: {right_tag('c')}c:?test.note?..." in caplog.text
    assert "secret" not in caplog.text
    counts = await asyncio.to_thread(apart.count)
    assert (counts.pending, counts.failed) == (0, 0)


async def test_a_key_that_cannot_be_a_task_is_kept_where_it_is(
    apart: Bridge, settings: Settings, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"{LAYOUT.hash_tag_of(number)}a b:?test.note?[1]".encode() for number in range(COUNT)]
    async with listening(settings, note=note):
        for name in names:
            client.set(name, "", px=100)
        for number in range(COUNT):
            await logged(f"failed task {LAYOUT.tag_of(number)}@", caplog)
    for number, name in enumerate(names):
        id = id_for_key(name, f"{LAYOUT.tag_of(number)}@")
        assert LAYOUT.partition_of(id) == number
        task = await asyncio.to_thread(apart.get, id)
        assert task is not None
        assert task.state is State.FAILED
        assert await asyncio.to_thread(apart.purge_failed, [id]) == {Change.FORGOTTEN: 1}


@pytest.mark.rest
async def test_an_id_that_is_taken_makes_one_of_the_same_partition(
    apart: Bridge, settings: Settings, client: redis.Redis
) -> None:
    """A foreign key whose id is another task's, under an id made from the key's name."""
    await asyncio.to_thread(apart.make_task, "test.note", [1], 60, id="a")
    witness = Witness()
    async with listening(settings, witness, note=note):
        await witness.until_hearing()
        # A busy machine, too, notices the key while it exists.
        client.set(f"{right_tag('a')}a:?test.note?[2]", "", px=1500)
        [ended] = await witness.until_ended(1, End.SUCCEEDED)
    assert ended.task.args == [2]
    assert ended.task.id.startswith(f"{right_tag('a')[1:-1]}@")
    assert LAYOUT.partition_of(ended.task.id) == LAYOUT.partition_of("a")
    assert await asyncio.to_thread(apart.get, ended.task.id) is not None


async def test_one_walk_finds_the_tasks_of_all_partitions(
    apart: Bridge, settings: Settings, client: redis.Redis
) -> None:
    """Those that were set, and edited, while nobody listened; and records without a place."""
    foreign, edited, strays = MANY[:10], MANY[10:20], MANY[20:30]
    tasks = [
        {"func": "test.note", "args": [1], "delay": 3600, "id": id} for id in [*edited, *strays]
    ]
    for task in await asyncio.to_thread(apart.make_tasks, tasks):
        if task.id in edited:
            client.expire(task.key, 60)
        else:
            client.zrem(f"{LAYOUT.prefix_of(LAYOUT.partition_of(task.id))}:pending", task.id)
    for id in foreign:
        client.set(f"{right_tag(id)}{id}:?test.note?[1]", "", ex=60)
    witness = Witness()
    client.config_resetstat()
    async with listening(settings, witness, note=note):
        await witness.until(lambda: witness.seen(Scanned))
        rounds = len(witness.seen(Gap))
    scans = client.info("commandstats")["cmdstat_scan"]["calls"]
    assert scans <= (rounds + 2) * (client.dbsize() / 50 + 2)  # not one walk for each partition
    assert sum(event.adopted for event in witness.seen(Scanned)) == len(foreign)
    soon = await asyncio.to_thread(apart.list, due_before=datetime.now(UTC) + timedelta(minutes=2))
    assert {task.id for task in soon.tasks} == {*foreign, *edited}
    assert (await asyncio.to_thread(apart.count)).pending == 30


@pytest.mark.rest
async def test_declared_series_stand_in_their_partitions(
    apart: Bridge, settings: Settings, client: redis.Redis
) -> None:
    """Each partition's consumer declares those that belong to it, and makes their ticks."""
    witness, ran = Witness(), Counter[str]()
    ids = [f"series-{number}" for number in range(8)]
    assert len({LAYOUT.partition_of(id) for id in ids}) > 2

    def tick() -> None:
        ran[current_task().id.partition("@")[0]] += 1

    for id in ids:
        every("1s", id=id)(tick)
    async with listening(settings, witness, tick=tick):
        await witness.until(lambda: all(ran[id] > 1 for id in ids))
    for id in ids:
        assert client.exists(f"{LAYOUT.prefix_of(LAYOUT.partition_of(id))}:series:{id}")
    listed = await asyncio.to_thread(apart.list_series)
    assert {one.id for one in listed.series} == set(ids)
    assert len(list(client.scan_iter("*:series:*"))) == len(ids)

"""The whole life of tasks in one slot of a cluster.

The names of a partition carry a hash tag, with which the prefix begins. A script may touch no key
of another slot: a cluster refuses it, for that key may be another node's.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pytest
import redis
import redis.asyncio

from expirebridge import (
    AsyncBridge,
    Bridge,
    Change,
    InvalidSetting,
    Outcome,
    PartitionsDiffer,
    SeriesOutcome,
    ServerUnsuitable,
    State,
    TaskExists,
    Then,
)
from expirebridge.checks import Level, examine
from expirebridge.connection import clients
from expirebridge.embedded.cluster import free_ports
from expirebridge.embedded.server import HOST, EmbeddedServer
from expirebridge.foreign import function_library
from expirebridge.hooks import End, Gap
from expirebridge.lateness import calls as forecasting
from expirebridge.ledger import calls as ledger_calls
from expirebridge.ledger.rows import RowVersion
from expirebridge.limits.calls import declare_limits
from expirebridge.moving import calls as migration
from expirebridge.moving.calls import MigrationResult, RestoreGroupCode
from expirebridge.sealing import calls as resealing
from expirebridge.sealing.calls import Replacement
from expirebridge.series import calls as series_commands
from expirebridge.series.calls import NextTick, Retimed, Times
from expirebridge.settings import Settings
from expirebridge.signals.calls import Decisions, read_decisions
from expirebridge.store import script_loader
from expirebridge.store.acl import LoginRole
from expirebridge.store.client import Store
from expirebridge.task.calls import (
    actions,
    claiming,
    fleet,
    inspection,
    looking,
    pages,
    partitions,
    producing,
    reconciling,
)
from expirebridge.task.calls.call import Argument, Command
from expirebridge.task.calls.claiming import Claim, Settled, Settlement
from expirebridge.task.calls.reconciling import Adoption, EventKind, KeyEvent
from expirebridge.task.keys import InvalidKey, id_for_key, parse_key
from expirebridge.task.partitions import PartitionLayout, slot_of_id
from expirebridge.task.task import to_ms
from expirebridge.urgent.calls import declare_urgent
from tests.kit.lua import NAMES
from tests.kit.servers import SERVERS
from tests.kit.steps import new
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("oldest")

TAG = "{eb:0}"
PREFIX = f"{TAG}expirebridge"
SLOTS = range(16384)
SETTINGS = Settings(prefix=PREFIX, keep_succeeded_count=0)
SCRIPTS = set(NAMES)


@dataclass(frozen=True)
class Cluster:
    """A cluster of one node."""

    client: redis.Redis
    headers: bool
    """Whether it knows script headers; it then compares the slots of all keys of a script."""
    whole: bool
    """Whether the node has every slot, or only ours."""

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.client.get_connection_kwargs()['port']}/0"


def cluster_command(client: redis.Redis, *words: Any) -> Any:
    return client.execute_command("CLUSTER", *words)


@pytest.fixture(scope="module", params=SERVERS)
def node(request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    options = {"cluster-enabled": "yes", "cluster-require-full-coverage": "no"}
    server = EmbeddedServer(binary=SERVERS[request.param], port=free_ports(1)[0], options=options)
    with server, redis.Redis(port=server.port) as client:
        cluster_command(client, "ADDSLOTS", *SLOTS)
        # A node takes its time, two seconds, before it believes that the cluster is well.
        while b"cluster_state:ok" not in cluster_command(client, "INFO"):
            time.sleep(0.02)
        yield client


@pytest.fixture(params=["every slot", "our slot"])
def cluster(request: pytest.FixtureRequest, node: redis.Redis) -> Iterator[Cluster]:
    """The node, empty, with every slot as in production, or with ours alone.

    Redis 6.2 does not compare the slots of a script's keys, but refuses those that it has not.
    """
    whole = request.param == "every slot"
    headers = int(node.info("server")["redis_version"].partition(".")[0]) >= 7
    ours = cluster_command(node, "KEYSLOT", TAG)
    others = [slot for slot in SLOTS if slot != ours]
    node.flushall()
    node.script_flush()
    if not whole:
        cluster_command(node, "DELSLOTS", *others)
    yield Cluster(node, headers=headers, whole=whole)
    if not whole:
        cluster_command(node, "ADDSLOTS", *others)


def test_the_url_of_one_node_advises_that_of_the_cluster(cluster: Cluster) -> None:
    if not (cluster.headers and cluster.whole):
        pytest.skip("only such a server compares the slots of a script's keys")
    with (
        Bridge(cluster.url) as bridge,
        pytest.raises(ServerUnsuitable, match=r"redis\+cluster://HOST:PORT") as raised,
    ):
        bridge.make_task("mail.send", [], 60)
    # A hash tag would put all tasks into one slot, for ever.
    assert "hash tag" not in str(raised.value)


def test_a_script_that_leaves_its_slot_is_refused(cluster: Cluster) -> None:
    """What the next test relies on."""
    script = ("#!lua\n" if cluster.headers else "") + "return redis.call('EXISTS', 'elsewhere')"
    words = "non local key|do not hash to the same slot|a slot not served"
    unnoticed = cluster.whole and not cluster.headers
    with nullcontext() if unnoticed else pytest.raises(redis.ResponseError, match=words):
        cluster.client.eval(script, 1, PREFIX)


async def test_a_cluster_s_own_client_is_refused_with_the_url(node: redis.Redis) -> None:
    port = node.get_connection_kwargs()["port"]
    with (
        closing(redis.RedisCluster(host=HOST, port=port)) as on_cluster,
        pytest.raises(
            InvalidSetting, match=rf"^client: .* Bridge\('redis\+cluster://{HOST}:{port}'"
        ),
    ):
        Bridge(client=on_cluster)  # type: ignore[arg-type]
    async with redis.asyncio.RedisCluster(host=HOST, port=port) as async_on_cluster:
        with pytest.raises(
            InvalidSetting, match=rf"^client: .* AsyncBridge\('redis\+cluster://.*{port}"
        ):
            AsyncBridge(client=async_on_cluster)  # type: ignore[arg-type]


def test_no_script_leaves_its_slot(cluster: Cluster) -> None:
    hand_over(cluster.client)
    tasks = Tasks(cluster.client)
    make_in_every_way(tasks)
    settle_every_outcome(tasks)
    change_what_runs(tasks)
    steer_what_waits(tasks)
    know_the_fleet(tasks)
    follow_up(tasks)
    beat_and_sweep(tasks)
    meet_broken_data(tasks)
    meet_other_clients(tasks)
    look(tasks)
    look_after(cluster)
    have_series(tasks)
    group_some(tasks)
    have_limits(tasks)
    have_urgent_ones(tasks)
    assert len(cluster.client.keys(f"{TAG}*")) == cluster.client.dbsize()
    # Whoever adds a script must lead it through here.
    assert scripts_known_to(cluster.client) == SCRIPTS


def test_a_key_of_another_slot_is_another_partition_s(cluster: Cluster) -> None:
    tasks = Tasks(cluster.client)
    for name in (b"other:?mail.send?[1]", b"{eb:1}other:?mail.send?[1]", b"{eb:1}bad:?mail.send?1"):
        if cluster.whole:
            tasks.set(name)
        for heard in EventKind:
            assert tasks.adopt(name, heard) is Adoption.NOTHING
    assert tasks.store.run(reconciling.scan("0", 1000)).found == []
    assert tasks.bridge.list(state="failed").tasks == []


def test_a_slot_is_what_the_cluster_says(node: redis.Redis) -> None:
    ids = ["a", "order-17", "dev:7", "poll@1900000000000", "@", "x" * 128, "0.-_:@z"]
    for id in ids:
        assert slot_of_id(id) == cluster_command(node, "KEYSLOT", id.partition("@")[0])


def test_partitions_stay_in_their_slots(cluster: Cluster) -> None:
    """Also when they look for a sister that is not there, and when `meta` is lost."""
    if not cluster.whole:
        pytest.skip("the partitions have many slots")
    layout = PartitionLayout("expirebridge", 16)
    for number, prefix in enumerate(layout.prefixes()):
        id = f"{layout.tag_of(number)}@a"
        store = Store(cluster.client, prefix=prefix, partitions=16)
        [made] = store.run(producing.make([new(id, 60_000)]))
        for _ in range(2):
            cluster.client.delete(f"{prefix}:meta")
            store.run(claiming.heartbeat("me", 10.0, [], code="c0de"))
            assert cluster.client.hget(f"{prefix}:meta", "partitions") == b"16"
            assert made.key.startswith(f"{layout.hash_tag_of(number)}{id}:?".encode())
        with pytest.raises(PartitionsDiffer):
            Store(cluster.client, prefix=prefix, partitions=8).run(looking.get(id))
        assert store.run(reconciling.check_keys([made.key], SETTINGS)).found == []
    assert cluster.client.keys("expirebridge*") == []


def test_functions_stay_in_their_slot(cluster: Cluster) -> None:
    def call(name: str, *words: str | int) -> Any:
        if not cluster.headers:
            return cluster.client.eval(function_library.script(name).text, 1, PREFIX, *words)
        return cluster.client.fcall(f"expirebridge_{name}", 1, PREFIX, *words)

    if cluster.headers:
        cluster.client.function_load(function_library.library_text(), replace=True)
    made = call("make", "mail.send", "[1]", 60_000, "id", "a", "tags", "x")
    assert made[:3] == [b"created", b"a", f"{TAG}a:?mail.send?[1]".encode()]
    assert call("make", "mail.send", "[1]", 60_000, "id", "a", "if_exists", "replace")
    for name in ("pause", "resume", "run_now", "get", "cancel"):
        assert call(name, "a")
    assert call("reschedule", "a", 60_000) == b"finished"
    assert len(cluster.client.keys(f"{TAG}*")) == cluster.client.dbsize()


async def test_a_listener_runs_the_tasks_of_its_slot(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = Tasks(cluster.client)
    witness = Witness()

    async def send(user: int) -> None: ...

    if cluster.whole:
        tasks.set(b"{eb:1}other:?test.send?[1]")
    settings = Settings(url=cluster.url, prefix=PREFIX)
    async with listening(settings, witness, send=send):
        await witness.until(lambda: witness.seen(Gap))
        await asyncio.to_thread(tasks.bridge.make_task, "test.send", [1], 0.05, id="ours")
        cluster.client.set("{eb:0}foreign:?test.send?[1]", "", px=50)
        await witness.until_ended(2)
    assert {event.task.id for event in witness.ended(End.SUCCEEDED)} == {"ours", "foreign"}
    assert [record.getMessage() for record in caplog.records] == []


class Tasks:
    """Tasks of our slot, as producers and listeners see them."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.bridge = Bridge(client=client, prefix=PREFIX)
        self.store = Store(client, prefix=PREFIX)

    def state(self, id: str) -> State | None:
        task = self.bridge.get(id)
        return task.state if task else None

    def claim(self, token: str) -> Command[Claim]:
        return claiming.claim(token, SETTINGS, places=100, idle=True)

    def start(self, id: str) -> None:
        """Make a task that is due now, and claim it; its id is its token."""
        self.bridge.make_task("mail.send", [1], 0, id=id)
        call = self.claim(id)
        [task] = self.store.run(call).tasks
        assert task.id == id
        assert self.store.run(claiming.resent(call)).tasks == [task]

    def settle(self, id: str, outcome: str) -> None:
        call = claiming.settle([Settlement(id, id, outcome, 60, "text")], SETTINGS)
        assert self.store.run(call) == [Settled.DONE]
        assert self.store.run(call) == [Settled.DONE]  # a resend

    def look_now(self, state: str, id: str) -> None:
        """Let the time at which somebody must look at the task again have come."""
        self.client.zadd(f"{PREFIX}:{state}", {id: 1})

    def set(self, name: bytes) -> None:
        """Set a trigger key, as another client does."""
        self.client.set(name, "", px=60_000)

    def adopt(self, name: bytes, heard: EventKind = EventKind.LIVE) -> Adoption:
        try:
            key = parse_key(name)
            assert key is not None
            hint = KeyEvent.of(key, name, heard)
        except InvalidKey as error:
            hint = KeyEvent.of_invalid(name, error, heard)
        [adoption] = self.store.run(reconciling.adopt([hint], SETTINGS))
        return adoption


def make_in_every_way(tasks: Tasks) -> None:
    make = tasks.bridge.make_task
    made = make("mail.send", [1], "1h", id="made", tags=["x", "y"])
    assert made.key == b"{eb:0}made:?mail.send?[1]"
    assert tasks.client.pttl(made.key) > 0
    with pytest.raises(TaskExists):
        make("mail.send", [1], "1h", id="made")
    assert make("mail.send", [1], 9, id="made", if_exists="keep").outcome is Outcome.KEPT
    assert make("mail.send", [1], "2h", id="made", if_exists="extend").outcome is Outcome.EXTENDED
    again = make("mail.send", [2], "2h", id="made", if_exists="replace", tags=["x"])
    assert again.outcome is Outcome.REPLACED
    assert tasks.client.exists(made.key) == 0
    long = make("mail.send", ["long" * 1000], "1h", tags=["x"])
    assert long.key.endswith(b":?mail.send?@")
    assert tasks.bridge.cancel_tag("x")[Change.CANCELLED] == 2
    assert make("mail.send", [1], "1h", id="made", tags=["x"]).outcome is Outcome.CREATED
    some = [{"func": "mail.send", "args": [n], "delay": "1h", "tags": ["some"]} for n in range(2)]
    for task in tasks.bridge.make_tasks(some):
        assert tasks.client.pttl(task.key) > 0
    assert tasks.bridge.cancel_tag("some")[Change.CANCELLED] == 2


def settle_every_outcome(tasks: Tasks) -> None:
    for outcome, state in (
        ("succeeded", State.SUCCEEDED), ("failed", State.FAILED), ("retry", State.PENDING),
        ("released", State.PENDING), ("unknown", State.PENDING), ("snoozed", State.PENDING),
    ):  # fmt: skip
        tasks.start(outcome)
        tasks.settle(outcome, outcome)
        assert tasks.state(outcome) is state


def change_what_runs(tasks: Tasks) -> None:
    for id in ("replaced", "extended", "moved", "alive", "cancelled"):
        tasks.start(id)
    tasks.bridge.watch("extended", "mail.send", [1], ttl="1h")
    assert tasks.bridge.beat("extended") is Change.REARMED
    tasks.bridge.make_task("mail.send", [2], "1h", id="replaced", if_exists="replace", tags=["x"])
    tasks.bridge.make_task("mail.send", [1], "1h", id="extended", if_exists="extend")
    assert tasks.bridge.reschedule("moved", "1h") is Change.REARMED
    tasks.set(b"{eb:0}alive:?mail.send?[1]")
    assert tasks.bridge.cancel("cancelled") is Change.RUNNING
    beat = claiming.heartbeat(
        "me", 10, [(id, id) for id in ("replaced", "cancelled", "never")], code="aa"
    )
    answer = tasks.store.run(beat)
    assert (answer.cancelled, answer.lost) == ([("cancelled", "cancelled")], ["never"])
    for id in ("replaced", "extended", "moved", "alive"):
        tasks.settle(id, "succeeded")
        assert tasks.state(id) is State.PENDING
    tasks.settle("cancelled", "retry")
    assert tasks.state("cancelled") is State.CANCELLED


def steer_what_waits(tasks: Tasks) -> None:
    tasks.bridge.make_task("mail.send", [1], "1h", id="steered")
    tasks.bridge.watch("steered", "mail.send", [1], ttl="1h")
    assert tasks.bridge.pause("steered") is Change.PAUSED
    assert tasks.bridge.beat("steered") is Change.MOVED
    assert tasks.bridge.pause("steered") is Change.PAUSED
    assert tasks.bridge.put_off("steered", "1h") is Change.MOVED
    assert tasks.bridge.resume("steered") is Change.RESUMED
    assert tasks.bridge.put_off("steered", "1h") is Change.MOVED
    assert tasks.bridge.reschedule("steered", "2h") is Change.MOVED
    assert tasks.bridge.edit("steered", [2]) in {Change.EDITED, Change.EDITED_UNCHECKED}
    assert tasks.bridge.cancel("steered") is Change.CANCELLED
    assert tasks.bridge.run_now("steered") is Change.DUE_NOW
    tasks.bridge.make_task("mail.send", [1], "1h", id="signalled", on_signal="sms.send")
    assert tasks.bridge.signal("signalled") is Change.SIGNALLED
    assert tasks.store.run(read_decisions()) == Decisions(signalled=1, passed=0)
    assert tasks.bridge.cancel("signalled") is Change.CANCELLED
    assert [task.id for task in tasks.store.run(tasks.claim("steered")).tasks] == ["steered"]
    tasks.settle("steered", "succeeded")


def group_some(tasks: Tasks) -> None:
    """A group that grows, is closed, and ends; and one that is cancelled."""
    bridge = tasks.bridge
    items = [{"func": "mail.send", "args": [n], "delay": 0} for n in range(2)]
    bridge.make_group("g", items, then=Then("mail.send", [9], "1h"), close=False)
    bridge.make_tasks(items[:1], group="g")
    bridge.close_group("g")
    claimed = tasks.store.run(tasks.claim("grouped")).tasks
    assert [task.id for task in claimed] == ["g@g0", "g@g1", "g@g2"]
    ends = [Settlement(task.id, "grouped", "succeeded") for task in claimed]
    assert tasks.store.run(claiming.settle(ends, SETTINGS)) == [Settled.DONE] * 3
    assert tasks.state("g@then") is State.PENDING
    bridge.make_group("h", items)
    bridge.cancel_group("h")
    assert [group.state for group in bridge.list_groups().groups] == ["cancelled", "ended"]
    found = bridge.get_group("h")
    assert found is not None
    assert found.cancelled == 2
    stored = tasks.store.run(migration.stored_groups(pages.BEGINNING)).groups[0]
    fields: dict[str, Argument] = {**stored.fields}
    restoring = migration.restore_group("i", stored.members, fields, None)
    for code in (RestoreGroupCode.MADE, RestoreGroupCode.THERE):
        assert tasks.store.run(restoring) is code


def hand_over(client: redis.Redis) -> None:
    """A hold and a task leave, and arrive in another database."""
    tasks = Tasks(client)
    run = tasks.store.run
    tasks.bridge.hold(tag="held")
    held = run(migration.read_holds_and_weights())
    tasks.bridge.make_task("mail.send", [1], "1h", id="goes")
    [nonce] = run(migration.begin_move("redis://new"))
    batch = run(migration.pack_batch(0, nonce, 0, SETTINGS.lease, State.PENDING, 0))
    assert [item.id for item in batch.items] == ["goes"]
    run(migration.drop_batch(0, nonce, batch.number))
    assert tasks.state("goes") is State.CANCELLED  # what is heard late is an echo
    client.flushdb()

    run(migration.begin_receiving("redis://old"))
    run(migration.receive_holds_and_weights(nonce, held))
    assert [hold.name for hold in tasks.bridge.holds()] == ["tag held"]
    assert run(migration.receive_batch(nonce, batch.number, batch.items)) == [MigrationResult.HERE]
    assert run(migration.last_received(nonce)) == batch.number
    run(migration.end_receiving())
    assert tasks.state("goes") is State.PENDING
    assert run(ledger_calls.forget_ended(["goes"], nonce=nonce, least=0)) == []
    judged = run(ledger_calls.judge_early("goes", "t", "no row", SETTINGS))
    assert judged is ledger_calls.EarlyVerdict.NOT_EARLY
    client.flushdb()


def have_series(tasks: Tasks) -> None:
    """One that a producer schedules, and one that a listener declares."""
    bridge, run = tasks.bridge, tasks.store.run
    bridge.schedule("s", "mail.send", [1], every="1h", tags=["series"])
    assert bridge.schedule("s", "mail.send", [2], every="1h").outcome is SeriesOutcome.CHANGED
    assert [one.id for one in bridge.list_series().series] == ["s"]
    extra = bridge.run_series("s")
    assert extra is not None
    assert extra.id in [task.id for task in run(tasks.claim(extra.id)).tasks]
    tasks.settle(extra.id, "succeeded")
    before = bridge.get_series("s")
    assert before is not None
    assert before.succeeded is not None
    assert before.next is not None
    tick = to_ms(before.next)
    tasks.client.zadd(f"{PREFIX}:series", {"s": 1})
    assert [one.id for one in run(series_commands.find_due_series()).series] == ["s"]
    following = NextTick("s", tick, Times(tick + 1000, tick + 1000, None))
    assert run(series_commands.make_ticks([following])) == [True]
    later = NextTick("s", tick + 1000, Times(tick + 2000, tick + 2000, None, "2026a 0"))
    assert run(series_commands.retime_ticks([later])) == [Retimed.MOVED]
    assert [one.id for one in run(series_commands.find_outdated("2026b", 0))] == ["s"]
    assert bridge.pause_series("s") is Change.PAUSED
    assert bridge.resume_series("s") is Change.RESUMED
    run(claiming.heartbeat("declaring", 10, [], code="aa"))
    assert run(series_commands.declare_series("declaring", 10, [("d", "aa")])).standings
    run(claiming.leave("declaring"))
    assert bridge.unschedule("s") is Change.REMOVED


def follow_up(tasks: Tasks) -> None:
    """A task succeeds, and has a follow-up."""
    tasks.start("followed")
    then = new("follow-up", 60_000)
    call = claiming.settle_then(
        [Settlement("followed", "followed", "succeeded", then=then)], SETTINGS
    )
    for _ in range(2):
        assert tasks.store.run(call)[0].code is Settled.DONE
    assert tasks.state("follow-up") is State.PENDING


def know_the_fleet(tasks: Tasks) -> None:
    """Two listeners that run different code, one of which leaves."""
    for listener, code in (("old", "aa"), ("new", "bb")):
        beat = claiming.heartbeat(listener, 10, [], code=code, functions=1)
        assert tasks.store.run(beat).undeclared
        tasks.store.run(fleet.declare(code, {"mail.send": f"({listener})"}))
    assert set(tasks.store.run(fleet.read_fleet(10)).codes) == {"aa", "bb"}
    tasks.bridge.make_task("mail.send", [1], id="known", delay=0)
    walk = claiming.Walk(b"-inf", b"", b"+inf")
    claim = claiming.claim_known("known", SETTINGS, places=9, idle=True, code="aa", walks=[walk])
    assert [task.id for task in tasks.store.run(claim).tasks] == ["known"]
    tasks.settle("known", "succeeded")
    for listener in ("old", "new"):
        tasks.store.run(claiming.leave(listener))


def have_urgent_ones(tasks: Tasks) -> None:
    tasks.store.run(declare_urgent(["sms.hurry"], ["sms.wait"]))
    for func, urgent in (("sms.wait", False), ("sms.wait", True), ("sms.hurry", False)):
        tasks.bridge.make_task(func, [7], 0, id=f"{func}-{urgent}", urgent=urgent)
    claimed = tasks.store.run(tasks.claim("urgent"))
    ids = [task.id for task in claimed.tasks]
    assert sorted(ids[:2]) == ["sms.hurry-False", "sms.wait-True"]
    tasks.store.run(
        claiming.settle([Settlement(id, "urgent", "succeeded") for id in ids], SETTINGS)
    )


def have_limits(tasks: Tasks) -> None:
    fields = [
        ("f sms.send", b'[["sms",0,"to",null,0,"to",null]]'),
        ("f sms.poll", b'[["poll"]]'),
        ("l sms", b'{"most":1,"wait":60000,"fair":true}'),
        ("l poll", b'{"starts":1,"every":3600000000,"burst":1}'),
    ]
    tasks.store.run(declare_limits("aa", fields))
    for id in ("one", "two", "three"):
        tasks.bridge.make_task("sms.send", [7], 0, id=id)
        tasks.bridge.make_task("sms.poll", [7], 0, id=f"poll-{id}")
    claimed = tasks.store.run(tasks.claim("limited"))
    assert [task.id for task in claimed.tasks] == ["one", "poll-one"]
    assert claimed.parked == 4
    tasks.store.run(claiming.settle([Settlement("one", "limited", "succeeded")], SETTINGS))
    # One was granted the slot.
    assert {tasks.state(id) for id in ("two", "three")} == {State.PENDING, State.WAITING}
    assert all(tasks.bridge.why(id) for id in ("one", "two", "three"))
    for id in ("two", "three"):
        for to in (8, 7):
            assert tasks.bridge.edit(id, [to]) is Change.EDITED_UNCHECKED
    tasks.bridge.weight("sms", 7, 2)
    tasks.bridge.set_limit("sms", 1, value=7)
    tasks.store.run(resealing.replace([Replacement("task", "one", "args", b"[1]", b"[2]")]))
    tasks.bridge.let_pass("one")
    for key in ("grants", "waits"):
        tasks.client.zadd(f"{PREFIX}:{key}", {"two": 1, "three": 1}, xx=True)
    tasks.bridge.hold(func="sms.send")
    assert len(tasks.bridge.holds()) == 1
    tasks.store.run(reconciling.sweep(SETTINGS))
    tasks.store.run(tasks.claim("held"))
    tasks.store.run(migration.restore_slots({"poll-two": ["line=7"]}))
    tasks.store.run(migration.open_lanes())
    tasks.bridge.release(func="sms.send")
    tasks.store.run(reconciling.sweep(SETTINGS))


def beat_and_sweep(tasks: Tasks) -> None:
    # A clock that went back, a listener that stays, and one that leaves.
    tasks.client.zadd(f"{PREFIX}:listeners", {"ahead": 9e12})
    for listener in ("me", "other"):
        tasks.store.run(claiming.heartbeat(listener, 10, [], code="aa"))
    tasks.store.run(claiming.leave("other"))
    for lapses in (0, 2):
        tasks.start("lapsing")
        tasks.client.hset(f"{PREFIX}:task:lapsing", "lapses", lapses)
        tasks.look_now("running", "lapsing")
        sweep = tasks.store.run(reconciling.sweep(SETTINGS))
        assert (sweep.lapsed, sweep.failed) == (
            (["lapsing"], []) if not lapses else ([], ["lapsing"])
        )
        tasks.bridge.cancel("lapsing")
    tasks.start("rearmed")
    tasks.set(b"{eb:0}rearmed:?mail.send?[1]")
    tasks.look_now("running", "rearmed")
    tasks.bridge.make_task("mail.send", [1], "1h", id="paused")
    tasks.bridge.pause("paused")
    tasks.client.pexpire("{eb:0}paused:?mail.send?[1]", 60_000)
    tasks.look_now("paused", "paused")
    tasks.look_now("failed", "failed")
    tasks.store.run(reconciling.sweep(SETTINGS))
    assert (tasks.state("rearmed"), tasks.state("paused")) == (State.PENDING, State.PENDING)
    assert tasks.state("failed") is None


def meet_broken_data(tasks: Tasks) -> None:
    tasks.client.set(f"{PREFIX}:task:broken", "no record")
    for id in ("broken", "nobody", "steered"):  # the last one has succeeded
        tasks.look_now("pending", id)
    assert sorted(tasks.store.run(tasks.claim("t")).broken) == ["broken", "nobody"]
    assert tasks.state("broken") is State.FAILED


def meet_other_clients(tasks: Tasks) -> None:
    foreign, other = b"{eb:0}foreign:?mail.send?[1]", b"{eb:0}foreign:?mail.send?[2]"
    for name in (foreign, other):
        tasks.set(name)
        assert tasks.adopt(name) is Adoption.ADOPTED
    of_another_slot = b"foreign:?mail.send?[1]"
    unexplained = tasks.store.run(
        reconciling.find_unexplained([foreign, of_another_slot], EventKind.LIVE)
    )
    assert unexplained == {of_another_slot}
    assert tasks.state(id_for_key(other)) is State.PENDING
    tasks.client.persist(foreign)
    assert tasks.adopt(foreign) is Adoption.KNOWN
    assert tasks.state("foreign") is State.PAUSED
    tasks.client.delete(other)
    assert tasks.adopt(other, EventKind.DELETED) is Adoption.KNOWN
    assert tasks.state(id_for_key(other)) is State.CANCELLED
    invalid, found = b"{eb:0}invalid:?mail.send?1", b"{eb:0}found:?mail.send?[1]"
    tasks.set(invalid)
    assert tasks.adopt(invalid) is Adoption.INVALID
    assert tasks.adopt(b"{eb:0}expired:?mail.send?[1]", EventKind.EXPIRED) is Adoption.ADOPTED
    tasks.set(found)
    tasks.client.persist("{eb:0}moved:?mail.send?[1]")
    scanned = tasks.store.run(reconciling.scan("0", 1000))
    assert found in scanned.found
    assert scanned.alien == 0
    assert tasks.state("moved") is State.PAUSED


def look(tasks: Tasks) -> None:
    assert tasks.bridge.count().paused == 2
    assert {task.id for task in tasks.bridge.list(state="paused").tasks} == {"foreign", "moved"}
    assert {task.id for task in tasks.bridge.list(tag="x").tasks} >= {"made", "replaced"}
    failed = tasks.bridge.find_failed()
    assert set(tasks.bridge.purge_failed(failed)) == {Change.FORGOTTEN}


def look_after(cluster: Cluster) -> None:
    with closing(Store(clients.probe_client(cluster.url), prefix=PREFIX)) as store:
        found = examine(store, SETTINGS, LoginRole.LISTENER)
        store.run(inspection.count_before(State.PENDING, [0]))
        store.run(inspection.list_listeners(1))
        store.run(inspection.read_tally(spans=1, minutes=1))
        store.run(actions.note_action(who="ann", action="cancel", target="a", result="1 cancelled"))
        assert len(store.run(actions.read_actions(1))) == 1
        assert store.run(migration.find_known(["made", "nobody"])) == [True, False]
        assert store.run(migration.note_import("arq old:6379/0", look_only=False))[1] == 0
        assert store.run(inspection.survey_functions(10)).examined > 0
        assert store.run(inspection.calls_page(State.PENDING, pages.BEGINNING)).examined > 0
        matches = store.run(inspection.find_ids(State.PENDING, "", rank=0, examine=1, find=1))
        assert matches.examined == 1
        coming = store.run(forecasting.forecast(3600, 24, sample=2))
        assert sum(span.count for span in coming.spans) > 0
        store.run(forecasting.note_durations({"mail.send": forecasting.Took(2, 3)}))
        assert store.run(forecasting.read_durations()) == {"mail.send": forecasting.Took(2, 3)}
        for listener in ("me", "ahead"):
            store.run(claiming.leave(listener))
        store.run(partitions.create_partitions(1))
        store.run(partitions.mark_partition())
        assert store.run(partitions.read_partitions()) == 1
        assert store.run(reconciling.check_keys([b"elsewhere"], SETTINGS)).found == []
        relay(store)
    assert [str(one) for one in found if one.level is Level.ERROR] == []
    assert {"rights", "listeners", "functions", "data", "round trip"} <= {
        one.check for one in found
    }


def relay(store: Store) -> None:
    """What the relay of a ledger sends."""
    store.run(ledger_calls.bind_ledger("nonce"))
    store.run(ledger_calls.note_horizon(600_000))
    known = store.run(ledger_calls.read_ledger())
    assert store.run(ledger_calls.read_run_id())
    row = ledger_calls.RelayedRow(
        id="ledgered", version=RowVersion(1, 1), what="cancel", hint="",
        call=b"mail.send?[1]", when="in", ms=60_000,
    )  # fmt: skip
    sent = ledger_calls.relay([row], checkpoint=known, nonce="nonce", number=1, settings=Settings())
    assert store.run(sent) is not None
    dirty = store.run(ledger_calls.read_dirty(100))
    assert store.run(ledger_calls.forget_dirty(dirty, number=2))
    early = replace(row, id="early", what="waits")
    assert store.run(ledger_calls.send_early([early], nonce="nonce", least=2)) == [True]


def scripts_known_to(client: redis.Redis) -> set[str]:
    """The scripts that ran there since its cache was emptied."""
    known = set()
    for name in SCRIPTS:
        script = script_loader.load(name)
        if any(client.script_exists(script.headed.sha, script.plain.sha)):
            known.add(name)
    return known

"""Nodes of a cluster die, change places, stand still or lag, while tasks are made and run."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from expirebridge import Bridge, State
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.task.task import to_ms
from tests.faults.stage import ROUNDS, Listeners, held_still, judge, until_finished
from tests.faults.stream import Stream
from tests.faults.table import TABLE, Fault
from tests.kit.apart import LAYOUT, homes_of, slot_of_task
from tests.kit.checker import Verdict, check, look_up
from tests.kit.cluster import NODE_TIMEOUT_MS, Cluster
from tests.kit.history import Forgot, Made, Started, Writer, now, read
from tests.kit.patience import PATIENCE
from tests.kit.processes import until_logged
from tests.kit.servers import EMBEDDED, SERVERS, hanging
from tests.kit.wrong_clock import need_servers_clock, needs_faketime, started_with

LEASE = 3.0
"""Seconds: a listener asks who serves what once a second, and its leases must outlast that."""
STILL = 30.0 if ROUNDS > 1 else 6.0
"""Seconds for which a node is stopped."""
SLACK = 5
"""Milliseconds for the library's own error: it counts from the process's start."""
PROBES = 40
"""Tasks a second whose lateness is measured meanwhile."""

DIES = Fault(
    name="cluster: a primary is killed",
    injected="`kill -9` of one of three primaries in a stream of tasks, with two listeners; its "
    "replica takes over",
    promise="what reached the replica is kept, and runs; the other nodes' tasks are not held up",
)
ORDERLY = Fault(
    name="cluster: an orderly failover",
    injected="`CLUSTER FAILOVER` in a stream of tasks; the old primary goes on as a replica",
    promise="nothing is lost, and nothing is cancelled",
)
DEMOTED = Fault(
    name="cluster: a demoted primary has a subscriber",
    injected="a failover while the listener stands still; keys that then expire early on the "
    "new primary are `del` events of the old one, which the listener reads when it goes on",
    promise="none of these tasks is cancelled; all run when they were due",
)
BEHIND = Fault(
    name="cluster: a failover to a replica that is behind",
    injected="`kill -9` of a primary whose replica was stopped while 60 tasks were made",
    promise="what the replica had not received is lost, or runs again; all else runs",
)
MIGRATED = Fault(
    name="cluster: slots migrate under load",
    injected="`CLUSTER MIGRATESLOTS` of two partitions, there and back, in a stream of tasks "
    "(Valkey 9)",
    promise="nothing is lost, and nothing runs twice",
)
HALF_WAY = Fault(
    name="cluster: a slot is moved half-way",
    injected="a partition is moved key by key, and left half-way in a stream of tasks; finished "
    "later",
    promise="nothing is lost or cancelled; only this partition waits",
)
STILL_NODE = Fault(
    name="cluster: a node stands still",
    injected="SIGSTOP of a primary without a replica, for 6 s, or 30 s in many rounds",
    promise="the other nodes' tasks are not late; its own run when it goes on",
)
CLOCKS = Fault(
    name="cluster: the clocks of the nodes differ",
    injected="the nodes' clocks are ahead by a second, by an hour, and not at all; tasks of each "
    "have a `delay`",
    promise="each runs once, and not early, by the clock of its node",
)


@dataclass(frozen=True, slots=True)
class Scene:
    """What a test of a cluster's faults works with."""

    cluster: Cluster
    listeners: Listeners
    folder: Path
    history: Writer
    stream: Stream
    bridge: Bridge

    @property
    def victim(self) -> EmbeddedServer:
        """The node to which the fault happens: that of the first partition."""
        return self.cluster.primary_of(self.cluster.slot_of(LAYOUT.prefix_of(0)))

    def judge(self, fault: Fault, *, times: int = 1) -> Verdict:
        """End the stream, wait until every task has ended, and give the verdict."""
        self.stream.stop()
        until_finished(self.bridge)
        node = self.cluster.nodes[0]
        return judge(fault, node, self.bridge, self.history, lease=LEASE, times=times)

    def missing(self) -> list[str]:
        """The tasks that were acknowledged, and are gone."""
        made = [each.id for each in read(self.history.folder) if isinstance(each, Made)]
        return [id for id in made if self.bridge.get(id) is None]


@contextmanager
def staged(
    binary: Path,
    folder: Path,
    history: Writer,
    chance: random.Random,
    *,
    listeners: int = 1,
    replicas: int = 1,
    node_timeout_ms: int = NODE_TIMEOUT_MS,
) -> Iterator[Scene]:
    """Start a cluster, listeners and a producer."""
    options = {"cluster-node-timeout": str(node_timeout_ms)}
    with (
        Cluster(binary, replicas=replicas, options=options) as cluster,
        Listeners(cluster.url, folder, history, "--log-format", "json", lease=LEASE) as processes,
        Bridge(cluster.url) as bridge,
    ):
        for _ in range(listeners):
            processes.start()
        with Stream(cluster.url, history, chance=chance) as stream:
            stream.until_more(50 + chance.randrange(50))
            yield Scene(cluster, processes, folder, history, stream, bridge)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_primary_is_killed(binary: Path, folder: Path, history: Writer, round: int) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with staged(binary, folder, history, chance, listeners=2) as scene:
        victim, cluster = scene.victim, scene.cluster
        known = now()
        cluster.until_in_step(victim)
        cluster.kill(victim)
        history.write(Forgot(at=known, until=now()))
        until_logged('"failed over"', folder, times=2)
        scene.stream.until_more(200)
        verdict = scene.judge(DIES)
        gone = scene.missing()
        at_victim = {slot_of_task(id) for id in gone}
        assert all(cluster.primary_of(slot) not in others_of(scene) for slot in at_victim)
    assert verdict.sound, str(verdict)
    assert verdict.forgotten < 20, str(verdict)


def others_of(scene: Scene) -> set[EmbeddedServer]:
    """The nodes that served before what they serve now."""
    return set(scene.cluster.nodes[:3])


@pytest.mark.parametrize("round", range(ROUNDS))
def test_an_orderly_failover(binary: Path, folder: Path, history: Writer, round: int) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with staged(binary, folder, history, chance) as scene:
        scene.cluster.fail_over(scene.victim)
        until_logged('"failed over"', folder)
        scene.stream.until_more(200)
        verdict = scene.judge(ORDERLY)
    assert verdict.sound, str(verdict)
    assert not verdict.forgotten


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_demoted_primary_has_a_living_ear(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    """Tasks of plain clients, since only what is deleted by others is cancelled.

    Their records are on the replica before it takes over, so none may be lost. Keys that expired
    before the failover was over, on a busy machine, show nothing: then a longer TTL is tried.
    """
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    # No node is given up for dead, whatever the machine does: only the failover that is asked for.
    with staged(binary, folder, history, chance, node_timeout_ms=10_000) as scene:
        scene.stream.stop()
        times = 0
        for ttl in (3000, 12_000, 40_000):
            times += 1
            if expire_on_a_new_primary(scene, ttl):
                break
            scene.cluster.until_well()
        else:
            raise AssertionError("this machine takes longer for a failover")
        verdict = scene.judge(DEMOTED, times=times)
    assert verdict.sound, str(verdict)
    assert not verdict.forgotten
    assert verdict.states == {State.SUCCEEDED: verdict.acknowledged}, str(verdict)


def expire_on_a_new_primary(scene: Scene, ttl: int) -> bool:
    """Hold the listener still, have its primary demoted, and keys expire early on the other.

    Returns whether they did. Nobody hears it from the new primary, so they run when they were due.
    """
    cluster, victim = scene.cluster, scene.victim
    ids = [id for id in (f"foreign-{ttl}-{number}" for number in range(200))
           if homes_of(cluster, [id])[id] is victim][:20]  # fmt: skip
    names = [scene.bridge.key_of(id, "recorded.work", [0, 0]) for id in ids]
    with cluster.client(victim) as client:
        for id, name in zip(ids, names, strict=True):
            scene.history.write(Made(id=id, due=now() + ttl, attempts=1))
            client.set(name, "", px=ttl)
    deadline = time.monotonic() + PATIENCE
    while any(scene.bridge.get(id) is None for id in ids):
        assert time.monotonic() < deadline, "no listener adopted them"
    cluster.until_in_step(victim)
    [process] = scene.listeners.by_pid.values()
    with held_still(process, scene.history):
        replica = cluster.fail_over(victim)
        with cluster.client(replica) as client:
            brought = [client.pexpire(name, 1) for name in names]
            while any(client.exists(name) for name in names):
                time.sleep(0.01)
        cluster.until_in_step(replica, victim)
    assert all(scene.bridge.get(id) is not None for id in ids)
    return all(brought)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_failover_to_a_replica_that_is_behind(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with staged(binary, folder, history, chance) as scene:
        victim, cluster = scene.victim, scene.cluster
        replica = cluster.replica_of(victim)
        known = now()
        cluster.until_in_step(victim)
        with hanging(replica):
            # What was sent before would reach it all the same.
            cluster.ask(victim, "CLIENT", "KILL", "TYPE", "replica")
            scene.stream.until_more(60)
            cluster.kill(victim)
            history.write(Forgot(at=known, until=now()))
        until_logged('"failed over"', folder)
        scene.stream.until_more(100)
        verdict = scene.judge(BEHIND)
    assert verdict.sound, str(verdict)
    assert verdict.forgotten, str(verdict)


@pytest.mark.parametrize("round", range(ROUNDS))
@pytest.mark.skipif(EMBEDDED not in SERVERS, reason="needs Valkey 9")
def test_slots_migrate_under_load(folder: Path, history: Writer, round: int) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with staged(SERVERS[EMBEDDED], folder, history, chance, listeners=2) as scene:
        cluster = scene.cluster
        source = scene.victim
        target = next(node for node in cluster.nodes[:3] if node is not source)
        for goal in (target, source):
            for number in (0, 1):
                cluster.migrate(cluster.slot_of(LAYOUT.prefix_of(number)), goal)
                scene.stream.until_more(60)
        verdict = scene.judge(MIGRATED, times=4)
    assert verdict.sound, str(verdict)
    assert not verdict.forgotten


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_slot_is_moved_half_way(binary: Path, folder: Path, history: Writer, round: int) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with staged(binary, folder, history, chance) as scene:
        cluster, slot = scene.cluster, scene.cluster.slot_of(LAYOUT.prefix_of(0))
        source = scene.victim
        target = next(node for node in cluster.nodes[:3] if node is not source)
        waits = made_in(scene, slot, 20, delay=5.0)
        cluster.begin_move(slot, target, keys=15)
        until_logged("SlotMoving", folder)
        others = lateness_of_others(scene, {slot}, 5.0)
        started = {each.id for each in read(history.folder) if isinstance(each, Started)}
        assert not started & set(waits)
        cluster.finish_move(slot, target)
        verdict = scene.judge(HALF_WAY)
    print(f"late, the other partitions' tasks: {others}")  # noqa: T201 - the figure
    assert verdict.sound, str(verdict)
    assert not verdict.forgotten


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_node_stands_still(binary: Path, folder: Path, history: Writer, round: int) -> None:
    """The producer of what is measured makes tasks of the other nodes only: it would wait, too."""
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with staged(binary, folder, history, chance, replicas=0) as scene:
        scene.stream.stop()
        victim = scene.victim
        homes = homes_of(scene.cluster, [str(number) for number in range(200)])
        slots = {slot_of_task(id) for id, home in homes.items() if home is victim}
        before = lateness_of_others(scene, slots, 2.0)
        made_in(scene, min(slots), 20)
        with hanging(victim):
            meanwhile = lateness_of_others(scene, slots, STILL)
        scene.cluster.until_well()
        verdict = scene.judge(STILL_NODE)
    print(  # noqa: T201 - the figures of docs/explanation/guarantees.md
        f"late, the other nodes' tasks: before {before}; while a node stood still for {STILL:g} s "
        f"{meanwhile}"
    )
    assert meanwhile.longest < before.longest + 1000
    assert verdict.sound, str(verdict)


@needs_faketime
@pytest.mark.parametrize("round", range(ROUNDS))
def test_the_clocks_of_the_nodes_differ(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    """By a second and by an hour; each node's counts for its partitions."""
    need_servers_clock(binary)
    with (
        Cluster(binary, replicas=0) as cluster,
        Listeners(cluster.url, folder, history, lease=LEASE) as listeners,
        Bridge(cluster.url) as bridge,
    ):
        for node, seconds in zip(cluster.nodes, (1, 3600, 0), strict=True):
            node.stop()
            with started_with(FAKETIME=f"+{seconds}s"):
                node.start()
        cluster.until_well()
        listeners.start()
        ids = [f"clock-{round}-{number}" for number in range(40)]
        homes = homes_of(cluster, ids)
        assert {homes[id] for id in ids} == set(cluster.nodes)
        offsets = dict(zip(cluster.nodes, (1000, 3_600_000, 0), strict=True))
        for id in ids:
            before = now()
            task = bridge.make_task("recorded.work", [0, 0], 1, id=id)
            due = to_ms(task.due) - offsets[homes[id]]
            assert before - SLACK <= due - 1000 <= now() + SLACK
            history.write(Made(id=id, due=due - SLACK, attempts=1))
        until_finished(bridge)
        ahead = {id: offsets[homes[id]] + SLACK for id in ids}
        # By this machine's clock, as all other times of the history.
        events = [
            replace(each, due=each.due - ahead[each.id]) if isinstance(each, Started) else each
            for each in read(history.folder)
        ]
        verdict = check(events, look_up(bridge, events), lease=LEASE)
        TABLE.add(CLOCKS, binary.name, verdict, 1)
    assert verdict.sound, str(verdict)
    assert not verdict.twice


def made_in(scene: Scene, slot: int, count: int, delay: float = 0.5) -> list[str]:
    """Make so many tasks of one partition."""
    ids = [id for id in (f"{number}-{now()}" for number in range(2000)) if slot_of_task(id) == slot]
    for id in ids[:count]:
        task = scene.bridge.make_task("recorded.work", [0, 0], delay, id=id, retry=[])
        scene.history.write(Made(id=id, due=to_ms(task.due), attempts=1))
    return ids[:count]


@dataclass(frozen=True, slots=True)
class Lateness:
    """By how many ms tasks started late, in order."""

    all: list[int]

    @property
    def longest(self) -> int:
        """That of the latest."""
        return self.all[-1]

    def __str__(self) -> str:
        p50, p99 = (self.all[int(share * (len(self.all) - 1))] for share in (0.5, 0.99))
        return f"p50 {p50} ms, p99 {p99} ms, longest {self.longest} ms of {len(self.all)}"


def lateness_of_others(scene: Scene, slots: set[int], seconds: float) -> Lateness:
    """For so long make tasks of other slots; by how much they started late."""
    made, number, end = dict[str, int](), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        number += 1
        id = f"probe-{number}-{now()}"
        if slot_of_task(id) in slots:
            continue
        task = scene.bridge.make_task("recorded.work", [0, 0], 0.1, id=id, retry=[])
        made[id] = to_ms(task.due)
        scene.history.write(Made(id=id, due=made[id], attempts=1))
        time.sleep(1 / PROBES)
    deadline = time.monotonic() + 10
    starts = dict[str, int]()
    while made.keys() - starts.keys() and time.monotonic() < deadline:
        starts = {each.id: each.at for each in read(scene.history.folder)
                  if isinstance(each, Started) and each.id in made}  # fmt: skip
    assert starts.keys() == made.keys(), "some never started"
    return Lateness(sorted(at - made[id] for id, at in starts.items()))

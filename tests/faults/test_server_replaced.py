"""A primary dies and its replica takes its place."""

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from expirebridge import Bridge, Change, ServerReadOnly
from expirebridge.embedded.server import HOST, EmbeddedServer
from tests.faults.link import Link
from tests.faults.scene import LEASE
from tests.faults.stage import ROUNDS, judge, recorded_listener, until_finished
from tests.faults.stream import Stream
from tests.faults.table import Fault
from tests.kit.checker import Verdict
from tests.kit.history import Forgot, Writer, now
from tests.kit.patience import PATIENCE

IN_STEP = Fault(
    name="a failover to a replica in step",
    injected="when the replica has every task: `kill -9` of the primary, `REPLICAOF NO ONE`, and "
    "clients are redirected there",
    promise="nothing is lost",
)
BEHIND = Fault(
    name="a failover to a replica that is behind",
    injected="the same, when the replica was cut off while 130 tasks were made",
    promise="what it had not received is lost, or runs again; all else runs",
)
DEMOTED = Fault(
    name="a primary is demoted",
    injected="it becomes its replica's replica, and keeps its connections; new ones are led to the "
    "other",
    promise="nothing is lost: clients that get a read-only error reconnect",
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A primary and its replica. Clients come by `link`, the replica by `replication`."""

    primary: EmbeddedServer
    replica: EmbeddedServer
    link: Link
    replication: Link
    history: Writer

    def until_replicated(self) -> int:
        """Wait until the replica has all that was written; return when that was begun, in ms."""
        begun = now()
        with redis.Redis(port=self.primary.port, db=2) as client:
            client.set("mark", begun)
            assert client.wait(1, round(PATIENCE * 1000)) == 1
        return begun

    def fail_over(self, known: int) -> None:
        """Lose the primary; the replica knows what was written until that ms, and perhaps more."""
        self.primary.kill()
        with redis.Redis(port=self.replica.port) as client:
            client.replicaof("NO", "ONE")
        self.history.write(Forgot(at=known, until=now()))
        self.link.lead_to(self.replica.port)

    def change_places(self, known: int) -> None:
        """Make the replica the primary, and the primary its replica."""
        self.link.lead_to(self.replica.port, cut=False)
        with redis.Redis(port=self.replica.port) as client:
            client.replicaof("NO", "ONE")
        with redis.Redis(port=self.primary.port) as client:
            client.replicaof(HOST, str(self.replica.port))
        self.history.write(Forgot(at=known, until=now()))


@contextmanager
def paired(binary: Path, history: Writer) -> Iterator[Pair]:
    """Start a primary and a replica that is in step with it."""
    with ExitStack() as stack:
        # A first replica is otherwise kept waiting for others, which would share its transfer.
        options = {"repl-diskless-sync-delay": "0"}
        primary, replica = (
            stack.enter_context(EmbeddedServer(binary=binary, options=options)) for _ in range(2)
        )
        link, replication = (stack.enter_context(Link(primary.port)) for _ in range(2))
        with redis.Redis(port=replica.port) as client:
            client.replicaof(HOST, replication.port)
            deadline = time.monotonic() + PATIENCE
            while client.info("replication")["master_link_status"] != "up":
                assert time.monotonic() < deadline, "the replica does not follow"
                time.sleep(0.01)
        yield Pair(primary, replica, link, replication, history)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_failover_to_a_replica_in_step(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with (
        paired(binary, history) as pair,
        recorded_listener(pair.link.url, folder, history, lease=LEASE),
    ):
        with Stream(pair.link.url, history, chance=chance) as stream:
            stream.until_more(100 + chance.randrange(50))
        pair.fail_over(pair.until_replicated())
        verdict = verdict_of(IN_STEP, pair)
    assert verdict.sound, str(verdict)
    assert not verdict.forgotten


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_failover_to_a_replica_that_is_behind(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with (
        paired(binary, history) as pair,
        recorded_listener(pair.link.url, folder, history, lease=LEASE),
        Stream(pair.link.url, history, chance=chance) as stream,
    ):
        stream.until_more(50 + chance.randrange(50))
        known = pair.until_replicated()
        with pair.replication.partitioned():
            stream.until_more(130)
            pair.fail_over(known)
        stream.until_more(50)
        stream.stop()
        verdict = verdict_of(BEHIND, pair)
    assert verdict.sound, str(verdict)
    assert verdict.forgotten >= 90, str(verdict)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_primary_is_demoted(binary: Path, folder: Path, history: Writer, round: int) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with (
        paired(binary, history) as pair,
        recorded_listener(pair.link.url, folder, history, lease=LEASE),
        Bridge(pair.link.url) as bridge,
    ):
        with Stream(pair.link.url, history, chance=chance) as stream:
            stream.until_more(100 + chance.randrange(50))
        assert bridge.get("nobody") is None  # connected, before they change places
        pair.change_places(pair.until_replicated())
        with pytest.raises(ServerReadOnly):
            bridge.make_task("mail.send", [1], 3600)
        made = bridge.make_task("mail.send", [1], 3600)
        assert bridge.cancel(made.id) is Change.CANCELLED
        verdict = verdict_of(DEMOTED, pair)
    assert verdict.sound, str(verdict)


def verdict_of(fault: Fault, pair: Pair) -> Verdict:
    with Bridge(pair.link.url) as bridge:
        until_finished(bridge)
        return judge(fault, pair.replica, bridge, pair.history, lease=LEASE)

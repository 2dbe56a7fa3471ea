"""With a ledger in a cluster of three nodes and 16 partitions: one node loses what it had.

The partitions of the other nodes have lost nothing: their tasks go on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from expirebridge.embedded.server import EmbeddedServer
from tests.faults.shop.scene import Trade, trading
from tests.faults.shop.terms import PROMISE
from tests.faults.stage import ROUNDS
from tests.faults.table import Fault
from tests.kit.apart import LAYOUT
from tests.kit.cluster import Cluster
from tests.kit.databases import Database
from tests.kit.history import Forgot, Writer, now
from tests.kit.servers import hanging

LEASE = 3.0
"""Seconds: a listener asks who serves what once a second, and its leases must outlast that."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster, a shop, and what is written down."""

    cluster: Cluster
    trade: Trade
    history: Writer

    @property
    def slot(self) -> int:
        """That of the first partition."""
        return self.cluster.slot_of(LAYOUT.prefix_of(0))

    @property
    def victim(self) -> EmbeddedServer:
        """The node that serves it."""
        return self.cluster.primary_of(self.slot)

    def flush(self) -> None:
        """FLUSHALL on one node."""
        with self.cluster.client(self.victim) as client:
            client.flushall()
        self.history.write(Forgot(at=0, until=now()))

    def restart_empty(self) -> None:
        """Kill a node that has no replica, and start it without its data."""
        victim = self.victim
        self.cluster.kill(victim)
        self.history.write(Forgot(at=0, until=now()))
        self.cluster.restart(victim)

    def fail_over_behind(self) -> None:
        """The replica of a node hangs, tasks are made and run, and then it must take over."""
        victim, slot = self.victim, self.slot
        replica = self.cluster.replica_of(victim)
        known = now()
        self.cluster.until_in_step(victim)
        with hanging(replica):
            # What was sent before would reach it all the same.
            self.cluster.ask(victim, "CLIENT", "KILL", "TYPE", "replica")
            self.trade.until_delivered(30)
            self.cluster.kill(victim)
        self.cluster.until_served_by(slot, replica)
        self.history.write(Forgot(at=known, until=now()))


FAULTS: dict[Callable[[Stage], None], Fault] = {
    Stage.flush: Fault(
        name="ledger: cluster: one node is flushed",
        injected="`FLUSHALL` on one of three nodes, with 16 partitions, while a shop sells and two "
        "listeners deliver",
        promise=PROMISE,
    ),
    Stage.restart_empty: Fault(
        name="ledger: cluster: one node comes back empty",
        injected="`kill -9` of one of three nodes, none of which has a replica, and its restart "
        "without its data, likewise",
        promise=PROMISE,
    ),
    Stage.fail_over_behind: Fault(
        name="ledger: cluster: a primary is killed, and its replica was behind",
        injected="a primary's replica hangs, 30 tasks are made and run, the primary is killed, and "
        "the replica takes over",
        promise=PROMISE,
    ),
}
CASES = [
    (Stage.flush, "sqlite"), (Stage.restart_empty, "mariadb"),
    (Stage.fail_over_behind, "postgresql"),
]  # fmt: skip


@pytest.mark.skipif(ROUNDS == 1, reason="clusters take long: in make faults")
@pytest.mark.parametrize("round", range(max(1, ROUNDS // 4)))
@pytest.mark.parametrize(("lose", "name"), CASES, ids=lambda part: getattr(part, "__name__", part))
def test_nothing_is_lost_with_one_node(
    lose: Callable[[Stage], None], name: str, database: Database, binary: Path, tmp_path: Path,
    history: Writer, round: int,
) -> None:  # fmt: skip
    replicas = 1 if lose is Stage.fail_over_behind else 0
    with (
        Cluster(binary, replicas=replicas) as cluster,
        trading(database, cluster.url, tmp_path / "tasks", history, lease=LEASE) as trade,
    ):
        trade.until_delivered(20)
        lose(Stage(cluster, trade, history))
        trade.until_caught_up()
        trade.is_sound(FAULTS[lose], name)

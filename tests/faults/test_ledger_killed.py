"""With a ledger: processes and servers are killed between any two steps.

Each step has a named point. A process is held there, the victim is killed and started again, and
then the process may go on, if it lives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from expirebridge.embedded.server import EmbeddedServer
from tests.faults.shop.scene import Trade, trading
from tests.faults.stage import ROUNDS
from tests.faults.table import Fault
from tests.kit.databases import NAMES, SQLITE, Database, DatabaseServer
from tests.kit.history import Down, Forgot, Writer, now

RELAY = (
    "relay: read", "relay: number taken, not committed", "relay: number taken", "relay: carried",
    "relay: stamped, not committed", "relay: stamped",
)  # fmt: skip
BACK = (
    "back: read", "back: dirty read", "back: written, not committed", "back: written",
    "back: forgotten",
)  # fmt: skip
CONNECTION = ("gate: new connection", "gate: number taken")
GATE = (*CONNECTION, "gate: server read", "gate: ledger read", "claimed", "claimed, row asked")
HANDLER = (
    "handler: begun", "handler: effect written", "handler: completed, not committed",
    "handler: committed",
)  # fmt: skip
PRODUCER = (
    "producer: begun", "producer: order written", "producer: task written", "producer: committed",
    "producer: notified",
)  # fmt: skip
POINTS = (*RELAY, *BACK, *GATE, *HANDLER, *PRODUCER)
AT = f"at each of the {len(POINTS)} points between two steps of relay, write-back, gate, "
AT += "`complete_in` and the producer's transaction"
PROMISE = "orders and tasks are there together or not at all; each task runs, with one effect; "
PROMISE += "no finished task starts again"
"""What is promised whatever is killed."""
ITSELF = Fault(
    name="ledger: the process itself is killed",
    injected=f"`kill -9` of the listener or the producer, {AT}",
    promise=PROMISE,
)
SERVER = Fault(
    name="ledger: Redis is killed",
    injected=f"`kill -9` and restart of Redis, while a process is held {AT}",
    promise=PROMISE,
)
EMPTIED = Fault(
    name="ledger: Redis is killed and comes back empty",
    injected=f"the same without persistence, {AT}",
    promise=PROMISE,
)
DATABASE = Fault(
    name="ledger: the SQL database is killed",
    injected=f"`kill -9` and restart of PostgreSQL and MariaDB, while a process is held {AT}",
    promise=PROMISE,
)


@dataclass(frozen=True, slots=True)
class Stage:
    """What can be killed."""

    trade: Trade
    server: EmbeddedServer
    database: Database
    history: Writer

    def kill_itself(self, pid: int) -> None:
        """Kill the process that is at the point, and start another."""
        is_producer = pid not in self.trade.listeners
        self.trade.kill(pid)
        if is_producer:
            self.trade.start_producer()
        else:
            self.trade.start_listener()

    def kill_server(self, _: int) -> None:
        """Kill Redis, and start it with its data."""
        at = now()
        self.server.kill()
        self._start(at)

    def _start(self, at: int) -> None:
        self.server.start()
        self.history.write(Down(at=at, until=now()))

    def empty_server(self, _: int) -> None:
        """Kill Redis, and start it empty."""
        at = now()
        self.server.kill()
        self.history.write(Forgot(at=0, until=now()))
        self._start(at)

    def kill_database(self, _: int) -> None:
        """Kill the SQL database, and start it again."""
        assert isinstance(self.database, DatabaseServer)
        self.database.kill()
        self.database.start()

    def bring_to(self, point: str) -> None:
        """See to it that a process comes there which does not by itself."""
        if point in CONNECTION:
            with redis.Redis(port=self.server.port) as client:
                client.client_kill_filter(_type="normal", skipme=True)


VICTIMS: dict[Fault, Callable[[Stage, int], None]] = {
    ITSELF: Stage.kill_itself,
    SERVER: Stage.kill_server,
    EMPTIED: Stage.empty_server,
    DATABASE: Stage.kill_database,
}
IN_SHORT = {(ITSELF, SQLITE): 0, (DATABASE, "postgresql"): 2, (EMPTIED, "mariadb"): 4}
"""What runs where one round is asked for: with every sixth point, from this one on."""
CASES = [
    (fault, name) for fault in VICTIMS for name in NAMES
    if (fault, name) in IN_SHORT or (ROUNDS > 1 and (fault, name) != (DATABASE, SQLITE))
]  # fmt: skip


@pytest.mark.timeout(900)
@pytest.mark.parametrize("round", range(max(1, ROUNDS // 10)))
@pytest.mark.parametrize(("fault", "name"), CASES, ids=lambda part: getattr(part, "name", part))
def test_between_any_two_steps(
    fault: Fault, name: str, database: Database, binary: Path, tmp_path: Path, history: Writer,
    round: int,
) -> None:  # fmt: skip
    points = POINTS if ROUNDS > 1 else POINTS[IN_SHORT[fault, name] :: 6]
    options = {"appendonly": "no"} if fault is EMPTIED else {}
    with (
        EmbeddedServer(binary=binary, options=options) as server,
        trading(database, server.url, tmp_path / "tasks", history) as trade,
    ):
        stage = Stage(trade, server, database, history)
        for point in points:
            with trade.points.hold(point) as held:
                stage.bring_to(point)
                VICTIMS[fault](stage, held.until_reached())
            trade.until_caught_up()
        trade.is_sound(fault, name, times=len(points))
    assert trade.points.seen >= set(POINTS)

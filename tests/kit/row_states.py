"""Tasks of a ledger, brought into any state; what is asked of them, and what they are then."""

from typing import Any, Final

import redis
from sqlalchemy import Connection

from expirebridge import Bridge, Change, TaskExists
from expirebridge.ledger import Ledger, complete
from expirebridge.ledger.rows import RowVersion, SyncState
from expirebridge.settings import Settings
from expirebridge.task.calls import claiming
from expirebridge.task.calls.claiming import Settlement
from tests.kit.ledgers import LedgerHarness
from tests.kit.steps import server_ms, settle

HOUR: Final = 3_600_000
STATES: Final = (
    "not relayed yet", "waits", "runs", "runs, and is to run again", "runs, and is replaced",
    "runs, and has completed", "ended", "ended; written back", "restarted",
    "restarted after its end was written back",
)  # fmt: skip
RUNNING: Final = frozenset(state for state in STATES if state.startswith("runs"))


def ask(ledger: Ledger, session: Connection, wish: str, id: str) -> object:
    """Ask for something in a transaction; returns what was answered."""
    match wish:
        case "cancel":
            return int(ledger.cancel(session, id) is Change.CANCELLED)
        case "reschedule":
            return ledger.reschedule(session, id, "1h")
        case "erase":
            return ledger.erase(session, id)
    try:
        ledger.make_task(
            session, "mail.send", [2], "1h", id=id,
            if_exists="replace" if wish == "replace" else "reject",
        )  # fmt: skip
    except TaskExists:
        return "TaskExists"
    return 1


class Stage:
    """Tasks of a ledger, brought into any state, and what they are once all is at rest."""

    def __init__(self, harness: LedgerHarness, bridge: Bridge, client: redis.Redis) -> None:
        self.harness, self.bridge, self.client = harness, bridge, client
        self.store = harness.store
        self.ledger = Ledger(tables=harness.made)
        self.tokens: dict[str, str] = {}

    def ask(self, id: str, *wishes: str) -> list[object]:
        """Ask for all of these in one transaction."""
        with self.harness.engine.begin() as session:
            return [ask(self.ledger, session, wish, id) for wish in wishes]

    def bring(self, state: str, *ids: str) -> None:
        """Make tasks, in this state."""
        waits = state in {"not relayed yet", "waits"}
        for id in ids:
            self.harness.insert(id, 3 * HOUR if waits else 0)
        if state == "not relayed yet":
            return
        self.harness.settle_down()
        if waits:
            return
        self.claim(*ids)
        for id in ids:
            self._go_on(state, id)
        if (
            state in {"runs, and is to run again", "runs, and is replaced"}
            or "written back" in state
        ):
            self.harness.settle_down()
        for id in ids if "restarted" in state else ():
            self.bridge.run_now(id)

    def _go_on(self, state: str, id: str) -> None:
        match state:
            case "runs, and is to run again":
                self.bridge.reschedule(id, "2h")
            case "runs, and is replaced":
                with self.harness.engine.begin() as session:
                    self.ledger.make_task(
                        session, "mail.send", [7], "2h", id=id, if_exists="replace"
                    )
            case "runs, and has completed":
                self.complete(id)
        if state not in RUNNING:
            self.end(id, "succeeded")

    def claim(self, *ids: str) -> None:
        """Claim what is due: these tasks."""
        token = f"token-{len(self.tokens)}"
        gate = self.harness.numbers()[2]
        tasks = self.store.run(
            claiming.claim(token, Settings(), places=100, idle=True, gate=gate)
        ).tasks
        assert sorted(task.id for task in tasks) == sorted(ids)
        self.tokens |= dict.fromkeys(ids, token)

    def complete(self, id: str) -> None:
        """The handler commits its completion."""
        row = self.harness.row(id)
        with self.harness.engine.begin() as session:
            complete(
                session, self.harness.made, ledger="default", id=id, attempt=1,
                generation=row.generation, revision=row.revision,
            )  # fmt: skip

    def end(self, id: str, outcome: str) -> None:
        settle(self.store, Settlement(id, self.tokens[id], outcome, 2 * 3600))

    def look(self, id: str) -> str:
        """What a task is, once row and record agree. Fails if they do not."""
        row = self.harness.row(id)
        record: Any = self.client.hgetall(f"expirebridge:task:{id}")
        state = record.get(b"state", b"pending").decode()
        args = record[b"call"].partition(b"?")[2].decode()
        assert row.todo == SyncState.NOTHING
        assert not self.client.zcard("expirebridge:dirty")
        assert RowVersion.read(record[b"ledger"]) == (row.generation, row.revision)
        assert args == row.params
        assert row.status == {"succeeded": 10, "failed": 20, "cancelled": 30}.get(state, 1)
        due = self.client.zscore("expirebridge:pending", id)
        if state != "pending":
            assert due is None
            return f"{state} {args}"
        assert due is not None
        hours = max(due - server_ms(self.client), 0) / HOUR
        assert row.due == due
        return f"{state} {args} {hours:.0f}"

"""Random histories of a ledger and a server: relays that stall, a server that loses what it saw.

It does what model.py beside it does, with real rows, a real server and the real passes. When all is
quiet, every committed task that was not cancelled ran, what the ledger knew as done or cancelled
never started afterwards, and each row says what happened.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from expirebridge.errors import LedgerError
from expirebridge.ledger.relay import Pass
from expirebridge.ledger.tables import Status, Todo, Wanted
from expirebridge.settings import Settings
from expirebridge.store import calls
from expirebridge.store.calls import Settlement
from expirebridge.store.calls import ledger as ledger_calls
from tests.kit.ledgers import Books

SETTINGS = Settings()
PREFIX = "expirebridge"
KEPT = 40
Snapshot = dict[bytes, bytes]


class World:
    """One ledger, one server, two relays and two listeners."""

    def __init__(
        self, books: Books, client: Any, seed: int, out: frozenset[str] = frozenset()
    ) -> None:
        self.books, self.client, self.out = books, client, out
        self.store = books.store
        self.random = random.Random(seed)  # noqa: S311 - to be repeated
        self.relays = [self.relay(), self.relay()]
        self.past = [self.snapshot()]
        self.link = 0
        self.checked: dict[int, tuple[int, int]] = {}
        self.fenced: dict[int, int] = {}
        self.running: list[tuple[str, str]] = []
        self.made = 0
        self.starts: dict[str, int] = {}
        self.done_known: set[str] = set()
        self.cancel_known: set[str] = set()
        self.bad: list[str] = []

    # The server's past

    def snapshot(self) -> Snapshot:
        names = sorted(self.client.keys("*"))
        with self.client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.dump(name)
            return dict(zip(names, pipe.execute(), strict=True))

    def save(self) -> None:
        self.past = [*self.past, self.snapshot()][-KEPT:]

    def lose(self) -> None:
        back = self.random.randrange(1, min(len(self.past), 12) + 1)
        self.past = self.past[: len(self.past) - back + 1]
        self.client.flushdb()
        for name, value in self.past[-1].items():
            self.client.restore(name, 0, value)
        self.link += 1

    def empty(self) -> None:
        self.client.flushdb()
        self.save()
        self.link += 1

    # The application

    def insert(self) -> None:
        self.made += 1
        self.books.insert(f"t{self.made}")

    def want_cancel(self) -> None:
        ids = [row.id for row in self.rows() if row.status == 1 and row.wanted == Wanted.NONE.value]
        if ids:
            self.books.cancel(self.random.choice(ids))

    def rows(self) -> list[Any]:
        return self.books.all_rows()

    # The relays

    def relay(self) -> Iterator[None]:
        relay = self.books.relay()
        while True:
            for steps in (relay.carry(), relay.bring_back()):
                yield
                yield from self._steps(steps)

    def _steps(self, steps: Pass[int]) -> Iterator[None]:
        while True:
            try:
                step = next(steps)
            except StopIteration:
                break
            except LedgerError as error:
                self.bad.append(str(error))
                return
            self._learn()
            if step in {"carried", "forgotten"}:
                self.save()
            yield
        self._learn()

    def _learn(self) -> None:
        """What the ledger knows: done is what was written back, cancelled what was relayed."""
        for row in self.rows():
            if row.status == Status.SUCCEEDED:
                self.done_known.add(row.id)
            if row.wanted == Wanted.CANCELLED.value and row.todo == Todo.NOTHING:
                self.cancel_known.add(row.id)

    # The listeners

    def claim(self, who: int) -> None:
        gate = self._gate(who)
        if gate is None:
            return
        self._let_time_pass()
        token = f"{self.random.getrandbits(60):x}"
        call = calls.claim(token, SETTINGS, room=1, idle=True, gate=gate)
        for task in self.store.run(call).tasks:
            self._start(task.id, token)

    def _gate(self, who: int) -> int | None:
        if "gate" in self.out:
            return 0
        if who in self.checked and self.checked[who][0] == self.link:
            return self.checked[who][1]
        if "fence" not in self.out and self.fenced.get(who) != self.link:
            self.books.rows.fence()
            self.fenced[who] = self.link
        known = self.store.run(ledger_calls.read_ledger())
        numbers = self.books.rows.read()
        if numbers is None:
            return None
        if "mark" in self.out:
            numbers = numbers._replace(rebuilding=False)
        if not numbers.agrees_with(known):
            return None
        self.checked[who] = (self.link, known.number)
        return known.number

    def _let_time_pass(self) -> None:
        """What a rebuild put off by a lease is due now."""
        for id in self.client.zrangebyscore(f"{PREFIX}:pending", "(2", "+inf"):
            self._set_score("pending", id)
            self.client.delete(id + b":?mail.send?[1]")

    def _start(self, id: str, token: str) -> None:
        if "row" not in self.out and self.books.row(id) is None:
            self._settle(id, token, "cancelled")
            return
        self.starts[id] = self.starts.get(id, 0) + 1
        if id in self.done_known:
            self.bad.append(f"{id} started after it was known as done")
        if id in self.cancel_known:
            self.bad.append(f"{id} started after its cancel was relayed")
        self.running.append((id, token))
        self.save()

    def _settle(self, id: str, token: str, outcome: str) -> None:
        self.store.run(calls.settle([Settlement(id, token, outcome)], SETTINGS))
        self.save()

    def settle(self) -> None:
        if self.running:
            self._settle(*self._one_running(), "succeeded")

    def kill(self) -> None:
        if self.running:
            self._one_running()

    def _one_running(self) -> tuple[str, str]:
        return self.running.pop(self.random.randrange(len(self.running)))

    def lapse(self) -> None:
        """The lease of one whose handler was killed is over; the others beat."""
        alive = {token.encode() for _, token in self.running}
        for id in self.client.zrange(f"{PREFIX}:running", 0, -1):
            record = f"{PREFIX}:task:{id.decode()}"
            if self.client.hget(record, "token") not in alive:
                self.client.hdel(record, "lapses")
                self._set_score("running", id)
        self._sweep()

    def forget(self) -> None:
        """The time is over for which finished tasks are kept."""
        for state in ("succeeded", "cancelled"):
            for id in self.client.zrange(f"{PREFIX}:{state}", 0, -1):
                self._set_score(state, id)
        self._sweep()

    def _set_score(self, state: str, id: bytes) -> None:
        self.client.execute_command("ZADD", f"{PREFIX}:{state}", 1, id)

    def _sweep(self) -> None:
        self.store.run(calls.heartbeat("listener", SETTINGS.lease, [], code="0a"))
        self.store.run(calls.sweep(SETTINGS))
        self.save()

    def prune(self) -> None:
        ids = [row.id for row in self.rows() if row.status != 1 and row.todo == Todo.NOTHING]
        if ids:
            self.books.prune(self.random.choice(ids))

    def stall(self) -> None:
        self.relays.reverse()

    # All together

    def step(self) -> None:
        acts: list[tuple[Callable[[], object], float]] = [
            (self.insert, 3), (self.want_cancel, 1),
            (lambda: next(self.relays[0]), 12), (lambda: next(self.relays[1]), 4),
            (lambda: self.claim(0), 4), (lambda: self.claim(1), 4),
            (self.settle, 5), (self.lapse, 2), (self.forget, 2), (self.prune, 1),
            (self.lose, 0.5), (self.empty, 0.2), (self.kill, 0.7), (self.stall, 0.5),
        ]  # fmt: skip
        [act] = self.random.choices([act for act, _ in acts], [weight for _, weight in acts])
        act()

    def quiet(self, rounds: int = 20) -> None:
        rows = self.rows()
        for _ in range(rounds):
            for _ in range(14):
                next(self.relays[0])
                next(self.relays[1])
            for _ in range(4):
                self.claim(0)
                self.claim(1)
            while self.running:
                self.settle()
            self.lapse()
            rows = self.rows()
            if all(row.status != 1 and row.todo == Todo.NOTHING for row in rows):
                break
        for row in rows:
            if row.status == Status.WAITING:
                self.bad.append(f"{row.id} never ended")
            if row.status == Status.SUCCEEDED and not self.starts.get(row.id):
                self.bad.append(f"{row.id} done, but never ran")
            if row.status == Status.CANCELLED and row.wanted == Wanted.NONE.value:
                self.bad.append(f"{row.id} cancelled by nobody")

    def live(self, steps: int) -> list[str]:
        """Let so many things happen, then wait until all is quiet; returns what went wrong."""
        with suppress(StopIteration):
            for _ in range(steps):
                self.step()
                if self.bad:
                    return self.bad
            self.quiet()
        return self.bad

"""The settler: records outcomes in batches."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol, TypeVar

from expirebridge.errors import ScriptFailed, ServerError
from expirebridge.hooks import Hooks, NotMade
from expirebridge.listener.execution.attempt import FinishedAttempt
from expirebridge.listener.execution.capacity import Capacity, Wakeup
from expirebridge.listener.execution.in_flight import InFlight
from expirebridge.listener.execution.leases import Leases
from expirebridge.listener.execution.steps import after_error
from expirebridge.listener.session import SessionOwner
from expirebridge.settings import Settings
from expirebridge.task.calls import claiming
from expirebridge.task.calls.call import Command
from expirebridge.task.calls.claiming import Settled, Settlement
from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")

ROLE = "recording outcomes"
BATCH = 100
MOST_ENDED = 500
"""Most attempts of a partition that ended and are not recorded yet; they take no places."""
RETRY_PAUSE = 0.2

T = TypeVar("T")


class EndListener(Protocol):
    """Is notified of each attempt that has ended."""

    def hear_end(self, finished: FinishedAttempt) -> None:
        """Its outcome is recorded, or was refused."""
        ...


class Settler:
    """Sends the outcomes of a partition's attempts until each is recorded or refused.

    While the server is away they wait here; if their leases lapse meanwhile, they are refused. Up
    to `MOST_ENDED` of them take no places.
    """

    def __init__(
        self,
        consumer: SessionOwner,
        settings: Settings,
        *,
        leases: Leases,
        capacity: Capacity,
        in_flight: InFlight,
        wakeup: Wakeup,
        hooks: Hooks,
        ends: Sequence[EndListener] = (),
    ) -> None:
        self._consumer = consumer
        self._settings = settings
        self._leases = leases
        self._in_flight = in_flight
        self._capacity = capacity
        self._wakeup = wakeup
        self._hooks = hooks
        self._ends = ends
        self._waiting: asyncio.Queue[FinishedAttempt] = asyncio.Queue()
        self._is_awaited = False
        """True if the claimer waits for outcomes to be recorded."""
        self.claims = True
        """False while nothing is claimed, as the listener stops or is suspended."""

    def claim_limit(self) -> int:
        """The number of tasks that may be claimed; after 0 the claimer is woken for more."""
        limit = self._settings.concurrency + MOST_ENDED - len(self._leases)
        self._is_awaited = limit <= 0
        return max(limit, 0)

    def add(self, finished: FinishedAttempt) -> None:
        """Record the outcome with the next batch."""
        self._waiting.put_nowait(finished)

    def close(self, item: FinishedAttempt, settled: Settled = Settled.DONE) -> None:
        """Release an attempt whose outcome is recorded, here or elsewhere, or was refused."""
        self._hooks.emit(item.outcome.ended(item.attempt.task, item.duration, settled))
        if self._hooks and (then := item.outcome.settlement.then) is not None:
            from expirebridge.listener.execution.follow_up import told  # noqa: PLC0415 - rare

            now, done = self._consumer.session.server_clock.now(), settled is Settled.DONE
            self._hooks.emit(told(then, item.attempt.claimed, now=now, is_made=done))
        self._leases.drop(item.attempt.claimed.id, item.attempt.claimed.token)
        self._in_flight.discard(item.attempt)
        self._capacity.wake_next()
        if self._is_awaited:
            self._wakeup.set()
        for each in self._ends:
            each.hear_end(item)

    async def run(self) -> None:
        """Record outcomes as they come, for ever."""
        while True:
            await self._settle(await self._next_batch())

    async def _next_batch(self) -> list[FinishedAttempt]:
        batch = [await self._waiting.get()]
        while len(batch) < BATCH and not self._waiting.empty():
            batch.append(self._waiting.get_nowait())
        return batch

    async def _settle(self, batch: list[FinishedAttempt]) -> None:
        plain, followed = list[FinishedAttempt](), list[FinishedAttempt]()
        for item in batch:
            (plain if item.outcome.settlement.then is None else followed).append(item)
        if followed:
            await self._settle_then(followed)
        if not plain:
            return
        # The same call at each try: the tokens in it let the server recognise a resend.
        call = claiming.settle(
            _settlements_of(plain), self._settings, fingerprint=self._leases.fingerprint,
            claims=len(plain) if self.claims and self._capacity.is_open else 0,
        )  # fmt: skip
        try:
            codes = await self._send(call)
        except ScriptFailed as error:
            await self._settle_apart(plain, error)
            return
        for item, code in zip(plain, codes[: len(plain)], strict=True):
            self.close(item, code)
        if codes[-1] is Settled.GRANTED:
            self._wakeup.set()
            await asyncio.sleep(
                0
            )  # the claim is sent before the next batch: slots are filled sooner

    async def _settle_then(self, batch: list[FinishedAttempt]) -> None:
        """Record attempts that have follow-ups; one whose follow-up cannot be made has failed."""
        call = claiming.settle_then(
            _settlements_of(batch), self._settings, fingerprint=self._leases.fingerprint
        )
        try:
            results = await self._send(call)
        except ScriptFailed as error:
            await self._settle_apart(batch, error)
            return
        from expirebridge.task.operations.making import not_made  # noqa: PLC0415 - rare

        for item, result in zip(batch, results, strict=True):
            then, code = item.outcome.settlement.then, result.code
            if isinstance(code, Settled):
                self.close(item, code)
            elif then is not None and result.state is not None:
                taken = not_made(code, then.id, result.state, then.call)
                self._hooks.emit(NotMade(id=then.id, error=taken))
                outcome = after_error(item.attempt, taken)
                item.attempt.settlement = outcome.settlement
                self.add(item._replace(outcome=outcome))

    async def _settle_apart(self, batch: list[FinishedAttempt], error: ScriptFailed) -> None:
        """Settle each alone: one that the script cannot handle must not hold up the others."""
        if len(batch) == 1:
            id = batch[0].attempt.task.id
            logger.error(
                "task %s cannot be settled: %s", id, error,
                extra=event("unsettled", task=id, error=str(error)),
            )  # fmt: skip
            self.close(batch[0], Settled.REFUSED)
            return
        for item in batch:
            await self._settle([item])

    async def _send(self, call: Command[list[T]]) -> list[T]:
        while True:
            session = self._consumer.session
            try:
                codes = await session.store.run(call)
            except ScriptFailed:
                session.health.answered(ROLE)
                raise
            except ServerError as error:
                session.health.failed(ROLE, error)
                await asyncio.sleep(RETRY_PAUSE)
                self._wakeup.set()  # what a lost answer told of
            else:
                session.health.answered(ROLE)
                if session is self._consumer.session:
                    return codes


def _settlements_of(batch: list[FinishedAttempt]) -> list[Settlement]:
    return [item.outcome.settlement for item in batch]

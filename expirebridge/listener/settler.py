"""The settler: records outcomes in batches, as they come."""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from expirebridge.errors import ScriptFailed, ServerError
from expirebridge.hooks import End, Ended, Hooks
from expirebridge.listener.attempt import Attempt, Outcome
from expirebridge.listener.outage import Outage
from expirebridge.log_fields import event
from expirebridge.settings import Settings
from expirebridge.store import calls
from expirebridge.store.calls import Call, Settled
from expirebridge.store.store import AsyncStore

logger = logging.getLogger("expirebridge")

ROLE = "recording outcomes"
BATCH = 100
RETRY_PAUSE = 0.2


class Finished(NamedTuple):
    """An attempt that ended, and is to be settled."""

    attempt: Attempt
    outcome: Outcome
    duration: float


class Settler:
    """Sends outcomes to the server until each is recorded or refused.

    While the server is away they wait here; their leases may lapse meanwhile, and then they are
    refused. `on_settled` is told of each attempt when it is through.
    """

    def __init__(
        self,
        store: AsyncStore,
        settings: Settings,
        hooks: Hooks,
        outage: Outage,
        on_settled: Callable[[Attempt], None],
    ) -> None:
        self._store = store
        self._settings = settings
        self._hooks = hooks
        self._outage = outage
        self._on_settled = on_settled
        self._waiting: asyncio.Queue[Finished] = asyncio.Queue()

    def add(self, finished: Finished) -> None:
        """Settle this attempt soon."""
        self._waiting.put_nowait(finished)

    def tell(self, item: Finished, *, refused: bool = False) -> None:
        """Tell that an attempt is through: recorded, here or elsewhere, or refused."""
        outcome = item.outcome
        end, reason, brief = outcome.end, outcome.reason, outcome.brief
        if refused:
            end = End.REFUSED
            reason = brief = "its lease had lapsed, or its record is gone"
        self._hooks.emit(
            Ended(
                task=item.attempt.task,
                end=end,
                duration=item.duration,
                reason=reason,
                brief=brief,
                error=outcome.error,
            )
        )
        self._on_settled(item.attempt)

    async def run(self) -> None:
        """Settle what comes, for ever."""
        while True:
            await self._settle(await self._next_batch())

    async def _next_batch(self) -> list[Finished]:
        batch = [await self._waiting.get()]
        while len(batch) < BATCH and not self._waiting.empty():
            batch.append(self._waiting.get_nowait())
        return batch

    async def _settle(self, batch: list[Finished]) -> None:
        # One call for all tries: the token in it lets the server know a resend.
        call = calls.settle([item.outcome.settlement for item in batch], self._settings)
        try:
            codes = await self._send(call)
        except ScriptFailed as error:
            await self._settle_apart(batch, error)
            return
        for item, code in zip(batch, codes, strict=True):
            self.tell(item, refused=code is Settled.REFUSED)

    async def _settle_apart(self, batch: list[Finished], error: ScriptFailed) -> None:
        """Settle each by itself: one that the script cannot handle must not hold up the others."""
        if len(batch) == 1:
            id = batch[0].attempt.task.id
            logger.error(
                "task %s cannot be settled: %s", id, error,
                extra=event("unsettled", task=id, error=str(error)),
            )  # fmt: skip
            self.tell(batch[0], refused=True)
            return
        for item in batch:
            await self._settle([item])

    async def _send(self, call: Call[list[Settled]]) -> list[Settled]:
        while True:
            try:
                codes = await self._store.run(call)
            except ScriptFailed:
                self._outage.answered(ROLE)
                raise
            except ServerError as error:
                self._outage.failed(ROLE, error)
                await asyncio.sleep(RETRY_PAUSE)
            else:
                self._outage.answered(ROLE)
                return codes

"""The scanner: walks over a server's keys and finds what no event announced."""

import asyncio
import logging
import time
from collections import deque

from expirebridge.hooks import Gap, Hooks, Scanned
from expirebridge.listener.partition.consumer import PartitionConsumer
from expirebridge.listener.periodic_role import PeriodicRole
from expirebridge.listener.server.key_router import KeyRouter
from expirebridge.listener.session import SessionOwner
from expirebridge.listener.wakeups import ResyncRequests
from expirebridge.settings import Settings
from expirebridge.task.calls import pages as pages_commands
from expirebridge.task.calls import reconciling
from expirebridge.task.lateness import LateCause
from expirebridge.task.texts import event, plural

logger = logging.getLogger("expirebridge")

STEP = 100
"""About how many keys one step of a scan walks over: half a millisecond of the server's time."""
SHARE = 0.1
"""How much of a core a scan may take of the server after a gap: foreign tasks wait to be found."""
PATIENT_SHARE = 0.02
"""The same for a scan that was asked for: others follow for as long as its reason lasts."""


class Pacer:
    """Pauses between the steps of a scan, so that it takes no more than its share of a core.

    Steps are alike, and what one took holds the waiting for this listener's own turn and for other
    clients' commands. So the shortest of the last few is what the server works for each.
    """

    def __init__(self, share: float) -> None:
        self._pauses_a_step = 1 / share - 1
        self._took = deque[float](maxlen=5)
        self._began = time.monotonic()

    async def pause(self) -> None:
        """Pause after a step; the next one begins when this returns."""
        self._took.append(time.monotonic() - self._began)
        await asyncio.sleep(min(self._took) * self._pauses_a_step)
        self._began = time.monotonic()


class Scanner(PeriodicRole):
    """Scans the keys of a node, once for all its partitions, after each gap and when asked.

    A scan finds trigger keys without a record, records without a place in a state set, and timers
    that were edited while nobody listened. `node` names the node if there are several.
    """

    role = "the scan"
    retry_pause = 1.0

    def __init__(
        self,
        server: SessionOwner,
        key_router: KeyRouter,
        settings: Settings,
        *,
        resyncs: ResyncRequests,
        hooks: Hooks,
        node: str = "",
    ) -> None:
        super().__init__(server)
        self._key_router = key_router
        self._settings = settings
        self._resyncs = resyncs
        self._hooks = hooks
        self._node = node

    async def run_once(self) -> float:
        """Wait for a gap, or until asked, and scan; no pause is needed. Raises a ServerError."""
        reasons = await self._resyncs.take()
        if reasons:
            self._hooks.emit(Gap(reason=", ".join(reasons), node=self._node))
        for consumer in self._key_router.consumers:
            consumer.wakeup.set()
            if reasons:
                consumer.hindrances.begin(LateCause.EVENT_GAP)
        self._report(await self._scan_all(SHARE if reasons else PATIENT_SHARE))
        return 0.0

    def after_failure(self) -> None:
        """Ask for another scan."""
        self._resyncs.request("the last scan failed")

    def _report(self, adopted: int) -> None:
        self._hooks.emit(Scanned(adopted=adopted, node=self._node))
        for consumer in self._key_router.consumers:
            consumer.hindrances.end(LateCause.EVENT_GAP)
        if adopted:
            logger.info(
                "a scan adopted %s that other clients had set",
                plural(adopted, "task", "tasks"),
                extra=event("adopted", count=adopted),
            )  # fmt: skip

    async def _scan_all(self, share: float) -> int:
        """Walk over the server's keys once, with this share of a core of the server.

        Returns how many tasks were adopted.
        """
        consumers = self._key_router.consumers
        if len(consumers) == 1 and consumers[0].store.database.partitions == 1:
            return await self._scan(consumers[0], share)
        return await self._walk(share)

    async def _walk(self, share: float) -> int:
        """One walk for all consumers: each looks over its own keys."""
        key_router, store = self._key_router, self._owner.session.store
        cursor, adopted, pacer = "0", 0, Pacer(share)
        while True:
            cursor, names = await store.run(reconciling.walk(cursor, STEP))
            own: dict[PartitionConsumer, list[bytes]] = {}
            for name in names:
                if consumer := key_router.find(name):
                    own.setdefault(consumer, []).append(name)
                else:
                    key_router.notice_misplaced(name)
            for consumer, theirs in own.items():
                step = await consumer.store.run(reconciling.check_keys(theirs, self._settings))
                adopted += await self._take(consumer, step)
            if cursor == pages_commands.BEGINNING:
                return adopted
            await pacer.pause()

    async def _scan(self, consumer: PartitionConsumer, share: float) -> int:
        pages = pages_commands.Pages(lambda cursor: reconciling.scan(cursor, STEP, self._settings))
        adopted, pacer = 0, Pacer(share)
        while scanned := await consumer.store.run(pages.next()):
            adopted += await self._take(consumer, scanned)
            if not pages.over:
                await pacer.pause()
        return adopted

    async def _take(self, consumer: PartitionConsumer, step: reconciling.ScanStep) -> int:
        """Take what a step found; returns how many tasks were adopted."""
        for id in step.repaired:
            logger.error(
                "task %s was in no state set; it has a place again", id,
                extra=event("stray", task=id),
            )  # fmt: skip
        return await consumer.reconciler.look_at(step.found)

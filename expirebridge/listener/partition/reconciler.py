"""Reconciles keys with records: adopts tasks that other clients set, and follows edits.

An event, or a scan, only names a key. Names are collected here for a moment and looked at together.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import islice, takewhile
from typing import Protocol

from expirebridge.errors import ScriptFailed, ServerError
from expirebridge.listener.execution.capacity import Wakeup
from expirebridge.listener.partition.due_timer import DueTimer
from expirebridge.listener.partition.misplaced_keys import MisplacedKeys
from expirebridge.listener.session import PartitionSession, SessionOwner
from expirebridge.settings import Settings
from expirebridge.task.calls import reconciling
from expirebridge.task.calls.call import CHUNK, Steps, chunks
from expirebridge.task.calls.reconciling import Adoption, EventKind, KeyEvent
from expirebridge.task.keys import IN_RECORD, InvalidKey, id_for_key, parse_key
from expirebridge.task.texts import event, plural

# Key events, and the keys that need a look.

News = tuple[bytes, EventKind]
"""An event: a key's name, and what happened to it."""


def sift(news: Collection[News], home: str = "") -> Steps[list[KeyEvent]]:
    """Leave out what records explain, by far the most, before names are read."""
    unexplained: set[News] = set()
    for heard in EventKind:
        if names := [name for name, what in news if what is heard]:
            found = yield from reconciling.find_unexplained(names, heard)
            unexplained.update((name, heard) for name in found)
    key_events = [
        key_event_of(name, heard, home) for name, heard in news if (name, heard) in unexplained
    ]
    return [key_event for key_event in key_events if key_event]


def key_event_of(name: bytes, heard: EventKind, home: str = "") -> KeyEvent | None:
    """The key event of a key's name; None if the key is not of our form.

    `home` is that of its partition, for the id of a key that cannot be a task.
    """
    try:
        key = parse_key(name, home)
        if key is not None and key.args == IN_RECORD:
            # Arguments in a record: of our own tasks only. Without a record, they are lost.
            return KeyEvent(name, key.id, key.call, heard, "its arguments, '@', are in no record")
    except InvalidKey as error:
        return KeyEvent.of_invalid(name, error, heard)
    return KeyEvent.of(key, name, heard) if key else None


logger = logging.getLogger("expirebridge")

ROLE = "looking at keys that were heard of"
AT_ONCE = 2
"""Chunks that are on their way together, when many names wait: a claim waits behind them."""
MAX_WAITING = 100_000
"""Keys that wait to be looked at, at most: a bound on memory."""
STALE_AFTER = 8.0
"""Seconds after which an event that still waits is no longer believed. It says that a key is gone;
only the record says whose key it was: it is kept for 15 s after the task succeeded, and
an event may be 5 s old when it is heard."""
RETRY_PAUSE = 0.2
ECHO_WAIT = 0.1
"""Seconds that a key's end waits for this listener's own claim to explain it. No task waits for
that: the timer of another client's task is known since it was heard to be set."""
LONGEST_ECHO_WAIT = 4.0
"""The same while more is due than this listener could claim."""


class RowFinder(Protocol):
    """Asks a ledger for the rows of tasks whose records the server does not have."""

    async def with_rows(self, ids: Collection[str]) -> set[str]:
        """Those of these tasks that have a row."""
        ...

    async def recall(self, ids: Collection[str]) -> None:
        """Have tasks relayed again whose records the server lost."""
        ...


class KeyReconciler:
    """Reconciles keys that an event or a scan named with their records."""

    def __init__(
        self,
        consumer: SessionOwner,
        settings: Settings,
        row_check: RowFinder | None,
        misplaced: MisplacedKeys,
        *,
        wakeup: Wakeup,
        due_timer: DueTimer,
    ) -> None:
        self._consumer = consumer
        self._settings = settings
        self._wakeup = wakeup
        self._due_timer = due_timer
        self._misplaced = misplaced
        self._row_check = row_check
        self._waiting: dict[News, float] = {}
        """Events that wait, in order and once each, and since when; names only, since very many
        may wait."""
        self._gone: dict[EventKind, dict[bytes, float]] = {
            EventKind.EXPIRED: {},
            EventKind.DELETED: {},
        }
        """Keys that expired, or were deleted, which a claim on its way may explain."""
        self._has_news = asyncio.Event()

    def hear(self, name: bytes, heard: EventKind) -> bool:
        """Queue a key that an event named; keys of another form are ignored.

        Returns False, and forgets it, if too many wait: only a scan finds it then.
        """
        if len(self._waiting) + sum(map(len, self._gone.values())) >= MAX_WAITING:
            return False
        if b":?" not in name:
            return True
        if gone := self._gone.get(heard):
            gone.setdefault(name, time.monotonic())
        elif gone is not None:
            gone[name] = time.monotonic()
            self._look_later(heard)
        else:
            self._disbelieve_ends(name)
            self._waiting.setdefault((name, heard), time.monotonic())
            self._has_news.set()
        return True

    def _disbelieve_ends(self, name: bytes) -> None:
        """Forget the ends of a key that was set since: they are not those of its present timer."""
        for heard, gone in self._gone.items():
            gone.pop(name, None)
            self._waiting.pop((name, heard), None)

    def forget_all(self) -> None:
        """Forget what was heard of, as on a server that is the primary no longer."""
        self._waiting.clear()
        for gone in self._gone.values():
            gone.clear()

    def explain(self, name: bytes) -> bool:
        """Drop the end of this key, whose task was claimed here; return True if it was queued."""
        expired = self._gone[EventKind.EXPIRED].pop(name, None)
        deleted = self._gone[EventKind.DELETED].pop(name, None)
        return expired is not None or deleted is not None

    def _look_later(self, heard: EventKind) -> None:
        asyncio.get_running_loop().call_later(ECHO_WAIT, self._believe, heard)

    def _believe(self, heard: EventKind) -> None:
        """Look at the keys whose end no claim has explained in time."""
        gone = self._gone[heard]
        # A deletion is an order; that a key expired the due timer has noticed as well.
        wait = (
            LONGEST_ECHO_WAIT
            if heard is EventKind.EXPIRED and self._due_timer.behind
            else ECHO_WAIT
        )
        until = time.monotonic() - wait
        ripe = list(takewhile(lambda item: item[1] <= until, gone.items()))
        for name, since in ripe:
            del gone[name]
            self._waiting.setdefault((name, heard), since)
        if ripe:
            self._has_news.set()
            if heard is EventKind.EXPIRED:
                self._wakeup.set()
        if gone:
            self._look_later(heard)

    async def run(self) -> None:
        """Look at what was heard of, for ever."""
        while True:
            await self._has_news.wait()
            news = self._take()
            async with asyncio.TaskGroup() as group:
                for chunk in chunks(news.items()):
                    group.create_task(self._look_at(dict(chunk)))

    def _take(self) -> dict[News, float]:
        """Take what waits, as much as may be on its way at a time, and since when."""
        oldest = time.monotonic() - STALE_AFTER
        news, stale = dict[News, float](), 0
        for name, heard in list(islice(self._waiting, CHUNK * AT_ONCE)):
            since = self._waiting.pop((name, heard))
            if since < oldest and heard is not EventKind.LIVE:
                stale += 1
            else:
                news[name, heard] = since
        if not self._waiting:
            self._has_news.clear()
        if stale:
            self._consumer.session.resyncs.request("events waited for too long to be believed")
            logger.warning(
                "%s dropped: there was no time to look at all",
                plural(stale, "event was", "events were"),
                extra=event("events dropped", count=stale),
            )  # fmt: skip
        return news

    async def look_at(self, names: list[bytes]) -> int:
        """Look at keys that a scan found, now; return how many were adopted."""
        home = self._consumer.session.store.database.home
        key_events = [
            key_event for name in names if (key_event := key_event_of(name, EventKind.LIVE, home))
        ]
        codes: list[Adoption] = []
        for chunk in chunks(self._in_place(key_events)):
            codes += await self._adopt(chunk, self._consumer.session)
        return codes.count(Adoption.ADOPTED)

    async def _look_at(self, news: dict[News, float]) -> None:
        """Look at these; they wait again, for as long as they are believed, if nobody answered."""
        session = self._consumer.session
        try:
            found = await session.store.run(sift(news, session.store.database.home))
            key_events = await self._compared(self._in_place(found))
            if await self._are_deletions_true(key_events, session):
                await self._adopt_all(key_events, session)
            else:
                news = {
                    each: since for each, since in news.items() if each[1] is not EventKind.DELETED
                }
                await self._adopt_all(
                    [one for one in key_events if one.heard is not EventKind.DELETED], session
                )
        except ServerError as error:
            session.health.failed(ROLE, error)
            await asyncio.sleep(RETRY_PAUSE)
            if session is not self._consumer.session:
                return  # it was heard on another server
            for (name, heard), since in news.items():
                if heard is EventKind.LIVE or (name, EventKind.LIVE) not in self._waiting:
                    self._waiting.setdefault((name, heard), since)
            self._has_news.set()
        else:
            session.health.answered(ROLE)

    def _in_place(self, key_events: list[KeyEvent]) -> list[KeyEvent]:
        """Those that belong to this partition; the others are named, and not run."""
        database = self._consumer.session.store.database
        if database.partitions == 1:
            return key_events
        owned = []
        for key_event in key_events:
            if database.owns(key_event.id):
                owned.append(key_event)
            else:
                self._misplaced.hear(key_event.name)
        return owned

    async def _compared(self, key_events: list[KeyEvent]) -> list[KeyEvent]:
        """Say which of these keys, that have expired, are of tasks of the ledger.

        Without a record such an expiry is the echo of a task that this server has lost since: its
        row says what became of it.
        """
        expired = {key_event.id for key_event in key_events if key_event.heard is EventKind.EXPIRED}
        if self._row_check is None or not expired:
            return key_events
        known = await self._row_check.with_rows(expired)
        return [
            replace(key_event, heard=EventKind.EXPIRED_IN_LEDGER)
            if key_event.heard is EventKind.EXPIRED and key_event.id in known else key_event
            for key_event in key_events
        ]  # fmt: skip

    async def _are_deletions_true(
        self, key_events: list[KeyEvent], session: PartitionSession
    ) -> bool:
        """True if keys that were reported as deleted really were.

        A demoted primary also reports as deleted what expires on its primary. So the server is
        asked for its role after the reports came.
        """
        deleted = sum(key_event.heard is EventKind.DELETED for key_event in key_events)
        if (
            not deleted
            or not session.may_be_demoted
            or await session.store.run(reconciling.is_primary())
        ):
            return True
        session.resyncs.request("the server that reported deletions is a replica now")
        logger.warning(
            "%s not believed: the server that reported this is a replica now",
            plural(deleted, "deletion was", "deletions were"),
            extra=event("deletions ignored", count=deleted),
        )  # fmt: skip
        return False

    async def _adopt_all(self, key_events: list[KeyEvent], session: PartitionSession) -> None:
        """Adopt these; one that the script cannot handle must not hold up the others."""
        if not key_events:
            return
        try:
            await self._adopt(key_events, session)
        except ScriptFailed as error:
            await self._adopt_each(key_events, error, session)

    async def _adopt_each(
        self, key_events: list[KeyEvent], error: ScriptFailed, session: PartitionSession
    ) -> None:
        if len(key_events) == 1:
            logger.error(
                "a foreign key, of task %s, cannot be looked at: %s", key_events[0].id, error,
                extra=event("unreadable key", task=key_events[0].id, error=str(error)),
            )  # fmt: skip
            return
        for key_event in key_events:
            await self._adopt_all([key_event], session)

    async def _adopt(self, key_events: list[KeyEvent], session: PartitionSession) -> list[Adoption]:
        codes = await session.store.run(reconciling.adopt(key_events, self._settings))
        for key_event, code in zip(key_events, codes, strict=True):
            if code is Adoption.INVALID:
                logger.error(
                    "a foreign key cannot be a task, and is kept as failed task %s: %s",
                    key_event.id,
                    key_event.invalid,
                    extra=event("invalid key", task=key_event.id, reason=key_event.invalid),
                )
            elif code is Adoption.TAKEN:
                logger.error(
                    "a foreign key of task %s is neither run nor kept%s: the id made "
                    "from its name, %s, belongs to another task; set the key with another id",
                    key_event.id,
                    f" ({key_event.invalid})" if key_event.invalid else "",
                    id_for_key(key_event.name, session.store.database.home),
                    extra=event("id taken", task=key_event.id, reason=key_event.invalid),
                )
        await self._recall(
            key_event.id for key_event, code in zip(key_events, codes, strict=True)
            if key_event.heard is EventKind.EXPIRED_IN_LEDGER and code is Adoption.NOTHING
        )  # fmt: skip
        return codes

    async def _recall(self, ids: Iterable[str]) -> None:
        lost = list(ids)
        if self._row_check is not None and lost:
            await self._row_check.recall(lost)

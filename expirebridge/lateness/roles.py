"""What a listener does for lateness: it records durations, and reports what was late."""

import logging
import time
from collections import Counter
from collections.abc import Coroutine, Mapping
from typing import Any

from expirebridge.hooks import Claimed, Event, Gap, Misfired, Scanned, Started
from expirebridge.lateness.calls import Took, note_durations
from expirebridge.listener.execution.attempt import FinishedAttempt
from expirebridge.listener.execution.capacity import Wakeup
from expirebridge.listener.partition.capability_roles import (
    CapabilityRoles,
    Partition,
    PartitionRoles,
)
from expirebridge.listener.periodic_role import PeriodicRole
from expirebridge.listener.session import SessionOwner
from expirebridge.settings import Settings
from expirebridge.task.durations import human
from expirebridge.task.lateness import LATE, LateCause
from expirebridge.task.task import Task
from expirebridge.task.texts import event as fields_of

logger = logging.getLogger("expirebridge")

# The log line after each gap: how many tasks were late, and by how much.

FORGET = 5.0
"""Seconds for which late tasks are remembered without a gap: it may be noticed after them."""


class LateReport:
    """Hook that logs, after each gap, which tasks were late.

    It waits until the scan that follows a gap is done, and the late tasks are behind: a claim found
    nothing, or a task that is on time started; what is due first is claimed first. Neither may come
    by itself for long, so it wakes the claimers after the scan, and after what was late since.
    """

    def __init__(self) -> None:
        self._wakeups = list[Wakeup]()
        self._reasons: list[str] = []
        self._unscanned = set[str]()
        """The nodes whose scan is still to come."""
        self._adopted = 0
        self._told = False
        self._clear()

    def _clear(self) -> None:
        self._functions: Counter[str] = Counter()
        self._causes: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._longest = 0.0
        self._latest = 0.0

    def wake_at(self, wakeup: Wakeup) -> None:
        """Ask this claimer, too, for one more look."""
        self._wakeups.append(wakeup)

    def hear(self, event: Event) -> None:
        """Count an event; this is the hook."""
        match event:
            case Gap(reason=reason, node=node):
                self._forget_old()
                self._reasons.append(reason)
                self._unscanned.add(node)
            case Scanned(adopted=adopted, node=node):
                self._unscanned.discard(node)
                self._adopted += adopted
                self._ask_for_a_look()
            case Started(task=task, lateness=lateness, cause=cause) if lateness > LATE:
                self._add(task, lateness, cause, "run")
            case Misfired(task=task, lateness=lateness, cause=cause, done=done):
                self._add(task, lateness, cause, done)
            case Claimed(count=0) | Started():
                self._notice_caught_up()

    def _add(self, task: Task, lateness: float, cause: LateCause | None, done: str) -> None:
        self._functions[task.func] += 1
        if cause is not None:  # there is none if it may be so late
            self._causes[cause.value] += 1
        self._done[done] += 1
        self._longest = max(self._longest, lateness)
        self._latest = time.monotonic()
        self._ask_for_a_look()

    def _ask_for_a_look(self) -> None:
        if self._reasons and not self._unscanned:
            for wakeup in self._wakeups:
                wakeup.set()

    def _notice_caught_up(self) -> None:
        if self._reasons and not self._unscanned:
            self._tell()
            self._reasons.clear()
            self._adopted = 0
            self._clear()
        else:
            self._forget_old()

    def _forget_old(self) -> None:
        """Forget what was late without a gap."""
        if self._latest and not self._reasons and time.monotonic() - self._latest > FORGET:
            self._clear()

    def _tell(self) -> None:
        count = self._functions.total()
        text = "nothing was late"
        if count:
            why = f"; why: {_listed(self._causes)}" if self._causes else ""
            text = (
                f"{count} late, by up to {human(self._longest)} ({_listed(self._functions)})"
                f"{why}; {_listed(self._done)}"
            )
        # To a listener that starts, its start is a gap: with nothing found, that is no news.
        is_news = self._told or count or self._adopted
        self._told = True
        logger.log(
            logging.INFO if is_news else logging.DEBUG,
            "after the gap: %s; the scan adopted %d", text, self._adopted,
            extra=fields_of(
                "late", reason=", ".join(dict.fromkeys(self._reasons)), count=count,
                longest_ms=round(self._longest * 1000, 1), functions=dict(self._functions),
                causes=dict(self._causes), done=dict(self._done), adopted=self._adopted,
            ),
        )  # fmt: skip


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.most_common())


# The durations of handlers.


class DurationRecorder(PeriodicRole):
    """Records how long the handlers of each function took, for `scale`.

    It adds up what ended, and sends the sums every ten seconds, if there are any. Sums that the
    server does not take are dropped.
    """

    role = "the durations"
    retry_pause = 10.0

    def __init__(self, owner: SessionOwner) -> None:
        super().__init__(owner)
        self._sums: dict[str, tuple[int, float]] = {}

    def add(self, func: str, seconds: float) -> None:
        """Count an attempt that ended."""
        count, before = self._sums.get(func, (0, 0.0))
        self._sums[func] = count + 1, before + seconds

    async def run_once(self) -> float:
        """Send the sums; returns the seconds to pause. Raises a ServerError."""
        if self._sums:
            took = {func: Took(count, seconds) for func, (count, seconds) in self._sums.items()}
            self._sums = {}
            await self._owner.session.store.run(note_durations(took))
        return self.retry_pause


class LatenessRoles(PartitionRoles):
    """Records how long the attempts of a partition took."""

    hears_ends = True

    def __init__(self, partition: Partition) -> None:
        self.duration_recorder = DurationRecorder(partition)

    def roles(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """The coroutine of its role, by its name."""
        return {"durations": self.duration_recorder.run()}

    def hear_end(self, finished: FinishedAttempt) -> None:
        """Count an attempt whose handler was called."""
        if finished.duration:
            self.duration_recorder.add(finished.attempt.task.func, finished.duration)


def roles_of(_settings: Settings) -> CapabilityRoles:
    """Record durations, and log after each gap what was late."""
    report = LateReport()

    def in_partition(partition: Partition) -> LatenessRoles:
        report.wake_at(partition.wakeup)
        return LatenessRoles(partition)

    return CapabilityRoles(in_partition=in_partition, hook=report.hear)

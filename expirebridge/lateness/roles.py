"""What a listener does for lateness: it records durations, and reports what was late."""

from collections.abc import Coroutine, Mapping
from typing import Any

from expirebridge.lateness.calls import Took, note_durations
from expirebridge.lateness.report import LateReport
from expirebridge.listener.execution.attempt import FinishedAttempt
from expirebridge.listener.partition.capability_roles import (
    CapabilityRoles,
    Partition,
    PartitionRoles,
)
from expirebridge.listener.periodic_role import PeriodicRole
from expirebridge.listener.session import SessionOwner
from expirebridge.settings import Settings


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

"""The state of a row of the ledger, for modules that work without SQLAlchemy."""

from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from expirebridge.task.task import State

LARGEST_COUNT: Final = 2**31 - 1
"""The largest revision, or number of attempts, for which a row has room."""
LARGEST_TIME: Final = 2**53 - 1
"""The largest time in ms, or generation: Lua reads larger numbers inexactly."""


class Status(IntEnum):
    """The status of a task in its row. Only the relay and `complete_in` write it."""

    WAITING = 1  # or running: only Redis has that
    SUCCEEDED = 10
    FAILED = 20
    CANCELLED = 30


FINAL_STATES: Final = {
    Status.SUCCEEDED: State.SUCCEEDED,
    Status.FAILED: State.FAILED,
    Status.CANCELLED: State.CANCELLED,
}
"""The state of a task in Redis that has this status in its row."""


class DesiredState(StrEnum):
    """The state that the application wants for a task, if it is not to run."""

    NONE = "none"
    CANCELLED = "cancelled"


class SyncState(IntEnum):
    """The work that is left for the relay to bring a row to Redis."""

    NOTHING = 0
    RELAY = 1  # the row is new, or the application changed it
    REBUILD = 2  # Redis lost it; no task of the ledger is claimed meanwhile


class RowVersion(NamedTuple):
    """The version of a row, which the record of its task in Redis names too."""

    generation: int
    """The time at which the task of this id was made; one more each time that Redis restarts it."""
    revision: int
    """Raised by each change that the application makes."""

    def __str__(self) -> str:
        return f"{self.generation} {self.revision}"

    @classmethod
    def read(cls, raw: bytes | None) -> "RowVersion | None":
        """Read that of a record; None if it names none that a row can have."""
        parts = (raw or b"").split()
        if len(parts) != 2 or not all(part.isdigit() and len(part) < 20 for part in parts):
            return None
        version = cls(int(parts[0]), int(parts[1]))
        is_legal = version.generation <= LARGEST_TIME and version.revision <= LARGEST_COUNT
        return version if is_legal else None


class RowState(NamedTuple):
    """The state of the row of a claimed task."""

    version: RowVersion
    status: Status
    wanted: DesiredState
    message: str | None

"""What capabilities do in a listener: each has a module `roles`, which says it for itself."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from expirebridge.capabilities import given
from expirebridge.handlers import Registry
from expirebridge.hooks import Hook, Hooks
from expirebridge.listener.execution.attempt import FinishedAttempt, RowLookup
from expirebridge.listener.execution.capacity import Wakeup
from expirebridge.listener.execution.leases import HandlersDeclaration
from expirebridge.listener.partition.backlog import ClaimGate
from expirebridge.listener.partition.reconciler import RowFinder
from expirebridge.listener.session import Membership, SessionOwner
from expirebridge.settings import Settings
from expirebridge.task.calls.call import Command
from expirebridge.task.calls.claiming import HeartbeatReply
from expirebridge.task.calls.reconciling import Sweep


class Partition(SessionOwner, Protocol):
    """The consumer of a partition, as capabilities use it."""

    name: str
    """That of its listener."""
    settings: Settings
    registry: Registry
    hooks: Hooks
    wakeup: Wakeup
    membership: Membership


class RowSource(RowLookup, RowFinder, Protocol):
    """Asks a ledger for rows, for attempts and for the reconciler."""


class PartitionRoles:
    """What a capability does in one partition; it overrides what it needs.

    All is called on the event loop.
    """

    gate: ClaimGate | None = None
    """Lets tasks of a ledger be claimed."""
    rows: RowSource | None = None
    """Finds the rows of tasks of a ledger."""
    declaration: HandlersDeclaration | None = None
    """What a listener declares of the limits of its handlers, before it claims."""
    marks: Command[None] | None = None
    """Declares other marks of its handlers, when it starts, and in a database that was emptied."""
    words: Sequence[str] = ()
    """What heartbeats say of its settings, for checks that compare those of all listeners: each
    without a space, and with a beginning of its own."""
    hears_ends = False
    """True if `hear_end` does something: it is called for each task."""

    def roles(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """The coroutine of each role that it adds, by its name."""
        return {}

    def hear_heartbeat(self, reply: HeartbeatReply) -> None:
        """Take the answer to a heartbeat."""

    def hear_emptied(self) -> None:
        """The database was emptied."""

    def hear_commit(self, ids: Sequence[str]) -> None:
        """Rows of a ledger were committed; `ids` are those of new ones, if they are known."""

    def hear_end(self, finished: FinishedAttempt) -> None:
        """An attempt has ended, and its outcome is recorded, or was refused."""

    async def after_sweep(self, sweep: Sweep) -> None:
        """Do what a sweep left to it. Raises a ServerError."""


def marks_of(parts: Iterable[PartitionRoles]) -> list[Command[None]]:
    """What declares the marks of its handlers."""
    return [each.marks for each in parts if each.marks is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityRoles:
    """What a capability does in a listener."""

    in_partition: Callable[[Partition], PartitionRoles]
    """Is called once for each partition."""
    hook: Hook | None = None
    close: Callable[[], None] | None = None
    """Is called at the end, in a thread."""


class GivesRoles(Protocol):
    """A module of a capability."""

    def roles_of(self, settings: Settings, /) -> CapabilityRoles | None:
        """What it does with these settings; None: nothing. Raises InvalidSetting."""
        ...


def capability_roles(settings: Settings) -> list[CapabilityRoles]:
    """What the capabilities do in a listener with these settings. Raises InvalidSetting."""
    modules = cast("tuple[GivesRoles, ...]", given("roles"))
    return [roles for module in modules if (roles := module.roles_of(settings)) is not None]

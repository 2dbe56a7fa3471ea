"""Every error that expirebridge raises.

ExpirebridgeError
├── InvalidTask          a producer asked for something invalid (also a ValueError)
├── InvalidSetting       a setting has an invalid value (also a ValueError)
├── TaskExists           the id belongs to a task that has not finished
│   └── TaskDiffers          to be extended, but its function or arguments are others
├── GroupError           a group cannot be used so
│   ├── GroupNotFound        there is no group of that name
│   ├── GroupClosed          it takes no more members
│   ├── GroupIncomplete      it lacks members that it should have: it is not closed
│   └── GroupDiffers         it was made with other tasks, another follow-up or on_failed
├── SeriesDeclared       the id belongs to a series that handlers declare
├── HandlersError        the handlers' folder cannot be used
├── EmbeddedServerError  the embedded server did not start
├── ListenerStuck        a handler did not end; the listener gave up
├── LedgerError          the SQL database that holds the ledger refused a call
│   ├── LedgerUnreachable    no answer: no connection, or a broken one
│   ├── LedgerUnsuitable     its tables are missing, older or newer, or are another database's
│   └── CompletionRefused    the task is no longer this attempt's to complete
└── ServerError          the Redis server
    ├── ServerUnreachable    no answer: no connection, or a broken one
    │   └── PartlyDone           several partitions were concerned; some did not answer
    ├── SlotUnserved         no node of the cluster takes the command: nothing was written
    ├── SlotMoving           a slot is moved between nodes key by key: nothing was written
    ├── ServerReadOnly       a replica: it accepts no writes
    ├── NotPermitted         the login lacks a right
    ├── ServerOutOfMemory    `maxmemory` is reached: nothing was written
    ├── ServerUnsuitable     lacks something that expirebridge needs
    ├── ScriptFailed         a script found data that it could not handle
    ├── FormatTooNew         a newer expirebridge wrote this database
    └── PartitionsDiffer     the database has another number of partitions

`expirebridge.task.policies` has the exceptions that a handler raises to control its own task:
`Retry`, `Snooze`, `Busy`, `Discard`.
"""

from collections.abc import Sequence
from typing import Any

from expirebridge.task.texts import plural


class ExpirebridgeError(Exception):
    """The base of every error that expirebridge raises."""


class InvalidTask(ExpirebridgeError, ValueError):
    """A task was refused before anything was sent; the message says what is wrong."""


class InvalidSetting(ExpirebridgeError, ValueError):
    """A setting has an invalid value; the message names it.

    With `setting`, the first argument is just what is wrong with its `value`.
    """

    def __init__(self, fault: str, *, setting: str = "", value: object = None) -> None:
        super().__init__(f"{setting}={value!r}: {fault}" if setting else fault)
        self.fault, self.setting, self.value = fault, setting, value


class TaskExists(ExpirebridgeError):
    """The id belongs to a task that is pending, paused or running; nothing was changed.

    Or it is that of a ledger's task, which is changed in a transaction.
    """

    def __init__(self, id: str, state: str, *, in_ledger: bool = False) -> None:
        super().__init__(
            f"task {id!r} is {state}, and of a ledger: replace or move it there, by "
            "ledger.make_task(session, ..., if_exists='replace') or ledger.reschedule, or choose "
            "another id"
            if in_ledger
            else f"task {id!r} exists and is {state}: pass if_exists='keep', 'replace' or "
            "'extend', or choose another id"
        )
        self.id = id
        self.state = state


class TaskDiffers(TaskExists):
    """The task to extend has another function, other arguments, or another `on_signal`."""

    def __init__(self, id: str, state: str, call: str) -> None:
        super().__init__(id, state)
        self.args = (
            f"task {id!r} is {state}, but is {call}: cancel it, or replace it: make_task(..., "
            "if_exists='replace')",
        )


class GroupError(ExpirebridgeError):
    """A group cannot be used so; nothing was changed."""

    def __init__(self, name: str, fault: str) -> None:
        super().__init__(f"group {name!r} {fault}")
        self.name = name


class GroupNotFound(GroupError):
    """There is no group of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            name, "does not exist: make it by make_group; a day after its end it is forgotten"
        )


class GroupClosed(GroupError):
    """The group takes no more members: it was closed or cancelled, or has as many as it can."""

    def __init__(self, name: str) -> None:
        super().__init__(
            name,
            "takes no more members: it was closed or cancelled, or has 100,000 "
            f"(expirebridge groups show {name}). To add members later, make it with close=False, "
            "and close it by close_group",
        )


class GroupIncomplete(GroupError):
    """The group lacks members that it should have: their maker died, or the server lost them.

    It stays as it was, open, and its follow-up does not run.
    """

    def __init__(self, name: str, lacking: int) -> None:
        super().__init__(
            name,
            f"lacks {plural(lacking, 'member', 'members')}, not made yet, or lost by the server: "
            "it is not closed. Repeat the call of make_group that made it: it makes what is "
            "missing, and closes it",
        )
        self.lacking = lacking
        """How many members it lacks."""


class GroupDiffers(GroupError):
    """A group of that name was made with other tasks, another follow-up, or another `on_failed`."""

    def __init__(self, name: str) -> None:
        super().__init__(
            name,
            "was made with other tasks, another follow-up or on_failed: choose another name; a "
            "name is free a day after the group has ended",
        )


class SeriesDeclared(ExpirebridgeError):
    """The id belongs to a series that handlers declare with `@every`; nothing was changed."""

    def __init__(self, id: str) -> None:
        super().__init__(
            f"series {id!r} is declared by handlers: change it there, or choose another id; what "
            "nobody declares any more, `expirebridge series prune` removes"
        )
        self.id = id


class HandlersError(ExpirebridgeError):
    """The handlers' folder is missing, or a module in it cannot be imported."""


class EmbeddedServerError(ExpirebridgeError):
    """The embedded server could not be started; the message holds the end of its output."""


class ListenerStuck(ExpirebridgeError):
    """A handler never ended after its timeout; only a new process frees its room."""

    def __init__(self, func: str, grace: float) -> None:
        super().__init__(
            f"{func} did not return {grace:g} s after its timeout; the process must be replaced"
        )


class LedgerError(ExpirebridgeError):
    """The ledger's database refused a call for a reason that has no class of its own."""


class LedgerUnreachable(LedgerError):
    """The ledger's database did not answer. A change may or may not have been committed."""


class LedgerUnsuitable(LedgerError):
    """The ledger's tables cannot be used as they are; the message says what to do."""


class CompletionRefused(LedgerError):
    """`complete_in`: the task is no longer this attempt's to complete. Roll the transaction back.

    It was cancelled, rescheduled or replaced meanwhile, or another attempt has completed it.
    """


class ServerError(ExpirebridgeError):
    """The Redis server refused a command for a reason that has no class of its own."""

    nothing_written = False
    """Whether it is certain that the call changed nothing."""


class ServerUnreachable(ServerError):
    """The server did not answer. The call that raised this may or may not have taken effect."""


class PartlyDone(ServerUnreachable):
    """A call that concerns several partitions was done in some of them; others cannot be asked.

    What belongs to those may or may not have been done. It is safe to call again for it.
    """

    def __init__(self, done: Any, undone: Sequence[Any], fault: object) -> None:
        super().__init__(f"done in part; some partitions cannot be asked: {fault}")
        self.done = done
        """What the call would have returned, for what was done; in a list with a place for each
        thing, None stands for the others."""
        self.undone = undone
        """The rest: positions in that list, ids, or the tags of partitions."""


class SlotUnserved(ServerError):
    """No node of the cluster takes commands for the slot now; nothing was written."""

    nothing_written = True
    of_node = False
    """Whether the node takes no commands at all: so it is with all its slots."""


class SlotMoving(ServerError):
    """The slot is being moved from one node of the cluster to another key by key.

    Nothing was written. It works again when the move is finished, or undone.
    """

    nothing_written = True


class ServerReadOnly(ServerError):
    """The server is a replica, or became one: it accepts no writes. Connect to the primary."""


class NotPermitted(ServerError):
    """The login has no right to do this. `expirebridge acl` prints the rights that it needs."""


class ServerOutOfMemory(ServerError):
    """The server reached `maxmemory`: the whole call was refused, and nothing was written."""


class ServerUnsuitable(ServerError):
    """The server lacks something that expirebridge needs."""


class ScriptFailed(ServerError):
    """A script found data that it could not handle: another client changed expirebridge's keys."""


class FormatTooNew(ServerError):
    """A newer expirebridge wrote the database, in a format that this one does not know."""


class MoveRefused(ServerError):
    """The tasks of this database cannot be moved there now. The message says why."""


class PartitionsDiffer(ServerError):
    """The database has another number of partitions than was asked for; nothing was written."""

    def __init__(self, count: int, asked: int) -> None:
        super().__init__(
            f"the database has {_partitions(count)}, and was asked as if it had "
            f"{_partitions(asked)}: nothing was written"
        )
        self.count = count
        """How many it has."""
        self.asked = asked


class LimitsNeedOnePartition(ServerError):
    """Handlers have limits, and the database has several partitions; nothing was claimed."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"the database has {_partitions(count)}, and limits need a database of one: a task's "
            "id decides where it is, so no partition could count what runs in the others. Use a "
            "database of one partition for handlers with limits (in a cluster, give it a prefix "
            "with a tag of its own, such as {limited}), or remove limit= and rate="
        )


def _partitions(count: int) -> str:
    return plural(count, "partition", "partitions")

"""The base of all groups of operations, and the operations on partitions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from expirebridge.errors import InvalidSetting, InvalidTask, PartitionsDiffer, PartlyDone
from expirebridge.hooks import Hooks
from expirebridge.settings import Settings
from expirebridge.task import calls, keys
from expirebridge.task.argument_writer import ArgumentWriter
from expirebridge.task.calls import partitions
from expirebridge.task.calls.call import LEFT_OUT, Command, Steps, at_if_available
from expirebridge.task.keys import TriggerKey, hash_tag_of
from expirebridge.task.new_task import Func, call_of, is_private
from expirebridge.task.partitions import MAX_PARTITIONS, PartitionLayout, is_count
from expirebridge.task.task import State

if TYPE_CHECKING:
    from expirebridge.task.calls.looking import TaskPage
    from expirebridge.task.calls.pages import Pages
    from expirebridge.task.listings import Counts


UnknownFunction = Literal["off", "warn", "refuse"]
"""What is done about new tasks whose function no listener has: see `Bridge`."""


class OperationGroup:
    """The operations of one subject, with the settings and hooks that they need."""

    def __init__(
        self, settings: Settings, hooks: Hooks, *, unknown: UnknownFunction = "off"
    ) -> None:
        if unknown not in get_args(UnknownFunction):
            raise InvalidSetting(
                f"unknown={unknown!r}: one of {', '.join(get_args(UnknownFunction))}"
            )
        self._settings = settings
        self._hooks = hooks
        self._key_ring = settings.key_ring
        self._writer = ArgumentWriter(settings.codec, self._key_ring)

    def _before_making(self, funcs: Iterable[str]) -> Steps[None]:  # noqa: ARG002 - for capabilities
        """Called with the functions of new tasks or series; raises InvalidTask to refuse them.

        For capabilities, which override it, as they do `_after_making`.
        """
        yield from ()

    def _after_making(self, funcs: Iterable[str]) -> Steps[None]:  # noqa: ARG002 - likewise
        """Called when tasks or series of these functions have been made."""
        yield from ()


def refuse_left_out(done: Any) -> Steps[None]:
    """Raise PartlyDone if partitions were left out of what was done."""
    left_out = yield from LEFT_OUT
    if left_out:
        tags = [one.tag for one in left_out]
        raise PartlyDone(done, tags, f"partitions {' '.join(tags)}: {left_out[0].error}")


def task_pages(
    *,
    state: State | None = None,
    func: str | None = None,
    tag: str | None = None,
    group: str | None = None,
) -> "Pages[TaskPage]":
    """A walk over the tasks that match."""
    return calls.pages.Pages(
        lambda cursor: calls.looking.list_page(
            state=state, func=func, tag=tag, group=group, cursor=cursor
        )
    )


# Operations on the partitions of a database: how many there are, where an id belongs.


class PartitionOperations(OperationGroup):
    """Create partitions, count them, and name trigger keys."""

    def create_partitions(self, count: int) -> Steps[int]:
        """Divide a database into so many partitions, before anything else is written to it.

        `count` is a power of two, up to 256, and cannot be changed later. On one server they serve
        to prepare for a cluster: each has names in a hash slot of its own. Idempotent. Returns the
        count.

        Raises InvalidSetting if there cannot be so many, or the prefix has a tag of its own; and
        PartitionsDiffer if the database has another number: whatever is written to a new database
        first, by a producer or a listener, gives it one partition. Nothing is written then.
        """
        if not isinstance(count, int) or isinstance(count, bool) or not is_count(count):
            raise InvalidSetting(f"partitions={count!r}: a power of two, up to {MAX_PARTITIONS}")
        prefix = self._settings.prefix
        if count > 1 and hash_tag_of(prefix):
            raise InvalidSetting(
                f"prefix={prefix!r}: with a tag of its own there is one partition; leave it out"
            )
        yield from partitions.create_partitions(count)
        # From now on, other clients get the number; each partition stores it, too.
        try:
            yield from partitions.read_partitions()
        except PartitionsDiffer as told:
            if told.count != count:
                raise
        if count > 1:
            yield from partitions.mark_partition()
        return count

    def count_partitions(self) -> Command[int]:
        """Return how many partitions the database has.

        Raises PartitionsDiffer if one of them has another number.
        """
        return partitions.read_partitions()

    def list_partitions(self) -> Steps["list[Counts]"]:
        """Return what each partition holds, as `count` does for all of them together.

        One that cannot be asked has no tasks here, and its `left_out` says why.
        """
        count = yield from partitions.read_partitions()
        found = []
        for number in range(count):
            call = calls.looking.count(self._settings.lease)
            counts = yield from at_if_available(call, number, fail_fast=True)
            found.append(counts or calls.looking.no_counts())
        left_out = yield from LEFT_OUT
        for one in left_out:
            found[one.partition] = replace(found[one.partition], left_out=(one,))
        return found

    def key_of(
        self,
        id: str,
        func: Func,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Steps[bytes]:
        """Return the name of the trigger key with which another client makes this task.

        Such as `dev:7:?devices.offline?["dev-7"]`; with several partitions it begins with the tag
        of the one to which the id belongs. `args` and `kwargs` are those of `make_task`; they must
        fit into the name. Raises InvalidTask for what cannot be.
        """
        name, encoded = call_of(self._settings.tasks, func, args, kwargs)
        if self._writer.seals or is_private(func):
            raise InvalidTask(f"{name}: private arguments are never in the name of a key")
        if len(encoded) > keys.MAX_ARGS_IN_KEY:
            raise InvalidTask(
                f"args: {len(encoded):,} bytes; at most {keys.MAX_ARGS_IN_KEY} in the name of a key"
            )
        keys.check_id(id)
        count = yield from partitions.read_partitions()
        layout = PartitionLayout(self._settings.prefix, count)
        tag = (
            layout.hash_tag_of(layout.partition_of(id))
            or hash_tag_of(self._settings.prefix).decode()
        )
        return TriggerKey(id=id, func=name, args=encoded, hash_tag=tag).encode()

"""Turns the `Then` that a handler returned into the task that its settlement makes."""

from hashlib import sha1

from expirebridge.errors import InvalidTask
from expirebridge.handlers import Then
from expirebridge.hooks import Made, NotMade
from expirebridge.settings import Settings
from expirebridge.store.record_values import args_of, split_call
from expirebridge.store.task_records import ClaimedTask
from expirebridge.task.argument_writer import ArgumentWriter
from expirebridge.task.calls.call import Steps
from expirebridge.task.calls.producing import NewTask
from expirebridge.task.keys import key_name
from expirebridge.task.new_task import new_task
from expirebridge.task.partitions import PartitionLayout
from expirebridge.task.task import Outcome, State, Task, from_ms


def checked(then: Then, settings: Settings) -> NewTask:
    """Check and encode a follow-up. Raises InvalidTask, which says that it is about the Then."""
    try:
        return new_task(settings.tasks, _writer(settings), func=then.func, **then.options)
    except InvalidTask as error:
        raise InvalidTask(f"the Then that its handler returned: {error}") from None


def written(
    new: NewTask, claimed: ClaimedTask, settings: Settings, layout: PartitionLayout
) -> Steps[NewTask]:
    """The follow-up of a claimed task under its final id, with its arguments as they are stored.

    `layout` has the partitions of the database. A random id follows from the claim: a resend has
    the same. Raises InvalidTask for an id of another partition, and what a codec raises.
    """
    partition = layout.partition_of(claimed.id)
    if new.has_random_id:
        digest = sha1(f"{claimed.id} {claimed.token}".encode(), usedforsecurity=False).hexdigest()
        tag = layout.tag_of(partition)
        new = new._replace(id=f"{tag}@{digest}" if tag else digest)
    elif layout.partition_of(new.id) != partition:
        head = claimed.id.partition("@")[0]
        raise InvalidTask(
            f"the Then that its handler returned: id={new.id!r}: it belongs to another partition "
            f"than its task, and both are written in one step; leave it out, or begin it with "
            f"{head + '@'!r}"
        )
    new.fields["after"] = claimed.id
    return (yield from _writer(settings).write(new))


def told(new: NewTask, claimed: ClaimedTask, *, now: float, is_made: bool) -> Made | NotMade:
    """The event for hooks, once the attempt is settled; `now` is the server's time, in seconds."""
    if is_made:
        return Made(task=task_of(new, claimed, now))
    return NotMade(id=new.id, error=LookupError("the lease of its attempt had lapsed"))


def task_of(new: NewTask, claimed: ClaimedTask, now: float) -> Task:
    """The follow-up as a task; `now` is the server's time, in seconds."""
    func, _ = split_call(new.call)
    given, kwargs = args_of(new.args)
    tag = claimed.key.partition(b"}")[0] + b"}" if claimed.key.startswith(b"{") else b""
    due = new.when.ms + (round(now * 1000) if new.when.relative else 0)
    return Task(
        id=new.id, func=func, args=given, kwargs=kwargs, state=State.PENDING, due=from_ms(due),
        key=key_name(tag, new.id, new.call), outcome=Outcome.CREATED, after=claimed.id,
    )  # fmt: skip


def _writer(settings: Settings) -> ArgumentWriter:
    return ArgumentWriter(settings.codec, settings.key_ring)

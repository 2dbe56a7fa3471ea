"""Operations that make tasks."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from expirebridge import hooks
from expirebridge.errors import (
    GroupClosed,
    GroupError,
    GroupNotFound,
    InvalidTask,
    PartlyDone,
    ServerError,
    TaskDiffers,
    TaskExists,
)
from expirebridge.store.record_values import args_of, split_call, text
from expirebridge.task import keys
from expirebridge.task.calls import producing
from expirebridge.task.calls.call import Command, Known, Steps, wait_for_failover
from expirebridge.task.calls.producing import Obstacle
from expirebridge.task.durations import Duration, seconds_of
from expirebridge.task.new_task import (
    Func,
    Named,
    checked,
    chunks,
    new_task,
    refuse_repeated_ids,
    with_available_id,
)
from expirebridge.task.operations.base import OperationGroup
from expirebridge.task.partitions import PartitionLayout
from expirebridge.task.task import Outcome, State, Task, from_ms, running_task
from expirebridge.task.texts import event

if TYPE_CHECKING:
    from expirebridge.task.policies import MisfireSpec, RetrySpec

logger = logging.getLogger("expirebridge")

_Unread = list[tuple[Sequence[producing.NewTask], Sequence[producing.MakeReply | None]]]
"""Chunks that were sent, and their outcomes, which are not read yet."""


class MakingOperations(OperationGroup):
    """Make tasks, one or many, and watch for silence."""

    def make_task(
        self,
        func: Func,
        args: Sequence[Any] = (),
        delay: Duration | None = None,
        *,
        kwargs: Mapping[str, Any] | None = None,
        at: datetime | None = None,
        id: str | None = None,
        if_exists: producing.IfExists = "reject",
        max_wait: Duration | None = None,
        window: Duration | None = None,
        tags: Sequence[str] = (),
        retry: "RetrySpec | None" = None,
        timeout: Duration | None = None,
        late_after: Duration | None = None,
        misfire: "MisfireSpec | None" = None,
        private: bool = False,
        on_signal: Named | None = None,
        urgent: bool = False,
    ) -> Steps[Task]:
        """Make a task that runs `func` after `delay`, or at `at`, on the server's clock.

        `func` is a handler's name, `module.function`, or the handler itself, whose signature the
        arguments are then checked against, or a `Call`, which has the arguments with it. `args` and
        `kwargs` are what JSON can hold, at most 64 KiB unless the bridge has a codec; those of a
        typed handler, given itself, are checked and converted. `delay` is seconds, a timedelta, or
        text such as "15m" or "1h30m"; `at` is an aware datetime, and one in the past means now.
        Exactly one of the two is needed. An `at` computed from this machine's clock is as wrong as
        that clock; a `delay` never is.

        `id` names the task; without it a random one is drawn. A finished task of that id makes way.
        If an unfinished one has it, `if_exists="reject"` raises TaskExists; `"keep"` returns that
        task untouched; `"replace"` puts the new one in its place (a running one runs to its end
        first); `"extend"` moves its due time, and raises TaskDiffers if it is another call,
        or has another `on_signal`.

        `max_wait` is how long `"extend"` and `"replace"` can put the task off in all, however often
        they are called: it counts from the first call that named it since the task was made, or
        ran. It requires an `id`, and a `delay` that is not longer.

        `window` makes `"keep"` a throttle: the first call makes the task, and calls are kept until
        so long after its latest run began, also once it has finished, however it ended. So runs
        begin at least that far apart. A task that was cancelled before it ran is ignored.
        It requires an `id`, and is at most an hour, since finished tasks are forgotten then; of
        succeeded ones only the latest 10,000 are kept, so in a busy database a window of more than
        15 s may end early.

        `tags` find the task again. `retry` (a list of delays, or a policy) and `timeout` go before
        the handler's own; so does `misfire`, which says what is done when a listener finds the task
        later than `late_after` its due time: `"skip"` (it is failed, with that reason) or
        `Spread(over="10m")` (it runs at some time in the next ten minutes). `"run"` is the default.

        `private` keeps the arguments out of the key's name, in the task's record. That is so anyway
        if the bridge has keys, or if `func` is a handler with `private=True`, given itself.

        `on_signal` is a handler, or its name, that runs instead, at once and with the same
        arguments, if `signal` is called before the task is first claimed.

        An `urgent` task is taken before all others that are due, as are those of a handler with
        `@handler(urgent=True)`. Among those that wait for a slot of a limit it is not first.

        Returns the task; `task.outcome` says what was done. Of a task that was kept, `created`,
        `tags`, `urgent`, `on_signal` and `attempt` are not filled in: `get` has them. Once it
        returned, the task is kept by the server, and will be started at least once.

        Raises InvalidTask if the task cannot be (nothing was sent then), TaskExists, TaskDiffers,
        and a ServerError if the server failed or refused the call. After ServerUnreachable the task
        may or may not have been made: with an `id`, and `if_exists="keep"`, it is safe to call
        again.
        """
        new = new_task(
            self._settings.tasks, self._writer, func=func, args=args, delay=delay, kwargs=kwargs,
            at=at, id=id, if_exists=if_exists, max_wait=max_wait, window=window, tags=tags,
            retry=retry, timeout=timeout, late_after=late_after, misfire=misfire, private=private,
            on_signal=on_signal, urgent=urgent,
        )  # fmt: skip
        return self._make(new)

    def make_tasks(
        self, tasks: Iterable[Mapping[str, Any]], *, group: str | None = None
    ) -> Steps[list[Task]]:
        """Make many tasks: each is a mapping of `make_task`'s arguments by their names.

        All are checked before the first is sent. They are sent in chunks of up to 64; each chunk
        is made whole or not at all, but with several partitions, for each of these by itself, one
        partition after the other. Returns the tasks in order; one whose id was taken has the
        outcome `rejected` (or `kept`, if it asked for that), and does not keep the others from
        being made.

        `group` adds them to an open group, as its members: see `make_group`. Their ids are the
        group's, so they have no `id` and no `if_exists`. A call that is repeated adds others.

        Raises InvalidTask, whose message names the position, and a ServerError as `make_task`; the
        chunks before the one that failed are made then. In a cluster, those of other partitions are
        made, too, and PartlyDone says which positions were not. GroupNotFound and GroupClosed say
        that the group takes no members.
        """
        if group is not None:
            return (yield from self._add_members(group, tasks))
        new = self._checked(tasks)
        yield from self._before_making(functions_in(new))
        return (yield from self._make_all(new))

    def _add_members(self, group: str, items: Iterable[Mapping[str, Any]]) -> Steps[list[Task]]:
        """Make tasks as members of a group: so do the operations on groups."""
        raise NotImplementedError

    def _make_all(self, new: Sequence[producing.NewTask]) -> Steps[list[Task]]:
        made: dict[str, Task] = {}
        written: dict[str, producing.NewTask] = {}
        rest: Sequence[producing.NewTask] = new
        undone = set[str]()
        fault: PartlyDone | None = None
        refused: dict[str, GroupError] = {}
        unread: _Unread = []
        read = partial(self._read, unread, made, refused)
        while rest:
            layout, unavailable = yield from _AVAILABILITY
            if unavailable:
                new = yield from _with_available_ids(new, made)
                rest = [task for task in new if task.id not in made and task.id not in undone]
            ready = yield from self._written(rest, written)
            for chunk in chunks(_by_partition(ready, layout)):
                self._announce(chunk)
                call = replace(producing.make(chunk, bulk=True), meanwhile=read)
                try:
                    outcomes = yield from self._send(call, chunk)
                except PartlyDone as partly:
                    fault, outcomes = partly, partly.done
                    left = [chunk[place] for place in partly.undone]
                    if partly.nothing_written and len((yield from _UNAVAILABLE)) < layout.count:
                        left = [task for task in left if not task.has_random_id]
                    undone |= {task.id for task in left}
                unread.append((chunk, outcomes))
                if self._hooks:
                    read()  # at once: a hook may need the connection, and the order of events
                if (yield from _AVAILABILITY) != (layout, unavailable):
                    break  # one partition was assumed; or other ids can be drawn
            read()
            undone |= refused.keys()
            rest = [task for task in rest if task.id not in made and task.id not in undone]
        if refused:
            raise next(iter(refused.values()))
        if fault is not None and undone:
            places = [place for place, task in enumerate(new) if task.id in undone]
            raise PartlyDone([made.get(task.id) for task in new], places, fault.__cause__)
        yield from self._after_making(functions_in(new))
        return [made[task.id] for task in new]

    def watch(
        self,
        id: str,
        func: Func,
        args: Sequence[Any] = (),
        *,
        ttl: Duration,
        kwargs: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        retry: "RetrySpec | None" = None,
        timeout: Duration | None = None,
        private: bool = False,
    ) -> Steps[Task]:
        """Watch something: `func` runs if no beat comes for `ttl`.

        Each `beat(id)` puts the task off to `ttl` from then; so does a plain `EXPIRE task.key
        seconds` by any client. If the id is watched already, this is a beat, too, with `ttl` as its
        new time to live; tags and policies stay. While `func` runs, the task is re-armed: it runs
        once more unless beats come. The other arguments are those of `make_task`.

        Returns the task; `task.outcome` is `created` or `extended`. Raises what `make_task` raises,
        TaskDiffers if the id is that of an unfinished task with another call.
        """
        seconds = seconds_of(ttl, name="ttl")
        if seconds < 0.001:
            raise InvalidTask(f"ttl={ttl!r}: it must be at least a millisecond")
        new = new_task(
            self._settings.tasks, self._writer, func=func, args=args, delay=seconds, kwargs=kwargs,
            id=keys.check_id(id), if_exists="extend", tags=tags, retry=retry, timeout=timeout,
            private=private,
        )  # fmt: skip
        new.fields["ttl"] = new.when.ms
        return self._make(new)

    def _read(self, unread: _Unread, made: dict[str, Task], refused: dict[str, GroupError]) -> None:
        """Read outcomes, if possible while the server makes the next chunk.

        Adds what was made to `made`, and the members that a group did not take to `refused`.
        """
        while unread:
            for task, reply in zip(*unread.pop(0), strict=True):
                if reply is None:
                    continue
                if reply.obstacle is not None and reply.obstacle in _NO_MEMBER:
                    refused[task.id] = no_member(task.id, reply.obstacle)
                else:
                    made[task.id] = self._made(task, reply)

    def _checked(self, tasks: Iterable[Mapping[str, Any]]) -> Sequence[producing.NewTask]:
        folder, writer = self._settings.tasks, self._writer
        new = [checked(folder, writer, position, item) for position, item in enumerate(tasks)]
        refuse_repeated_ids(new)
        return new

    def _written(
        self, new: Sequence[producing.NewTask], written: dict[str, producing.NewTask]
    ) -> Steps[Sequence[producing.NewTask]]:
        """The tasks as they are sent. Each is written once for its id, before the first is sent."""
        if self._writer.is_plain:
            return new
        for task in new:
            if task.id not in written:
                written[task.id] = yield from self._writer.write(task)
        return [written[task.id] for task in new]

    def _make(self, new: producing.NewTask) -> Steps[Task]:
        yield from self._before_making(new.funcs)
        new, made = yield from self._make_one(new)
        if made.obstacle is not None:
            refused = not_made(made.obstacle, new.id, made.state, made.call)
            self._not_made([new], refused)
            raise refused
        task = self._made(new, made)
        yield from self._after_making(new.funcs)
        return task

    def _make_one(
        self, new: producing.NewTask
    ) -> Steps[tuple[producing.NewTask, producing.MakeReply]]:
        """Make the task; one with a random id in another partition if its own is unavailable."""
        new = yield from Known(partial(with_available_id, new))
        ready = yield from self._writer.write(new)
        call = repeated = None
        while True:
            self._announce([ready])
            call = repeated or producing.make([ready])
            try:
                made = (yield from self._send(call, [ready]))[0]
            except ServerError as error:
                if not new.has_random_id or not (yield from _UNAVAILABLE):
                    raise
                if not error.nothing_written:
                    if repeated:
                        raise
                    repeated = wait_for_failover(call)  # it may have been made: sent as it was
                    continue
                other = yield from Known(partial(with_available_id, new))
                if other is new:
                    raise
                new, ready, repeated = other, (yield from self._writer.write(other)), None
            else:
                assert made is not None  # noqa: S101 - for the type checker
                return ready, made

    def _announce(self, new: Sequence[producing.NewTask]) -> None:
        """Call hooks before the call is encoded: they may add a trace to the task."""
        for task in new if self._hooks else ():
            making = hooks.Making(id=task.id, func=split_call(task.call)[0])
            self._hooks.emit(making)
            if making.trace is not None:
                task.fields["trace"] = making.trace

    def _send(
        self, call: Command[list[producing.MakeReply]], new: Sequence[producing.NewTask]
    ) -> Steps[Sequence[producing.MakeReply | None]]:
        """Ask for the tasks; hooks are called if that fails."""
        try:
            return (yield from call)
        except ServerError as error:
            undone = error.undone if isinstance(error, PartlyDone) else range(len(new))
            self._not_made([new[place] for place in undone], error)
            raise

    def _not_made(self, new: Iterable[producing.NewTask], error: Exception) -> None:
        for task in new if self._hooks else ():
            self._hooks.emit(hooks.NotMade(id=task.id, error=error))

    def _made(self, new: producing.NewTask, made: producing.MakeReply) -> Task:
        func = split_call(made.call)[0]
        second = new.on_signal
        # One that was kept may have others.
        sealed_for = (func,) if second is None or func not in new.funcs else new.funcs
        args, kwargs = args_of(made.args, new.id, *sealed_for, key_ring=self._key_ring)
        created = made.outcome is Outcome.CREATED or made.outcome is Outcome.REPLACED
        task = Task(
            id=new.id,
            func=func,
            args=args,
            kwargs=kwargs,
            key=made.key,
            state=made.state,
            due=from_ms(made.due),
            created=from_ms(made.now) if created else None,
            tags=_tags_of(new) if created else (),
            urgent=created and "urgent" in new.fields,
            # A repeated call may find it signalled.
            on_signal=second if created and func != second else None,
            outcome=made.outcome,
        )
        if task.outcome is Outcome.KEPT:
            _warn_if_own(task)
        if self._hooks:
            self._hooks.emit(hooks.Made(task=task))
        return task


_UNAVAILABLE = Known(attrgetter("unavailable"))
_AVAILABILITY = Known(attrgetter("layout", "unavailable"))


def _with_available_ids(
    new: Sequence[producing.NewTask], made: Mapping[str, Task]
) -> Known[list[producing.NewTask]]:
    """Give tasks with random ids that are not made yet ids of available partitions."""
    return Known(
        lambda partitions: [
            task if task.id in made else with_available_id(task, partitions) for task in new
        ]
    )


def _by_partition(
    new: Sequence[producing.NewTask], layout: PartitionLayout
) -> Sequence[producing.NewTask]:
    """The tasks of each partition together, so that a chunk goes to few of them."""
    if layout.count == 1:
        return new
    return sorted(new, key=lambda task: layout.partition_of(task.id))


_NO_MEMBER = {Obstacle.NO_GROUP: GroupNotFound, Obstacle.GROUP_CLOSED: GroupClosed}


def no_member(id: str, obstacle: Obstacle) -> GroupError:
    """The error for who made a member of a group that takes none; `id` is its, or the group."""
    return _NO_MEMBER[obstacle](id.partition("@")[0])


def not_made(obstacle: Obstacle, id: str, state: State, call: bytes) -> TaskExists | GroupError:
    """The error for a task that was not made, since another one of that state and call is there."""
    if obstacle in _NO_MEMBER:
        return no_member(id, obstacle)
    if obstacle is Obstacle.DIFFERS:
        return TaskDiffers(id, state, text(call))
    return TaskExists(id, state, in_ledger=obstacle is Obstacle.IN_LEDGER)


def functions_in(tasks: Iterable[producing.NewTask]) -> Iterator[str]:
    """The names of the functions that tasks may run."""
    for task in tasks:
        yield split_call(task.call)[0]
        if task.on_signal is not None:
            yield task.on_signal


def _tags_of(new: producing.NewTask) -> tuple[str, ...]:
    return tuple(str(new.fields["tags"]).split()) if "tags" in new.fields else ()


def _warn_if_own(kept: Task) -> None:
    """Say that a handler kept the task that it runs: it meant to run again, and will not."""
    running = running_task.get(None)
    if running is not None and running.id == kept.id:
        logger.warning(
            "task %s (%s) kept itself: while a task runs, if_exists='keep' with its own id makes "
            "nothing; to run again, call reschedule, or choose a new id",
            kept.id, kept.func,
            extra=event("kept itself", func=kept.func, task=kept.id),
        )  # fmt: skip

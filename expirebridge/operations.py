"""What producers can do, described once: each operation is checked here and becomes calls.

`Bridge` and `AsyncBridge` in `bridge.py` run these descriptions and add nothing of their own.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from expirebridge import wire
from expirebridge.current import running_task
from expirebridge.durations import Duration, seconds_of
from expirebridge.errors import InvalidTask, ServerError, TaskDiffers, TaskExists
from expirebridge.hooks import Hooks, Made, Making, NotMade
from expirebridge.listing import Place, find
from expirebridge.log_fields import event
from expirebridge.misfire import MisfireSpec
from expirebridge.new_tasks import (
    Func,
    IfExists,
    check_aware,
    checked,
    chunks,
    new_task,
    refuse_repeated_ids,
    when_of,
)
from expirebridge.retry import RetrySpec
from expirebridge.settings import Settings
from expirebridge.store import calls
from expirebridge.store.calls import Call, Steps
from expirebridge.store.views import args_of, split_call
from expirebridge.task import (
    Change,
    Counts,
    Listing,
    Outcome,
    State,
    Task,
    from_ms,
)

logger = logging.getLogger("expirebridge")

Progress = Callable[[Mapping[Change, int]], None]
"""Is told, again and again, how many tasks were changed so far."""

_ChangeAll = Callable[[Sequence[str]], Call[list[Change]]]


class Operations:
    """The operations of a producer, with the settings and hooks that they need."""

    def __init__(self, settings: Settings, hooks: Hooks) -> None:
        self._settings = settings
        self._hooks = hooks

    def make_task(
        self,
        func: Func,
        args: Sequence[Any] = (),
        delay: Duration | None = None,
        *,
        kwargs: Mapping[str, Any] | None = None,
        at: datetime | None = None,
        id: str | None = None,
        if_exists: IfExists = "reject",
        max_wait: Duration | None = None,
        window: Duration | None = None,
        tags: Sequence[str] = (),
        retry: RetrySpec | None = None,
        timeout: Duration | None = None,
        late_after: Duration | None = None,
        misfire: MisfireSpec | None = None,
    ) -> Steps[Task]:
        """Make a task that runs `func` after `delay`, or at `at`, on the server's clock.

        `func` is a handler's name, `module.function`, or the handler itself, whose signature the
        arguments are then checked against. `args` and `kwargs` are what JSON can hold, at most 64
        KiB. `delay` is seconds, a timedelta, or text such as "15m" or "1h30m"; `at` is an aware
        datetime, and one in the past means now. Exactly one of the two is needed. An `at` computed
        from this machine's clock is as wrong as that clock; a `delay` never is.

        `id` names the task; without it a random one is drawn. A finished task of that id makes way.
        If an unfinished one has it, `if_exists="reject"` raises TaskExists; `"keep"` returns that
        task untouched; `"replace"` puts the new one in its place (a running one runs to its end
        first); `"extend"` moves its due time, and raises TaskDiffers if it is another call.

        `max_wait` is how long `"extend"` and `"replace"` can put the task off in all, however often
        they are called: it counts from the first call that named it since the task was made, or
        ran. It goes with an `id`, and with a `delay` that is not longer.

        `window` makes `"keep"` a throttle: the first call makes the task, and calls are kept until
        so long after its latest run began, also once it has finished, however it ended. So runs
        begin at least that far apart. A task that was cancelled before it ran counts for nothing.
        It goes with an `id`, and is at most an hour, since finished tasks are forgotten then; of
        succeeded ones only the latest 10,000 are kept, so in a busy database a window of more than
        15 s may end early.

        `tags` find the task again. `retry` (a list of delays, or a policy) and `timeout` go before
        the handler's own; so does `misfire`, which says what is done when a listener finds the task
        later than `late_after` its due time: `"skip"` (it is failed, with that reason) or
        `Spread(over="10m")` (it runs at some time in the next ten minutes). `"run"` is the default.

        Returns the task; `task.outcome` says what was done. Of a task that was kept, `created`,
        `tags` and `attempt` are not filled in: `get` has them. Once it returned, the task is kept
        by the server, and will be started at least once.

        Raises InvalidTask if the task cannot be (nothing was sent then), TaskExists, TaskDiffers,
        and a ServerError if the server did not do its part. After ServerUnreachable the task may or
        may not have been made: with an `id`, and `if_exists="keep"`, it is safe to call again.
        """
        new = new_task(
            self._settings.tasks, func=func, args=args, delay=delay, kwargs=kwargs, at=at, id=id,
            if_exists=if_exists, max_wait=max_wait, window=window, tags=tags,
            retry=retry, timeout=timeout, late_after=late_after, misfire=misfire,
        )  # fmt: skip
        return self._make(new)

    def make_tasks(self, tasks: Iterable[Mapping[str, Any]]) -> Steps[list[Task]]:
        """Make many tasks: each is a mapping of `make_task`'s arguments by their names.

        All are checked before the first is sent. They are sent in chunks of up to 64; each chunk
        is made whole or not at all. Returns the tasks in order; one whose id was taken has the
        outcome `rejected` (or `kept`, if it asked for that), and does not keep the others from
        being made.

        Raises InvalidTask, whose message tells the position, and a ServerError as `make_task`; the
        chunks before the one that failed are made then.
        """
        folder = self._settings.tasks
        new = [checked(folder, position, item) for position, item in enumerate(tasks)]
        refuse_repeated_ids(new)
        made: list[Task] = []
        for chunk in chunks(new):
            outcomes = yield from self._send(chunk)
            made += [self._made(*pair) for pair in zip(chunk, outcomes, strict=True)]
        return made

    def watch(
        self,
        id: str,
        func: Func,
        args: Sequence[Any] = (),
        *,
        ttl: Duration,
        kwargs: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        retry: RetrySpec | None = None,
        timeout: Duration | None = None,
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
            self._settings.tasks, func=func, args=args, delay=seconds, kwargs=kwargs,
            id=wire.check_id(id), if_exists="extend", tags=tags, retry=retry, timeout=timeout,
        )  # fmt: skip
        new.fields["ttl"] = new.when.ms
        return self._make(new)

    def beat(self, id: str) -> Call[Change]:
        """Say that what `id` watches is alive: its task is put off to its `ttl` from now.

        Returns moved (a paused task is pending again), rearmed (its handler runs at present; the
        task waits for `ttl` afterwards), finished (it fired, or was cancelled), not found, or not
        watched (the task was not made by `watch`). After finished or not found, `watch` it again.
        Raises InvalidTask for an illegal id.
        """
        return calls.beat(wire.check_id(id))

    def get(self, id: str) -> Call[Task | None]:
        """Return the task of this id as it stands, or None. Raises InvalidTask for an illegal id.

        Finished tasks are forgotten after a while: see `docs/states.md`.
        """
        return calls.get(wire.check_id(id))

    def list(
        self,
        *,
        state: State | str | None = None,
        func: str | None = None,
        tag: str | None = None,
        due_before: datetime | None = None,
        failed_since: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Steps[Listing]:
        """Return up to `limit` tasks that match, by state or tag; waiting ones soonest first.

        `due_before` asks for tasks that are due earlier, `failed_since` for those that failed at
        that time or later; both are aware datetimes.

        It looks at no more than 10,000 tasks, whatever it finds: `listing.examined` and
        `listing.complete` say how far it came. `listing.cursor` is then where it goes on: give it
        as `cursor`, and the same arguments, for the next page. Pages are no snapshot: of tasks that
        come, go, move or change between two pages, some may be listed twice, or not at all.

        Raises InvalidTask for values that cannot be.
        """
        wanted = _check_state(state)
        if due_before is not None:
            check_aware(due_before, name="due_before")
        if failed_since is not None:
            check_aware(failed_since, name="failed_since")
            if wanted not in {None, State.FAILED}:
                raise InvalidTask(f"failed_since: it asks for failed tasks, not for {wanted} ones")
            wanted = State.FAILED

        def matches(task: Task) -> bool:
            return (due_before is None or task.due < due_before) and (
                failed_since is None or (task.ended is not None and task.ended >= failed_since)
            )

        if func is not None:
            wire.check_func(func)
        if tag is not None:
            wire.check_tags([tag])
        if not isinstance(limit, int) or limit < 1:
            raise InvalidTask(f"limit={limit!r}: it must be a whole number, at least 1")
        # One tag's ids stand together, whatever their states; otherwise each state has its own set.
        sources = [wanted] if tag is not None or wanted is not None else list(State)
        place = Place(sources[0]) if cursor is None else Place.read(cursor, sources)
        return find(sources, place, func=func, tag=tag, matches=matches, limit=limit)

    def count(self) -> Call[Counts]:
        """Return how many tasks stand in each state, and how many listeners beat."""
        return calls.count(self._settings.lease)

    def cancel(self, id: str) -> Call[Change]:
        """Cancel a task; returns cancelled, running, finished or not found.

        A running task is not stopped by that, but no further attempt follows; an async handler is
        cancelled as soon as its listener hears of it. Raises InvalidTask for an illegal id.
        """
        return calls.only(calls.cancel([wire.check_id(id)], keep=self._settings.keep_succeeded))

    def cancel_all(
        self, ids: Iterable[str], *, progress: Progress | None = None
    ) -> Steps[dict[Change, int]]:
        """Cancel each of these tasks, as `cancel` does one; returns how many had which answer.

        Sent in batches of up to 100. `progress` is called after each batch with the numbers so
        far; what it raises ends the work. Raises InvalidTask for an illegal id; the batches before
        it are done then.
        """
        keep = self._settings.keep_succeeded
        return self._change_all(ids, lambda ids: calls.cancel(ids, keep=keep), progress)

    def cancel_tag(self, tag: str, *, progress: Progress | None = None) -> Steps[dict[Change, int]]:
        """Cancel every unfinished task with the tag; returns how many were cancelled or running.

        Sent in batches of about 100: tasks that are made meanwhile may be missed. `progress` is
        called after each batch with the numbers so far; what it raises ends the work. Raises
        InvalidTask for an illegal tag.
        """
        keep = self._settings.keep_succeeded
        return self._change_tag(
            tag, Change.CANCELLED, lambda ids: calls.cancel(ids, keep=keep), progress
        )

    def reschedule(
        self, id: str, delay: Duration | None = None, *, at: datetime | None = None
    ) -> Call[Change]:
        """Move a task's due time to `delay` from now, or to `at`.

        Returns moved, rearmed (its handler runs at present; it runs once more then), finished or
        not found. A paused task is pending afterwards. Raises InvalidTask for an illegal id or
        time.
        """
        return calls.reschedule(wire.check_id(id), when_of(delay, at))

    def put_off(self, id: str, by: Duration) -> Call[Change]:
        """Put a task off by so much from when it is due; a paused one has so much more time left.

        Returns moved, running (nothing is changed then), finished or not found. Raises InvalidTask
        for an illegal id or duration.
        """
        seconds = seconds_of(by, name="by")
        return calls.only(calls.put_off([wire.check_id(id)], seconds))

    def put_off_all(
        self, ids: Iterable[str], by: Duration, *, progress: Progress | None = None
    ) -> Steps[dict[Change, int]]:
        """Put off each of these tasks, as `put_off` does one; returns how many had which answer.

        Works in batches, as `cancel_all`. Raises InvalidTask for an illegal id or duration.
        """
        seconds = seconds_of(by, name="by")
        return self._change_all(ids, lambda ids: calls.put_off(ids, seconds), progress)

    def put_off_tag(
        self, tag: str, by: Duration, *, progress: Progress | None = None
    ) -> Steps[dict[Change, int]]:
        """Put off every unfinished task with the tag, as `put_off` does one.

        Returns how many were moved or running. Works in batches, as `cancel_tag`. Raises
        InvalidTask for an illegal tag or duration.
        """
        seconds = seconds_of(by, name="by")
        return self._change_tag(
            tag, Change.MOVED, lambda ids: calls.put_off(ids, seconds), progress
        )

    def pause(self, id: str) -> Call[Change]:
        """Pause a task that waits, and keep the time that is left.

        Returns paused, running, finished or not found. Raises InvalidTask for an illegal id.
        """
        return calls.only(calls.pause([wire.check_id(id)]))

    def pause_all(
        self, ids: Iterable[str], *, progress: Progress | None = None
    ) -> Steps[dict[Change, int]]:
        """Pause each of these tasks, as `pause` does one; returns how many had which answer.

        Works in batches, as `cancel_all`. Raises InvalidTask for an illegal id.
        """
        return self._change_all(ids, calls.pause, progress)

    def pause_tag(self, tag: str, *, progress: Progress | None = None) -> Steps[dict[Change, int]]:
        """Pause every task with the tag that waits; returns how many are paused, or running.

        Works in batches, as `cancel_tag`. Raises InvalidTask for an illegal tag.
        """
        return self._change_tag(tag, Change.PAUSED, calls.pause, progress)

    def resume(self, id: str) -> Call[Change]:
        """Let a paused task go on: it is due when the time that was left has passed.

        Returns resumed, running, finished or not found. Raises InvalidTask for an illegal id.
        """
        return calls.only(calls.resume([wire.check_id(id)]))

    def resume_all(
        self, ids: Iterable[str], *, progress: Progress | None = None
    ) -> Steps[dict[Change, int]]:
        """Resume each of these tasks, as `resume` does one; returns how many had which answer.

        Works in batches, as `cancel_all`. Raises InvalidTask for an illegal id.
        """
        return self._change_all(ids, calls.resume, progress)

    def resume_tag(self, tag: str, *, progress: Progress | None = None) -> Steps[dict[Change, int]]:
        """Let every paused task with the tag go on; returns how many now wait, or are running.

        Works in batches, as `cancel_tag`. Raises InvalidTask for an illegal tag.
        """
        return self._change_tag(tag, Change.RESUMED, calls.resume, progress)

    def run_now(self, id: str) -> Call[Change]:
        """Make a task due now; a finished one, failed or not, starts anew with fresh attempts.

        Returns due now, running or not found. Raises InvalidTask for an illegal id.
        """
        return calls.run_now(wire.check_id(id))

    def find_failed(
        self,
        *,
        func: str | None = None,
        tag: str | None = None,
        since: datetime | None = None,
    ) -> Steps[Sequence[str]]:
        """Return the ids of all failed tasks that match, the latest first.

        However many there are: for `retry_failed` and `purge_failed`. `since` is when they failed,
        at the earliest. Raises InvalidTask for values that cannot be.
        """
        if func is not None:
            wire.check_func(func)
        if tag is not None:
            wire.check_tags([tag])
        if since is not None:
            check_aware(since, name="since")
        ids: list[str] = []
        pages = _pages(state=State.FAILED, func=func, tag=tag)
        while page := (yield from pages.next()):
            ids += [
                task.id
                for task in page.tasks
                if since is None or (task.ended is not None and task.ended >= since)
            ]
        # What failed meanwhile moves the others to later pages.
        return list(dict.fromkeys(ids))

    def retry_failed(
        self, ids: Iterable[str], *, progress: Progress | None = None
    ) -> Steps[dict[Change, int]]:
        """Let tasks start anew that failed: `run_now` for each; returns how many did what.

        `progress` is called now and then with the numbers so far; what it raises ends the work.
        Raises InvalidTask for an illegal id.
        """
        changes: Counter[Change] = Counter()
        for count, id in enumerate(ids, 1):
            changes[(yield from calls.run_now(wire.check_id(id)))] += 1
            if progress is not None and count % calls.BATCH == 0:
                progress(changes)
        return dict(changes)

    def purge_failed(
        self, ids: Iterable[str], *, progress: Progress | None = None
    ) -> Steps[dict[Change, int]]:
        """Forget failed tasks; returns how many were forgotten, not failed or not found.

        A listener's next pass takes their records away: it may take a second, 15 from when they
        failed, and as long as no listener runs. Works in batches, as `cancel_tag`. Raises
        InvalidTask for an illegal id.
        """
        return self._change_all(ids, calls.purge, progress)

    def _change_all(
        self, ids: Iterable[str], change: _ChangeAll, progress: Progress | None
    ) -> Steps[dict[Change, int]]:
        changes: Counter[Change] = Counter()
        for batch in calls.batches(wire.check_id(id) for id in ids):
            changes.update((yield from change(batch)))
            if progress is not None:
                progress(changes)
        return dict(changes)

    def _change_tag(
        self,
        tag: str,
        done: Change,
        change: _ChangeAll,
        progress: Progress | None,
    ) -> Steps[dict[Change, int]]:
        wire.check_tags([tag])
        changes: Counter[Change] = Counter()
        # A set that grows while it is walked over may show an id twice, and twice is not the same
        # as once for what is put off.
        seen: set[str] = set()
        pages = _pages(tag=tag)
        while page := (yield from pages.next()):
            ids = [task.id for task in page.tasks if not task.state.finished]
            ids = [id for id in dict.fromkeys(ids) if id not in seen]
            seen.update(ids)
            if ids:
                changes.update((yield from change(ids)))
            if progress is not None:
                progress({change: changes[change] for change in (done, Change.RUNNING)})
        return {change: changes[change] for change in (done, Change.RUNNING)}

    def _make(self, new: calls.NewTask) -> Steps[Task]:
        [made] = yield from self._send([new])
        refused: TaskExists | None = None
        if made.differs:
            refused = TaskDiffers(new.id, made.state, made.call.decode())
        elif made.outcome is Outcome.REJECTED:
            refused = TaskExists(new.id, made.state)
        if refused is not None:
            self._hooks.emit(NotMade(id=new.id, error=refused))
            raise refused
        return self._made(new, made)

    def _send(self, new: Sequence[calls.NewTask]) -> Steps[Sequence[calls.MakeReply]]:
        """Ask for the tasks; hooks are told before, and if it comes to nothing."""
        for task in new if self._hooks else ():
            making = Making(id=task.id, func=split_call(task.call)[0])
            self._hooks.emit(making)
            if making.trace is not None:
                task.fields["trace"] = making.trace
        try:
            return (yield from calls.make(new))
        except ServerError as error:
            for task in new:
                self._hooks.emit(NotMade(id=task.id, error=error))
            raise

    def _made(self, new: calls.NewTask, made: calls.MakeReply) -> Task:
        args, kwargs = args_of(made.args)
        created = made.outcome in {Outcome.CREATED, Outcome.REPLACED}
        task = Task(
            id=new.id,
            func=split_call(made.call)[0],
            args=args,
            kwargs=kwargs,
            key=made.key,
            state=made.state,
            due=from_ms(made.due),
            created=from_ms(made.now) if created else None,
            tags=tuple(str(new.fields.get("tags", "")).split()) if created else (),
            outcome=made.outcome,
        )
        if task.outcome is Outcome.KEPT:
            _warn_if_own(task)
        self._hooks.emit(Made(task=task))
        return task


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


def _pages(
    *, state: State | None = None, func: str | None = None, tag: str | None = None
) -> calls.Pages[calls.Page]:
    return calls.Pages(
        lambda cursor: calls.list_page(state=state, func=func, tag=tag, cursor=cursor)
    )


def _check_state(state: State | str | None) -> State | None:
    try:
        return State(state) if state is not None else None
    except ValueError:
        raise InvalidTask(f"state={state!r}: one of {', '.join(State)}") from None
